"""The form of a fault: one JSON object, which is checked here wherever it came from.

    {"do": "drop_response", "on": "Produce", "times": 1}
    {"do": "error", "on": "Produce", "error": "NOT_LEADER_OR_FOLLOWER", "topic": "orders", "nth": 3}
    {"do": "delay", "on": "Fetch", "ms": 500, "client_id": "billing"}
    {"do": "disconnect", "on": "Produce", "executed": true, "connection": "127.0.0.1:54321"}
    {"do": "partition", "groups": [[1], [2, 3]], "one_way": false}
    {"do": "delay_peers", "ms": 50, "groups": [[1], [2, 3]]}
    {"do": "slow_disk", "ms": 50}     {"do": "full_disk"}     {"do": "fail_sync"}

An "id" may be given; else the room makes one. `WrongValue` and `WrongType` name the wrong field.
"""

import difflib
import re
from collections.abc import Callable, Mapping
from enum import Enum, unique
from typing import Any, Final, final

import attrs

from raftlog.base.errors import WrongType, WrongValue
from raftlog.kafka.error_codes import ErrorCode, error_name
from raftlog.kafka.tables import message_table
from raftlog.kafka.versions import SERVED, ApiKey, api_name

MS_MAX: Final = 600_000
"""The longest delay: ten minutes, longer than any client waits."""
TIMES_MAX: Final = 1_000_000
NAME_CHARACTERS_MAX: Final = 255
GROUPS_MAX: Final = 9
"""The most groups of a partition: a local cluster has at most nine brokers."""
NODE_MAX: Final = 2**31 - 1
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,64}\Z")
TOPIC_FIELDS: Final = ("topics", "topic_data", "topic_names")
"""The fields in which requests name topics."""


@final
@unique
class Action(Enum):
    """The actions of faults, by their names in JSON."""

    DROP_RESPONSE = "drop_response"
    ERROR = "error"
    DELAY = "delay"
    DISCONNECT = "disconnect"
    PARTITION = "partition"
    DELAY_PEERS = "delay_peers"
    SLOW_DISK = "slow_disk"
    FULL_DISK = "full_disk"
    FAIL_SYNC = "fail_sync"


@final
@attrs.frozen(kw_only=True)
class ApiFault:
    """A fault of one API. It acts on matching requests: `times` of them (None: all) from the `nth`
    on."""

    id: str
    action: Action
    api: int
    error: int = 0
    ms: int = 0
    executed: bool = False
    topic: str = ""
    client_id: str = ""
    connection: str = ""
    nth: int = 1
    times: int | None = None


@final
@attrs.frozen(kw_only=True)
class PeerFault:
    """A fault between brokers of different groups; a broker in no group is left alone. `ms` None
    means that nothing arrives. With `one_way` it touches only messages from earlier groups to later
    ones. Without groups it concerns all pairs of brokers."""

    id: str
    action: Action
    groups: tuple[tuple[int, ...], ...] = ()
    one_way: bool = False
    ms: int = 0

    def touches(self, sender: int, receiver: int) -> bool:
        """Whether the fault concerns messages from one broker to another."""
        if not self.groups:
            return True
        first, second = self._group_of(sender), self._group_of(receiver)
        if first is None or second is None:
            return False
        return first < second if self.one_way else first != second

    def _group_of(self, node: int) -> int | None:
        return next((at for at, group in enumerate(self.groups) if node in group), None)


@final
@attrs.frozen(kw_only=True)
class DiskFault:
    """A fault of the broker's disk. It acts on every operation while it is in force."""

    id: str
    action: Action
    ms: int = 0


Fault = ApiFault | PeerFault | DiskFault


def parse_fault(told: object, new_id: Callable[[], str]) -> Fault:
    """Parse the fault that a JSON object describes."""
    if not isinstance(told, dict):
        raise WrongType(f"a fault must be a JSON object, not {type(told).__name__}")
    name = told.get("do")
    actions = {each.value: each for each in Action}
    if not isinstance(name, str) or name not in actions:
        raise WrongValue(f"do must be one of {', '.join(actions)}, not {name!r}")
    action = actions[name]
    fields = _FIELDS[action]
    for field in told:
        if field not in (*fields, "do", "id"):
            known = ", ".join(fields) or "nothing else"
            raise WrongValue(f"{field} is no field of {name}", do=f"it takes {known}")
    given = dict(told)
    identity = given.get("id")
    if identity is None:
        given["id"] = new_id()
    elif not isinstance(identity, str) or not _ID.match(identity):
        raise WrongValue(f"id must be 1 to 64 letters, digits, _ and -, not {identity!r}")
    read = _Reader(given, action)
    if action in _OF_PEERS:
        return read.peer_fault()
    if action in _OF_DISKS:
        ms = read.number("ms", 1, MS_MAX) if "ms" in fields else 0
        return DiskFault(id=given["id"], action=action, ms=ms)
    return read.api_fault()


def as_json(fault: Fault) -> dict[str, Any]:
    """The JSON object of a fault. `parse_fault` returns the same fault for it."""
    told: dict[str, Any] = {"id": fault.id, "do": fault.action.value}
    if isinstance(fault, ApiFault):
        told["on"] = api_name(fault.api)
        if fault.action is Action.ERROR:
            told["error"] = error_name(fault.error)
        if fault.executed:
            told["executed"] = True
        given = {"topic": fault.topic, "client_id": fault.client_id, "connection": fault.connection}
        told.update({name: value for name, value in given.items() if value})
        if fault.nth != 1:
            told["nth"] = fault.nth
        if fault.times is not None:
            told["times"] = fault.times
    if isinstance(fault, PeerFault):
        if fault.groups:
            told["groups"] = [list(group) for group in fault.groups]
        if fault.one_way:
            told["one_way"] = True
    if fault.ms:
        told["ms"] = fault.ms
    return told


def api_key_of(name: str, field: str = "on") -> int:
    """The key of a served API by its name. Errors name `field`."""
    names = {api_name(key): key for key in SERVED}
    if name in names:
        return names[name]
    near = difflib.get_close_matches(name, names, n=1)
    do = f"did you mean {near[0]}?" if near else f"served are {', '.join(names)}"
    raise WrongValue(f"{field} must be the name of an API that is served, not {name!r}", do=do)


def refuse_topic(api: int, topic: str | None) -> None:
    """Raise `WrongValue` for a topic when requests of the API name no topics."""
    if topic is not None and not _names_topics(api):
        raise WrongValue(
            f"topic cannot restrict {api_name(api)}: its requests name no topics",
            do="leave topic out",
        )


def _error_code_of(name: str) -> int:
    codes = {each.name: int(each) for each in ErrorCode if each.name != "NONE"}
    if name in codes:
        return codes[name]
    near = difflib.get_close_matches(name, codes, n=1)
    do = f"did you mean {near[0]}?" if near else "docs/reference has Kafka's errors by name"
    raise WrongValue(f"error must be the name of a Kafka error, not {name!r}", do=do)


def _names_topics(api: int) -> bool:
    """Whether requests of this API name topics."""
    table = message_table(api, "request")
    assert table is not None, api
    names = [str(field[0]) for field in table[5]]
    return api == ApiKey.OFFSET_FETCH or any(name in TOPIC_FIELDS for name in names)


@final
@attrs.define
class _Reader:
    """Reads the fields of one JSON object, and checks their types and bounds."""

    told: Mapping[str, Any]
    action: Action

    def api_fault(self) -> ApiFault:
        api = api_key_of(self.text("on"))
        refuse_topic(api, self.told.get("topic"))
        once = 1 if self.told.get("nth") is not None else None
        times = self.told.get("times")
        error = self.action is Action.ERROR
        return ApiFault(
            id=self.told["id"],
            action=self.action,
            api=api,
            error=_error_code_of(self.text("error")) if error else 0,
            ms=self.number("ms", 1, MS_MAX) if self.action is Action.DELAY else 0,
            executed=self.flag("executed"),
            topic=self.text("topic", ""),
            client_id=self.text("client_id", ""),
            connection=self.text("connection", ""),
            nth=self.number("nth", 1, TIMES_MAX, 1),
            times=once if times is None else self.number("times", 1, TIMES_MAX),
        )

    def peer_fault(self) -> PeerFault:
        delays = self.action is Action.DELAY_PEERS
        told = self.told.get("groups")
        if told is None and delays:
            groups: tuple[tuple[int, ...], ...] = ()
        else:
            groups = self._groups(told)
        return PeerFault(
            id=self.told["id"],
            action=self.action,
            groups=groups,
            one_way=self.flag("one_way"),
            ms=self.number("ms", 1, MS_MAX) if delays else 0,
        )

    def _groups(self, told: object) -> tuple[tuple[int, ...], ...]:
        if not isinstance(told, list) or not 2 <= len(told) <= GROUPS_MAX:
            raise WrongValue(f"groups must be 2 to {GROUPS_MAX} lists of node ids, not {told!r}")
        seen: dict[int, None] = {}
        for group in told:
            if not isinstance(group, list) or not group:
                raise WrongValue(f"each of groups must be a list of node ids, not {group!r}")
            for node in group:
                if type(node) is not int or not 0 <= node <= NODE_MAX:
                    raise WrongValue(f"groups must hold node ids, not {node!r}")
                if node in seen:
                    raise WrongValue(f"node {node} stands in groups twice")
                if len(seen) == GROUPS_MAX:
                    raise WrongValue(f"groups must hold at most {GROUPS_MAX} node ids")
                seen[node] = None
        return tuple(tuple(group) for group in told)

    def text(self, field: str, default: str | None = None) -> str:
        value = self.told.get(field)
        if value is None and default is not None:
            return default
        if not isinstance(value, str) or not 1 <= len(value) <= NAME_CHARACTERS_MAX:
            raise WrongValue(
                f"{field} must be a text of 1 to {NAME_CHARACTERS_MAX} characters, not {value!r}"
            )
        return value

    def number(self, field: str, low: int, high: int, default: int | None = None) -> int:
        value = self.told.get(field)
        if value is None and default is not None:
            return default
        if type(value) is not int or not low <= value <= high:
            raise WrongValue(f"{field} must be a whole number from {low} to {high}, not {value!r}")
        return value

    def flag(self, field: str) -> bool:
        value = self.told.get(field, False)
        if not isinstance(value, bool):
            raise WrongValue(f"{field} must be true or false, not {value!r}")
        return value


_WHICH: Final = ("on", "topic", "client_id", "connection", "nth", "times")
_FIELDS: Final[Mapping[Action, tuple[str, ...]]] = {
    Action.DROP_RESPONSE: _WHICH,
    Action.ERROR: ("error", *_WHICH),
    Action.DELAY: ("ms", *_WHICH),
    Action.DISCONNECT: ("executed", *_WHICH),
    Action.PARTITION: ("groups", "one_way"),
    Action.DELAY_PEERS: ("ms", "groups", "one_way"),
    Action.SLOW_DISK: ("ms",),
    Action.FULL_DISK: (),
    Action.FAIL_SYNC: (),
}
_OF_PEERS: Final = (Action.PARTITION, Action.DELAY_PEERS)
_OF_DISKS: Final = (Action.SLOW_DISK, Action.FULL_DISK, Action.FAIL_SYNC)
