"""Vehicle dynamics: two bicycle models over arrays of vehicles, and their documented parameters."""
