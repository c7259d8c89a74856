"""Helpers of the Python programs: they run the features asked for, and print a JSON line for each.

    PROGRAM BOOTSTRAP PREFIX FEATURE...

The first line tells the client's version: {"version": "1.2"}. Then one line a feature, in the
order asked: {"feature": "create"} when it works, with "error" and the client's own words when it
does not, with "absent" and the reason when the client has no such feature. Topics are named PREFIX
and the feature; `topics.py` in the folder above makes them, and `groups.py` two groups.
"""

import asyncio
import inspect
import json
import sys

WRITTEN_RECORDS = 10
FILLED_PARTITIONS = 3
FILLED_RECORDS = 20
FILLED_VALUES = sorted(f"{p}:{o}" for p in range(FILLED_PARTITIONS) for o in range(FILLED_RECORDS))
TIME = 1_700_000_000_000 + 5000
"""The timestamp of offset 5 in every partition of the filled topic, in milliseconds."""
PATIENCE_SECONDS = 15
KNOWN_OFFSET = 7
"""The offset that the known group has committed in partition 0 of the filled topic."""


class AbsentError(Exception):
    """The client has no such feature; the text says what it has or lacks."""


class Place:
    """The topics and groups with which a program tries one feature."""

    def __init__(self, bootstrap, prefix, feature):
        self.bootstrap = bootstrap
        self.prefix = prefix
        self.feature = feature

    @property
    def topic(self):
        """The topic of this feature."""
        return f"{self.prefix}-{self.feature}"

    @property
    def filled(self):
        """The topic that holds `FILLED_VALUES`."""
        return f"{self.prefix}-filled"

    @property
    def group(self):
        """A group id of this feature alone."""
        return f"{self.prefix}-{self.feature}-group"

    @property
    def known_group(self):
        """A group without members that has committed `KNOWN_OFFSET`."""
        return f"{self.prefix}-known"


def main(version, feature_named):
    """Try the features of the command line; `feature_named(name)` returns the function for one."""
    bootstrap, prefix, *wanted = sys.argv[1:]
    _say({"version": version})
    for name in wanted:
        _say({"feature": name, **_tried(feature_named(name), Place(bootstrap, prefix, name))})


def _tried(function, place):
    try:
        if inspect.iscoroutinefunction(function):
            asyncio.run(asyncio.wait_for(function(place), PATIENCE_SECONDS))
        else:
            function(place)
    except AbsentError as absent:
        return {"absent": str(absent)}
    except TimeoutError as error:
        return {"error": f"silent for {PATIENCE_SECONDS} s: {error}"}
    except Exception as error:
        # This is the border of a foreign library: any error that it raises is its answer.
        return {"error": f"{type(error).__name__}: {error}"}
    return {}


def absent(reason):
    """Returns the function of a feature that this client does not have."""

    def function(_place):
        raise AbsentError(reason)

    return function


def expect(found, wanted, what):
    """Refuse a wrong answer: the client got along, but did not get what the broker holds."""
    if found != wanted:
        raise ValueError(f"{what}: expected {wanted!r}, got {found!r}")


def expect_among(wanted, found, what):
    """Refuse an answer that lacks what the broker holds."""
    if wanted not in found:
        raise ValueError(f"{what}: no {wanted!r} in {sorted(found)!r}")


def _say(line):
    print(json.dumps(line), flush=True)
