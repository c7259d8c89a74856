"""Trio mode: the real runtime and the real client over simulated streams, in virtual time."""
