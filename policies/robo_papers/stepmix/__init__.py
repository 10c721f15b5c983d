"""StepMix and EpsMix: conservative exploration, for tables and for SAC."""
