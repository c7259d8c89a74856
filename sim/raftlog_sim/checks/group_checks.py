"""Checks the answers to members of consumer groups, also while brokers die.

    group-one-owner         a partition has one owner in each generation, by the answers to
                            SyncGroup
    group-offsets-kept      an OffsetFetch returns the offset committed last, and none that a later
                            acknowledged commit replaced
    group-generations-rise  a generation has one leader, and no answer to a join has a generation
                            lower than one that was answered before the join was asked
    group-answered-once     JoinGroup and SyncGroup get one answer each
    group-skips-nothing     a member commits only records that some member of the group was given

Rows of `history` are plain values, for tests and for people.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, final

import attrs

from raftlog.client.core.group.protocol import decode_assignment
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.versions import ApiKey

_ONCE: Final = (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)
_NEVER: Final = 1 << 62


def _never(group: str) -> int:
    del group
    return 0


def _nothing(place: "Place") -> Iterable[int]:
    del place
    return ()


HISTORY_MAX: Final = 100_000
"""How many rows are kept; a run makes some hundreds."""

Place = tuple[str, str, int]
"""Group, topic, partition."""


class Generation(NamedTuple):
    """A generation number of a group, with the number of removals of the group before it."""

    removals: int
    number: int


Request = tuple[tuple[int, int], int]
"""Connection and number of the request, and the process that sent it."""


class SeenOffset(NamedTuple):
    """One event: `what` a member said (`ask`) or heard (the answer's error code)."""

    at_ns: int
    process: int
    api: int
    group: str
    code: int | None
    detail: str


@final
@attrs.define(eq=False)
class Commit:
    """One commit of one partition, from the step `begun` to the step `ended`. A commit whose
    outcome is unknown never ends."""

    offset: int
    begun: int
    ended: int = _NEVER
    refused: bool = False


@final
@attrs.define(eq=False)
class GroupChecks:
    """Checks the answers to members. `step` counts all requests and answers, so that events of one
    instant have an order too."""

    removals: Callable[[str], int] = _never
    """Returns how often a group was removed, with its numbers. A later group of that name begins at
    1."""
    expired: Callable[["Place"], Iterable[int]] = _nothing
    """Returns the offsets that the coordinator rightly removed because they were old."""
    step: int = 0
    history: list[SeenOffset] = attrs.Factory(list)
    owners: dict[tuple[Place, Generation], str] = attrs.Factory(dict)
    leaders: dict[tuple[str, Generation], str] = attrs.Factory(dict)
    generations: dict[str, Generation] = attrs.Factory(dict)
    """The highest generation of each group in an answer to a join."""
    began_with: dict[int, Generation] = attrs.Factory(dict)
    """The highest generation of the group when a request was asked, by its serial number."""
    commits: dict[Place, list[Commit]] = attrs.Factory(dict)
    delivered: dict[Place, dict[int, None]] = attrs.Factory(dict)
    """Offsets of the records that some member received."""
    open: dict[Request, int] = attrs.Factory(dict)
    """Requests that wait for an answer, with their API."""
    _waiting: dict[int, list[tuple[Place, Commit]]] = attrs.Factory(dict)
    _asked_at: dict[int, int] = attrs.Factory(dict)
    _answered: dict[Request, None] = attrs.Factory(dict)

    # --- what is said and heard -------------------------------------------------------------------

    def asked(self, process: int, key: int, body: Any, now: int) -> int:
        """Note a request that leaves; returns its serial number."""
        self.step += 1
        serial = self.step
        self._note(now, process, key, body, None, "")
        self._asked_at[serial] = serial
        if key in _ONCE:
            now_at = Generation(self.removals(body.group_id), 0)
            self.began_with[serial] = max(now_at, self.generations.get(body.group_id, now_at))
        elif key == ApiKey.OFFSET_COMMIT:
            begun = [(place, Commit(offset, serial)) for place, offset in _committed(body)]
            self._waiting[serial] = begun
            for place, commit in begun:
                self.commits.setdefault(place, []).append(commit)
        return serial

    def answered(
        self, process: int, serial: int, key: int, request: Any, body: Any, now: int
    ) -> Iterator[tuple[str, str]]:
        """Check an answer; yields (invariant, error or "") for each check."""
        self.step += 1
        code = getattr(body, "error_code", None)
        self._note(now, process, key, request, code if code is not None else 0, str(body)[:200])
        begun = self._asked_at.pop(serial)
        if key in _ONCE:
            yield "group-answered-once", ""
        if key == ApiKey.JOIN_GROUP:
            yield "group-generations-rise", self._joined(serial, request, body)
        elif key == ApiKey.SYNC_GROUP:
            yield "group-one-owner", self._synced(serial, request, body)
        elif key == ApiKey.OFFSET_COMMIT:
            self._commit_answered(serial, body)
        elif key == ApiKey.OFFSET_FETCH:
            yield "group-offsets-kept", self._fetched(begun, body)

    def closed(self, request: Request) -> None:
        """Note that a request is answered, or never will be."""
        if self.open.pop(request, None) in _ONCE:
            self._answered[request] = None

    def answered_again(self, request: Request) -> Iterator[tuple[str, str]]:
        """Check an answer for which no request of a group waits."""
        if request in self._answered:
            yield "group-answered-once", f"process {request[1]} hears twice of a request"

    def owes(self) -> str:
        """Returns the requests that are unanswered after all groups settled; "" for none.

        No JoinGroup or SyncGroup may wait on an open connection then.
        """
        left = [(key, request) for request, key in self.open.items() if key in _ONCE]
        return f"{left[:3]} were never answered" if left else ""

    # --- I-G1, I-G5 -------------------------------------------------------------------------------

    def _joined(self, serial: int, request: Any, body: Any) -> str:
        before = self.began_with.pop(serial)
        if body.error_code != ErrorCode.NONE:
            return ""
        group = request.group_id
        if self.removals(group) != before.removals:
            return ""  # the answer may be of either of the two groups
        generation = Generation(before.removals, body.generation_id)
        self.generations[group] = max(generation, self.generations.get(group, generation))
        if generation < before:
            return f"group {group} answers a join with {generation.number} after {before.number}"
        leads = body.leader == body.member_id and bool(body.members)
        if not leads:
            return ""
        me = request.group_instance_id or body.member_id
        known = self.leaders.setdefault((group, generation), me)
        if known != me:
            return f"generation {generation.number} of {group} is led by {known} and by {me}"
        return ""

    def _synced(self, serial: int, request: Any, body: Any) -> str:
        before = self.began_with.pop(serial)
        removals = self.removals(request.group_id)
        if body.error_code != ErrorCode.NONE or removals != before.removals:
            return ""
        generation = Generation(removals, request.generation_id)
        me = request.group_instance_id or request.member_id
        for topic, partition in decode_assignment(body.assignment):
            place = (request.group_id, topic, partition)
            owner = self.owners.setdefault((place, generation), me)
            if owner != me:
                return (
                    f"{topic}-{partition} belongs to {owner} and to {me} in generation"
                    f" {request.generation_id} of group {request.group_id}"
                )
        return ""

    # --- I-G2 -------------------------------------------------------------------------------------

    def _commit_answered(self, serial: int, body: Any) -> None:
        codes = {
            (topic.name, each.partition_index): each.error_code
            for topic in body.topics
            for each in topic.partitions
        }
        for place, commit in self._waiting.pop(serial):
            code = codes[place[1:]]
            if code == ErrorCode.NONE:
                commit.ended = self.step
            elif code in _CERTAINLY_NOT:
                commit.refused = True

    def _fetched(self, begun: int, body: Any) -> str:
        for group in body.groups:
            for topic in group.topics:
                for each in topic.partitions:
                    place = (group.group_id, topic.name, each.partition_index)
                    if not (group.error_code or each.error_code):
                        wrong = self._explained(place, begun, each.committed_offset)
                        if wrong:
                            return wrong
        return ""

    def _explained(self, place: Place, begun: int, offset: int) -> str:
        """Returns what is wrong with a fetched offset; "" for nothing.

        The offset is a register: a read returns a write that no other had replaced before the read
        began.
        """
        writes = [each for each in self.commits.get(place, ()) if not each.refused]
        done = [each for each in writes if each.ended < begun]
        if offset < 0:
            if not done:
                return ""
            last = max(done, key=lambda each: each.ended)
            if last.offset in self.expired(place):
                return ""
            return f"{place} is told to have no offset; {last.offset} was committed before"
        newest = max((each.begun for each in done), default=0)
        for each in writes:
            if each.offset == offset and each.ended > newest:
                return ""
        told = [each.offset for each in done][-3:]
        return f"{place} is told to be at {offset}; committed before were {told}, last of all"

    # --- at least once ----------------------------------------------------------------------------

    def given(self, group: str, topic: str, partition: int, offsets: Iterable[int]) -> None:
        """Note the records that a member received."""
        self.delivered.setdefault((group, topic, partition), {}).update(dict.fromkeys(offsets))

    def skipped(self, acknowledged: Mapping[tuple[int, int], str], topic: str) -> str:
        """Returns an acknowledged record that no member received though the group committed past
        it; or "".

        The topic must be one that loses no records.
        """
        for place, writes in sorted(self.commits.items()):
            end = max((each.offset for each in writes if each.ended < _NEVER), default=0)
            given = self.delivered.get(place, {})
            for partition, offset in acknowledged:
                mine = partition == place[2] and topic == place[1]
                if mine and offset < end and offset not in given:
                    return f"{place} is committed up to {end}, nobody was given {offset}"
        return ""

    def _note(
        self, now: int, process: int, key: int, request: Any, code: int | None, detail: str
    ) -> None:
        if len(self.history) < HISTORY_MAX:
            group = getattr(request, "group_id", "")
            self.history.append(SeenOffset(now, process, key, group, code, detail))


_CERTAINLY_NOT: Final = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.FENCED_INSTANCE_ID,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
)
"""Errors that refuse a commit before anything is proposed. After any other error the commit may
succeed all the same."""


def _committed(body: Any) -> Iterator[tuple[Place, int]]:
    for topic in body.topics:
        for each in topic.partitions:
            yield (body.group_id, topic.name, each.partition_index), each.committed_offset
