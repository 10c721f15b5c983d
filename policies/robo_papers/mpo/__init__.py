"""A judge's rubric, which a meta judge rewrites if scores are wrong (MPO)."""
