"""SPO, self-play by preferences: an episode is worth the share of recent episodes that it beats."""
