"""Commands that use a robot or a twin: console, driving, set-up, shadow runs, demonstration."""
