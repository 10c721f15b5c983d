"""Success classifiers: training examples, fit, reward and page."""
