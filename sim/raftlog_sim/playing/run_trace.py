"""The trace of a run: a line for each change of role, term and commit, and the messages that
matter.

The form is that of trace.txt (docs/internals/history_format.md).

`role` colours a node's lane; a node has many groups, so the first partition's group speaks for it,
and the others appear as `group-<n>`. Heartbeats are left out.
"""

from collections import deque
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from raftlog.base.ids import METADATA_GROUP
from raftlog.broker.events import PeerMessages, Persisted
from raftlog.raft import messages as m

if TYPE_CHECKING:
    from raftlog.partition.replica import PartitionReplica
    from raftlog_sim.checks.onlooker import WatchedTurn
    from raftlog_sim.world.node import Node, NodeWorld

WAITING_MAX: Final = 4_096
_WORDS: Final[dict[type, str]] = {
    m.PreVoteRequest: "pre-vote",
    m.PreVoteReply: "pre-vote-reply",
    m.VoteRequest: "vote",
    m.VoteReply: "vote-reply",
    m.Append: "append",
    m.AppendReply: "append-reply",
    m.AppendRefused: "append-refused",
    m.Install: "install",
    m.InstallReply: "install-reply",
    m.TimeoutNow: "timeout-now",
}

Key = tuple[Any, ...]


@final
@attrs.define(eq=False)
class RunTrace:
    """Watches turns. `lines` grows; `world` is known after the first turn."""

    lines: list[str] = attrs.Factory(list)
    world: "NodeWorld | None" = None
    _states: dict[tuple[int, int], tuple[str, int, int]] = attrs.Factory(dict)
    _boots: dict[int, int] = attrs.Factory(dict)
    _sent: dict[Key, deque[int]] = attrs.Factory(dict)
    _waiting: int = 0
    _last_id: int = 0

    def watch(self, turn: "WatchedTurn") -> None:
        """Write down what this turn changed."""
        node = turn.node
        self.world = node.world
        name = f"n{node.number}"
        now = node.world.now
        if self._boots.get(node.number) != node.boots:
            self._boots[node.number] = node.boots
            self._line(now, name, "boot", number=node.boots)
        for event in turn.events:
            if isinstance(event, PeerMessages):
                self._arrived(now, name, event)
            elif isinstance(event, Persisted):
                self._line(now, name, "sync")
        self._changed(now, name, node)
        for send in turn.effects.sends:
            for message in send.messages:
                self._left(now, name, f"n{send.peer}", message)

    def _line(self, now: int, where: str, event: str, **more: Any) -> None:
        fields = "".join(f" {key}={value}" for key, value in more.items())
        self.lines.append(f"{now} {where} {event}{fields}")

    def _changed(self, now: int, name: str, node: "Node") -> None:
        replicas = node.broker.context.replicas
        spoken_for = min((group for group in replicas if group != METADATA_GROUP), default=None)
        for group, replica in replicas.items():
            state = (replica.node.role.name.lower(), int(replica.node.term), int(replica.commit))
            before = self._states.get((node.number, group))
            if state == before:
                continue
            self._states[(node.number, group)] = state
            role, term, commit = state
            if before is None or before[:2] != (role, term):
                what = "role" if group == spoken_for else f"group-{group}"
                self._line(now, name, what, role=role, term=term, commit=commit)
            else:
                self._line(now, name, "commit", group=group, index=commit)

    def _left(self, now: int, name: str, to: str, message: Any) -> None:
        what = _word(message)
        if what is None or self._waiting >= WAITING_MAX:
            return
        self._last_id += 1
        self._waiting += 1
        self._sent.setdefault(_key(name, to, message), deque()).append(self._last_id)
        self._line(
            now, name, "send", to=to, id=self._last_id, what=what, group=message.group,
            term=message.term,
        )  # fmt: skip

    def _arrived(self, now: int, name: str, event: PeerMessages) -> None:
        for message in event.messages:
            waiting = self._sent.get(_key(f"n{event.peer}", name, message))
            if waiting:
                self._waiting -= 1
                self._line(now, name, "deliver", id=waiting.popleft())


def _word(message: Any) -> str | None:
    what = _WORDS.get(type(message))
    return None if what == "append" and not message.entries else what


def _key(sender: str, to: str, message: Any) -> Key:
    """Returns the key that a message and its decoded copy share."""
    return (sender, to, type(message).__name__, str(message[:1]), str(message[3:6]))


def replicas_document(world: "NodeWorld", topic: str) -> dict[str, Any]:
    """Returns the entries that each running node holds of each partition, by term, for the
    report."""
    found: dict[str, Any] = {}
    for node in world.running():
        image = node.broker.context.image.topic(topic)
        for number, partition in enumerate(image.partitions if image is not None else ()):
            replica = node.broker.context.replicas.get(partition.group)
            if replica is not None:
                held = {"committed": int(replica.high_watermark), "runs": _runs(replica)}
                found.setdefault(f"{topic}/{number}", {})[f"n{node.number}"] = held
    return found


def _runs(replica: "PartitionReplica") -> list[list[int]]:
    rows = replica.log.terms.rows()
    ends = [*(offset for _, _, offset in rows[1:]), replica.log.next_offset]
    return [
        [int(first), int(end), int(term)]
        for (term, _, first), end in zip(rows, ends, strict=True)
        if end > first
    ]
