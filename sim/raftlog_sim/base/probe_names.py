"""The names of the product's probes and of its unusual paths, read from its source.

Sweeps and scenarios together should reach every probe that a simulated run can reach. Seeds should
take every unusual path.
"""

import re
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Final

import raftlog
import raftlog_sim

_CALL: Final = r"\b%s\(\s*\"([a-z0-9-]+)\""
_MARKERS: Final = ("base/probes.py", "base/buggify.py")
"""Files whose docstrings contain examples of calls, which are not probes."""


@cache
def probe_names() -> tuple[str, ...]:
    """Returns every name that stands in a call of `probe`, sorted."""
    return _named_in_calls_of("probe")


@cache
def place_names() -> tuple[str, ...]:
    """Returns every name that stands in a call of `buggify`, sorted."""
    return _named_in_calls_of("buggify")


@cache
def fault_names() -> tuple[str, ...]:
    """Returns the names of the simulator's own probes, which say what faults met. Files may ask for
    them."""
    return _named_in_calls_of("probe", Path(raftlog_sim.__file__).parent)


def _named_in_calls_of(function: str, home: Path | None = None) -> tuple[str, ...]:
    home, pattern = home or Path(raftlog.__file__).parent, re.compile(_CALL % function)
    markers = [home / name for name in _MARKERS]
    found: dict[str, None] = {}
    for path in sorted(home.rglob("*.py")):
        if path not in markers:
            found |= dict.fromkeys(pattern.findall(path.read_text(encoding="utf-8")))
    return tuple(sorted(found))


_WHOLE_WIRES: Final = "what links carry is summed: no fault changes it"
_HONEST: Final = "brokers do not lie to each other"
_OWN_CLIENTS: Final = "clients are the product's own, and ask for what is served"
_MUCH: Final = "more than a run of some seconds can hold"
_FOUND: Final = "it would be a finding: an invariant fails first"
_ALL_SEAL: Final = "every simulated broker seals its links, by one secret"
_ONE_ROOM: Final = "the log directories of a simulated machine share their room"
_JUST_THEN: Final = "a machine reads its log at boot: a fault must fall into that millisecond"
UNREACHABLE: Final = {
    "leaders-shown-unknown-to-the-controller": "every simulated controller knows the question",
    "preferred-leader-asked-for": "simulated administrators ask for no elections",
    "no-room-to-mark-the-old-directory": _ONE_ROOM,
    "directory-failed-while-it-was-settled": "a boot is one call, and no directory fails within it",
    "remains-outlive-the-replica": "no simulated disk loses files whose names are durable",
    "version-waits-full": _MUCH,
    "another-pass-of-a-copy": _MUCH,
    "copied-replica-was-reopened": "a replica must be opened again while it is being copied",
    "group-request-gave-up-loading": "who leads and commits nothing gives up within that second",
    "group-records-refused-partition-full": _MUCH,
    "offset-commit-timed-out": "simulated clients have less patience than a commit",
    "file-of-void-terms": "a file is lost just after its log fell to an older term",
    "void-file-beside-a-lost-one": "a file is lost just after its log fell to an older term",
    "machine-read-failed": _JUST_THEN,
    "machine-read-of-a-replaced-log": _JUST_THEN,
    "machine-snapshot-too-large": _MUCH,
    "machine-stopped": _FOUND,
    "peer-link-downgraded": _ALL_SEAL,
    "peer-link-rekeyed": _MUCH,
    "peer-proved-by-the-other-secret": _ALL_SEAL,
    "plain-peer-link-refused": _ALL_SEAL,
    "replica-with-another-state-stopped": _FOUND,
    "append-content-refused": _WHOLE_WIRES,
    "append-fails-crc": _WHOLE_WIRES,
    "chain-refused-at-append": _WHOLE_WIRES,
    "content-refused": _WHOLE_WIRES,
    "refused-range-is-sound": _WHOLE_WIRES,
    "install-refused": _HONEST,
    "match-beyond-our-log": _HONEST,
    "message-with-a-false-sender-dropped": _HONEST,
    "completion-of-no-round-dropped": "disks answer what they were asked, once",
    "handler-refused-request": _OWN_CLIENTS,
    "record-check-refused": _OWN_CLIENTS,
    "record-check-timed-out": _OWN_CLIENTS,
    "malformed-request": _OWN_CLIENTS,
    "unsupported-version": _OWN_CLIENTS,
    "controller-busy-asked-again": _MUCH,
    "promises-of-earlier-boots-over": "the settings of a node are the same at every boot",
    "reports-go-in-parts": _MUCH,
    "controller-requests-over-limit": _MUCH,
    "waiting-bytes-over-limit": _MUCH,
    "waiting-given-up": _MUCH,
    "install-too-large": _MUCH,
    "metadata-snapshot-too-large": _MUCH,
    "parked-produce-refused": _MUCH,
    "pinned-bytes-over-limit": _MUCH,
    "producer-table-full": _MUCH,
    "synced-within-a-round": _MUCH,
    "too-many-deletes-wait": _MUCH,
    "read-index-refused": _MUCH,
    "described-groups-over-limit": _MUCH,
    "offsets-of-gone-topics-wait-for-a-turn": _MUCH,
    "group-removed-in-several-turns": _MUCH,
    "fetched-offsets-over-limit": _MUCH,
    "message-refused": _FOUND,
    "term-jumped": _MUCH,
    "metadata-loader-stopped": _FOUND,
    "unknown-entry-kind": _FOUND,
    "target-refused-by-replica": "the image has valid targets only, and only a leader is told",
}
"""Probes that no run can reach, with the reason. Tests of their own reach them (`scripts/test`)."""


def reachable_names() -> tuple[str, ...]:
    """Returns the probes that sweeps and scenarios should reach."""
    return tuple(name for name in probe_names() if name not in UNREACHABLE)


def missed_names(reached: Collection[str]) -> list[str]:
    """Returns the probes that sweeps and scenarios should reach and did not."""
    return [name for name in reachable_names() if name not in reached]


def missed_places(taken: Collection[str]) -> list[str]:
    """Returns the unusual paths that no run took on purpose."""
    return [name for name in place_names() if name not in taken]
