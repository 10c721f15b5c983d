"""How vehicles move: two models of a bicycle over arrays of vehicles, and their documented parameters."""
