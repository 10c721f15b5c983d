"""One small cluster for all tests of a module, and an object of ours to ask."""
