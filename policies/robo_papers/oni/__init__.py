"""ONI: intrinsic rewards from a language model that reads descriptions of an agent's steps while the agent learns."""
