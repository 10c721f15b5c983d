"""Success classifiers: examples, fit, reward and page."""
