"""What a world raises that does not get anywhere."""


class StuckError(Exception):
    """A world did not get to where a test wanted it in time, or nothing is left to happen."""
