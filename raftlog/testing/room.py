"""The faults that are in force on one broker, and how often each was used.

A room outlives its broker: a fault holds until it is removed, across a kill and a restart. The room
of a broker process keeps its faults in a file, in a folder that the brokers of a cluster share
(`raftlog.testing.faults.directory`). The broker reads the file when it starts, and before a turn if
the file changed. So a dead or paused broker can be given a fault, which holds from its next turn
on.
"""

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, final

from raftlog.base.errors import LocalMisuse
from raftlog.runtime.real_ports import OsEntropy
from raftlog.testing.faulty_disk import FaultsNow
from raftlog.testing.rules import (
    Action,
    ApiFault,
    DiskFault,
    Fault,
    PeerFault,
    as_json,
    parse_fault,
)
from raftlog.testing.uses import FileUses, MemoryUses, Uses, used

FAULTS_MAX: Final = 64
"""The most faults in force on a broker at one time. Each request is compared with each of them."""


@final
class FaultRoom:
    """The faults of one broker. Any thread may call it: the three tuples are only ever replaced
    whole."""

    def __init__(self, node: int, uses: Uses | None = None, folder: Path | None = None) -> None:
        self.node = node
        self.uses: Uses = uses or (MemoryUses() if folder is None else FileUses(folder))
        self.api: tuple[ApiFault, ...] = ()
        self.peers: tuple[PeerFault, ...] = ()
        self.disk: tuple[DiskFault, ...] = ()
        self._lock = threading.RLock()
        self._faults: dict[str, Fault] = {}
        self._path = None if folder is None else folder / f"broker{node}.json"
        self._seen: tuple[int, int] | None = None
        self._changed: Callable[[], None] | None = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
        self.refresh()

    # --- for tests --------------------------------------------------------------------------------

    def install(self, told: object) -> Fault:
        """Put a fault in force, given as a JSON object of `raftlog.testing.rules`. `WrongValue` for
        an object that is no fault; `LocalMisuse` when its id is in force already or too many faults
        are."""
        with self._lock:
            self.refresh()
            fault = parse_fault(told, new_id)
            if fault.id in self._faults:
                raise LocalMisuse(f"fault {fault.id} is in force already", do="remove it first")
            if len(self._faults) == FAULTS_MAX:
                raise LocalMisuse(f"{FAULTS_MAX} faults are in force", do="remove some")
            self._replace({**self._faults, fault.id: fault})
        return fault

    def remove(self, fault: str) -> bool:
        """Remove a fault. Return whether it was in force."""
        with self._lock:
            self.refresh()
            kept = {name: each for name, each in self._faults.items() if name != fault}
            found = len(kept) < len(self._faults)
            self._replace(kept)
        return found

    def clear(self) -> None:
        """Remove all faults."""
        with self._lock:
            self._replace({})

    def listed(self) -> list[dict[str, Any]]:
        """Each fault in force, as JSON, with how often it was used."""
        with self._lock:
            self.refresh()
            faults = list(self._faults.values())
        return [{**as_json(each), "used": self.used(each)} for each in faults]

    def used(self, fault: Fault) -> int:
        """How often a fault was used, on all brokers that share the counts."""
        matches = self.uses.matches(fault.id)
        if isinstance(fault, ApiFault):
            return used(matches, fault.nth, fault.times)
        return matches

    # --- for the broker ---------------------------------------------------------------------------

    def attach(self, changed: Callable[[], None]) -> None:
        """Connect a broker that starts: `changed()` is called, from any thread, when faults have
        changed."""
        self._changed = changed

    def refresh(self) -> None:
        """Read the file again if it has changed. A room without a file does nothing."""
        if self._path is None:
            return
        try:
            state = os.stat(self._path)
        except FileNotFoundError:
            seen = None
        else:
            seen = (state.st_ino, state.st_mtime_ns)
        if seen == self._seen:
            return
        with self._lock:
            told = [] if seen is None else json.loads(self._path.read_text(encoding="utf-8"))
            faults = [parse_fault(each, new_id) for each in told]
            self._take({each.id: each for each in faults})
            self._seen = seen

    def acts(self, fault: ApiFault) -> bool:
        """Count a matching request. Return whether the fault acts on it."""
        number = self.uses.match(fault.id)
        return used(number, fault.nth, fault.times) > used(number - 1, fault.nth, fault.times)

    def count(self, fault: PeerFault | DiskFault) -> None:
        """Count one use of a fault."""
        self.uses.match(fault.id)

    def disk_now(self) -> FaultsNow:
        """The faults of the test disk now (`faulty_disk.FaultSource`)."""
        faults = self.disk
        if not faults:
            return _SOUND
        actions = [each.action for each in faults]
        return FaultsNow(
            slow_sync_ms=sum(each.ms for each in faults),
            fail_sync=Action.FAIL_SYNC in actions,
            full=Action.FULL_DISK in actions,
        )

    def disk_used(self, what: str) -> None:
        """Count an operation that the test disk slowed, failed or refused."""
        for each in self.disk:
            if each.action.value == what:
                self.count(each)

    def _replace(self, faults: dict[str, Fault]) -> None:
        if self._path is not None:
            text = json.dumps([as_json(each) for each in faults.values()])
            aside = self._path.with_suffix(".tmp")
            aside.write_text(text, encoding="utf-8")
            aside.replace(self._path)
            state = os.stat(self._path)
            self._seen = (state.st_ino, state.st_mtime_ns)
        self._take(faults)
        if self._changed is not None:
            self._changed()

    def _take(self, faults: dict[str, Fault]) -> None:
        self._faults = faults
        each = faults.values()
        self.api = tuple(one for one in each if isinstance(one, ApiFault))
        self.peers = tuple(one for one in each if isinstance(one, PeerFault))
        self.disk = tuple(one for one in each if isinstance(one, DiskFault))


_SOUND: Final = FaultsNow()


def new_id() -> str:
    """A new id that no other fault has."""
    return OsEntropy().bytes(6).hex()
