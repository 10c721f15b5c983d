"""The page on which a person compares segments."""
