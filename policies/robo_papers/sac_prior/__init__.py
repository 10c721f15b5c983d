"""SAC near a prior policy, and the wrapper that observes it."""
