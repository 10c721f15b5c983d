"""Driving in CARLA or its light stand-in: environments, rewards, routes and a scripted driver."""
