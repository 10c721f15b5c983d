"""StepMix and EpsMix: exploration that is never much worse than a baseline policy, for tables and for SAC."""
