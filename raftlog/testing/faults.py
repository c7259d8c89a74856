"""The faults of a room as the shell takes them (`raftlog.runtime.fault_port.Faults`)."""

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final, final

import trio

from raftlog.base.errors import LocalMisuse
from raftlog.base.ports import Disk
from raftlog.broker.broker import Broker
from raftlog.runtime.driver import DrivenBroker
from raftlog.runtime.fault_port import Answer, FaultDoor
from raftlog.runtime.settings.config_file import ServerConfig
from raftlog.testing.broker import FaultyBroker
from raftlog.testing.faulty_disk import FaultsNow, FaultyDisk, TestDiskOptions
from raftlog.testing.room import FaultRoom

_JSON: Final = "application/json"


@final
class BrokerFaults:
    """The faults of one boot of a broker. With `open_door` the broker serves /faults."""

    def __init__(self, room: FaultRoom, *, open_door: bool) -> None:
        self.room = room
        self.door: FaultDoor | None = JsonDoor(room) if open_door else None
        self._loop: int | None = None

    def over_broker(self, driven: DrivenBroker, broker: Broker) -> FaultyBroker:
        """See `Faults`."""
        return FaultyBroker(broker, self.room, driven)

    def over_disk(self, disk: Disk) -> Disk:
        """See `Faults`."""
        return FaultyDisk(disk, TestDiskOptions(), self)

    def attach(self, turn_soon: Callable[[], None], inline: Callable[[bool], None]) -> None:
        """See `Faults`."""
        self._loop = threading.get_ident()
        token = trio.lowlevel.current_trio_token()

        def heed() -> None:
            inline(not self.room.disk)
            turn_soon()

        def changed() -> None:
            try:
                token.run_sync_soon(heed)
            except trio.RunFinishedError:
                return  # the loop of an earlier boot is closed; the next boot asks the room itself

        inline(not self.room.disk)
        self.room.attach(changed)

    def disk_now(self) -> FaultsNow:
        """The faults in force on the disk. Syncs that the loop itself does at a boot are not
        slowed: in one process they would delay all other brokers."""
        faults = self.room.disk_now()
        if faults.slow_sync_ms and threading.get_ident() == self._loop:
            return faults._replace(slow_sync_ms=0)
        return faults

    def disk_used(self, what: str) -> None:
        """See `FaultSource`."""
        self.room.disk_used(what)


def faults_of(config: ServerConfig) -> BrokerFaults:
    """The faults of a broker whose file says `raftlog.testing.faults = true`."""
    folder = Path(config.faults.directory) if config.faults.directory else None
    return BrokerFaults(FaultRoom(config.broker.node, folder=folder), open_door=True)


@final
class JsonDoor:
    """/faults on the admin listener: GET lists, POST adds one, DELETE removes one or all."""

    def __init__(self, room: FaultRoom) -> None:
        self._room = room

    def answer(self, method: str, path: str, content_type: str, body: bytes) -> Answer:
        """See `FaultDoor`."""
        if path != "/faults" and not path.startswith("/faults/"):
            return _told(404, {"error": "known here: /faults and /faults/ID"})
        name = path.removeprefix("/faults").removeprefix("/")
        if method in ("GET", "HEAD") and not name:
            return _told(200, {"broker": self._room.node, "faults": self._room.listed()})
        if method == "POST" and not name:
            return self._post(content_type, body)
        if method == "DELETE":
            return self._delete(name)
        return _told(405, {"error": "served are GET, POST and DELETE /faults, DELETE /faults/ID"})

    def _post(self, content_type: str, body: bytes) -> Answer:
        if content_type.partition(";")[0].strip().lower() != _JSON:
            # A web page in the user's browser may POST other content types to any local port. JSON
            # it may not send without permission.
            return _told(415, {"error": f"send Content-Type: {_JSON}"})
        try:
            told = json.loads(body)
        except (ValueError, RecursionError) as error:
            return _told(400, {"error": f"the body is no JSON: {error}"})
        try:
            fault = self._room.install(told)
        except LocalMisuse as error:
            return _told(400, {"error": str(error)})
        return _told(201, next(each for each in self._room.listed() if each["id"] == fault.id))

    def _delete(self, name: str) -> Answer:
        found = [each for each in self._room.listed() if name in ("", each["id"])]
        if name and not found:
            return _told(404, {"error": f"no fault {name} is in force"})
        if name:
            self._room.remove(name)
        else:
            self._room.clear()
        return _told(200, {"broker": self._room.node, "removed": found})


def _told(status: int, value: object) -> Answer:
    return status, _JSON, json.dumps(value) + "\n"
