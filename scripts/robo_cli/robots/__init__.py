"""Commands that serve and watch robots and simulators."""
