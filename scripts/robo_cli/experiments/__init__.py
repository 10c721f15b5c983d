"""Commands that compare, search and measure."""
