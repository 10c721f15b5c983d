"""Tasks of Safety-Gymnasium on the MuJoCo that is installed."""
