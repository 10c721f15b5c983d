"""ExploRS: a reward that helps, learned."""
