"""A quadrotor that flies through way-points: plans, an analytic check of their limits, and a flight in MuJoCo."""
