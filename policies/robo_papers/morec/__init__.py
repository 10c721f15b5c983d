"""MOREC: imagined steps are chosen among candidates by how plausible a transition is."""
