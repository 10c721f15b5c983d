"""OER: recorded tasks one after the other, with small memories."""
