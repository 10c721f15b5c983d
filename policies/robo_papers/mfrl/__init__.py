"""MFRL: plans from a cheap check and few flights, and the quadrotor that flies them."""
