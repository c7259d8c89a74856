"""The error of a world that makes no progress."""


class StuckError(Exception):
    """A world did not reach the wanted state in time, or no action is left to perform."""
