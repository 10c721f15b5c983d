"""Bags of ROS 2 and MCAP files: messages at their own rates become episodes at one control rate."""
