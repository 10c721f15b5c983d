"""Papers as a whole: their conformance."""
