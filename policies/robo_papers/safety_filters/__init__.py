"""Safety filters between policy and environment: barriers, and a shield that looks ahead in a simulation."""
