"""One file per kind of arm."""
