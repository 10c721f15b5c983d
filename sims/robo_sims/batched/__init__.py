"""Many simulations of one task in one object, stepped by native threads: vector environments of Gymnasium."""
