"""Road maps: OpenDRIVE out and in, a validator, lanes for traffic, and generators with seeds."""
