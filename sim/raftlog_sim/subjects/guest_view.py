"""An onlooker's view of guests: the ghost log, the answers to clients, and broken rules.

The ghost log is everything that any node ever held committed. Each conviction names a rule of Raft
that broke. The run goes on, since only its end shows what clients lose.
"""

import hashlib
from typing import Any, Final, NamedTuple, final

import attrs

from raftlog_sim.subjects.pysyncobj import SUCCESS, GuestEntry, GuestNode

MESSAGE_FIELDS: Final = ("type", "term", "commit_index", "prevLogIdx", "next_node_idx", "reset")
ELECTION_SAFETY: Final = "election-safety"
LEADER_COMPLETENESS: Final = "leader-completeness"
COMMITTED_IMMUTABLE: Final = "committed-immutable"
COMMITTED_DURABLE: Final = "committed-durable"
MEMBERSHIP: Final = "membership"


class Conviction(NamedTuple):
    """A rule that was broken."""

    at_us: int
    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.what}"


@final
@attrs.define(eq=False)
class GuestView:
    """The view of a run. `lines` is the story in the form of trace.txt. `acknowledged` maps values
    to the positions that clients heard."""

    size: int
    lines: list[str] = attrs.Factory(list)
    convictions: list[Conviction] = attrs.Factory(list)
    submitted_values: dict[str, tuple[int, int]] = attrs.Factory(dict)
    acknowledged: dict[str, tuple[int, Any]] = attrs.Factory(dict)
    refused: dict[str, int] = attrs.Factory(dict)
    events: int = 0
    digest: Any = attrs.Factory(hashlib.blake2b)
    _ghost: dict[int, GuestEntry] = attrs.Factory(dict)
    _ghost_end: int = 1
    _leaders: dict[int, int] = attrs.Factory(dict)
    _commits: dict[int, int] = attrs.Factory(dict)
    _lasts: dict[int, int] = attrs.Factory(dict)
    _roles: dict[int, tuple[bool, int]] = attrs.Factory(dict)
    _broken: dict[tuple[str, int], None] = attrs.Factory(dict)
    _members: dict[int, list[int]] = attrs.Factory(dict)

    def note(self, at_us: int, where: str, name: str, **more: Any) -> None:
        """Add one line to the trace."""
        fields = "".join(f" {key}={value}" for key, value in more.items())
        self.lines.append(f"{at_us * 1000} {where} {name}{fields}")

    # --- processes and clients ---

    def started(self, at_us: int, node: GuestNode) -> None:
        """Note that a node boots."""
        self.note(at_us, f"n{node.number}", "role", role="follower", term=node.term)
        self._commits[node.number] = 1
        self._lasts[node.number] = node.last
        self._roles[node.number] = (False, node.term)
        before = self._members.get(node.number, node.members)
        if before != node.members:
            what = f"n{node.number} went by members {before} of its log, and boots with"
            self._convict(at_us, MEMBERSHIP, node.number, f"{what} {node.members}")

    def killed(self, at_us: int, node: GuestNode) -> None:
        """Note that a node is gone; its journal is not."""
        self.note(at_us, f"n{node.number}", "role", role="down")
        self._members[node.number] = node.members

    def submitted(self, at_us: int, number: int, value: str) -> None:
        self.submitted_values[value] = (at_us, number)

    def answered(self, at_us: int, number: int, value: str, position: Any, reason: int) -> None:
        """Note the answer to a client's write."""
        if reason == SUCCESS:
            self.acknowledged[value] = (at_us, position)
            self.note(at_us, f"n{number}", "acknowledged", value=value, position=position)
        else:
            self.refused[value] = at_us

    def delivered(self, sender: int, to: int, message: dict[str, Any]) -> None:
        """Note that a message arrives, and add it to the hash of the run."""
        self.events += 1
        fields = [message.get(field) for field in MESSAGE_FIELDS]
        self.digest.update(f"{sender} {to} {fields} {len(message.get('entries', ()))}\n".encode())

    # --- rules ---

    def look(self, at_us: int, node: GuestNode, nodes: dict[int, GuestNode]) -> None:
        """Check the rules after any event of a node."""
        number, last, commit = node.number, node.last, node.commit
        role = (node.leading, node.term)
        if role != self._roles[number]:
            self._role(at_us, node, role)
        before = self._lasts[number]
        if last < before:
            self.note(at_us, f"n{number}", "truncated", back_to=last, had=before)
        self._lasts[number] = last
        if commit > self._commits[number]:
            self._committed(at_us, node, commit)
        if last < before or commit > self._commits[number]:
            self._commits[number] = commit
            self._durable(at_us, nodes)

    def _role(self, at_us: int, node: GuestNode, role: tuple[bool, int]) -> None:
        leading, term = role
        name = "leader" if leading else "follower"
        self.note(at_us, f"n{node.number}", "role", role=name, term=term, last=node.last)
        if leading and not self._roles[node.number][0]:
            before = self._leaders.setdefault(term, node.number)
            if before != node.number:
                self._convict(
                    at_us, ELECTION_SAFETY, term, f"n{before} and n{node.number} lead term {term}"
                )
            self._complete(at_us, node)
        self._roles[node.number] = role

    def _complete(self, at_us: int, node: GuestNode) -> None:
        ghost = self._ghost.get(self._ghost_end)
        if ghost is not None and node.first <= ghost.at and node.entry(ghost.at) != ghost:
            self._convict(
                at_us,
                LEADER_COMPLETENESS,
                node.term,
                f"n{node.number} leads term {node.term} without committed entry {ghost.at}",
            )

    def _committed(self, at_us: int, node: GuestNode, commit: int) -> None:
        for index in range(max(self._commits[node.number], node.first - 1) + 1, commit + 1):
            entry = node.entry(index)
            if entry is None:
                continue
            ghost = self._ghost.setdefault(index, entry)
            if ghost != entry:
                what = f"n{node.number} commits entry {index} of term {entry.term}"
                self._convict(
                    at_us, COMMITTED_IMMUTABLE, index, f"{what}; it was of term {ghost.term}"
                )
        self._ghost_end = max(self._ghost_end, commit)

    def _durable(self, at_us: int, nodes: dict[int, GuestNode]) -> None:
        """Check that the newest committed entry is in the logs of a majority; nodes that are down
        count."""
        ghost = self._ghost.get(self._ghost_end)
        if ghost is None:
            return
        without = [
            node.number
            for node in nodes.values()
            if node.first <= ghost.at and node.entry(ghost.at) != ghost
        ]
        if 2 * (self.size - len(without)) <= self.size:
            names = ", ".join(f"n{number}" for number in without)
            self._convict(
                at_us,
                COMMITTED_DURABLE,
                ghost.at,
                f"committed entry {ghost.at} is not in the logs of {names}",
            )

    def _convict(self, at_us: int, rule: str, key: int, what: str) -> None:
        if (rule, key) not in self._broken:
            self._broken[(rule, key)] = None
            self.convictions.append(Conviction(at_us, rule, what))
            self.note(at_us, "onlooker", "VIOLATED", rule=rule, what=what.replace(" ", "_"))

    def trace_hash(self) -> str:
        return str(self.digest.hexdigest()[:16])
