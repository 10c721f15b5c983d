"""Vector environments of Gymnasium over simulations that are stepped by native threads."""
