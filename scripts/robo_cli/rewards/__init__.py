"""Commands about reward models."""
