"""ExploRS: learns a reward that helps a policy to reach a sparse reward."""
