"""A robot as an HTTP server: the contract of HIL-SERL's Franka server, and functions of our own under /robo/."""
