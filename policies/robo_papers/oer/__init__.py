"""OER: learns recorded tasks one after the other, with small memories of the earlier ones."""
