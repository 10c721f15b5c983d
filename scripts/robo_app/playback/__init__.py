"""Show a policy in its environment: in a window, on a page, in a film."""
