"""HTTP server of a robot: the routes of HIL-SERL's Franka server, and our own under /robo/."""
