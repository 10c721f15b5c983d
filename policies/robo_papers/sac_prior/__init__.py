"""SAC that stays near a prior policy, and the wrapper that observes the prior's action."""
