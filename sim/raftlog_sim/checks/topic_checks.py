"""Checks the answers to administrators' requests about topics.

An administrator is never told that a topic is missing, or exists, because of its own request. Nor
is it told of anything that no committed image has shown since it asked: a controller that fails
would take that back. No topic is created, grown or deleted unless a request for that may still be
under way.

A request without an answer, or with an unclear one, may be performed at any time: it counts as
under way forever. While two requests for one name are under way, either may be told of the other's
effect once that is committed.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

import attrs

from raftlog.base.binary import Buffer
from raftlog.base.errors import RaftlogError
from raftlog.kafka.codec import decode_request, decode_response
from raftlog.kafka.error_codes import ErrorCode, error_name
from raftlog.metadata.rules.topic_names import OFFSETS_TOPIC

if TYPE_CHECKING:
    from raftlog.metadata.image import ClusterImage

CREATE_TOPICS: Final = 19
DELETE_TOPICS: Final = 20
CREATE_PARTITIONS: Final = 37
KEYS: Final = frozenset((CREATE_TOPICS, DELETE_TOPICS, CREATE_PARTITIONS))
_UNDECIDED: Final = (
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_CONTROLLER,
)
_ANY: Final = -1
"""Stands for any number of partitions: nodes went on by several images at once."""
_WHAT: Final = {CREATE_TOPICS: "made", DELETE_TOPICS: "deleted", CREATE_PARTITIONS: "grown"}


@final
@attrs.define(eq=False)
class TopicChange:
    """A request's wish for one topic. `there` is the topic's number of partitions then, 0 for no
    topic. `alone` says that no other request for the topic has been under way since. `seen` is the
    place in `states` of what the topic was then."""

    key: int
    name: str
    count: int
    there: int
    alone: bool
    seen: int = 0


class TopicRequest(NamedTuple):
    """A request of an administrator that waits for its answer."""

    key: int
    version: int
    changes: tuple[TopicChange, ...]


@final
@attrs.define(eq=False)
class TopicChecks:
    """Checks answers about topics. `topics` are those of the newest image that any node showed:
    name to id and number of partitions. `under_way` holds, per name, the wishes that may be
    undecided. `states` are the numbers of partitions that a topic had, one after another."""

    version: int = 0
    topics: dict[str, tuple[bytes, int]] = attrs.Factory(dict)
    under_way: dict[str, list[TopicChange]] = attrs.Factory(dict)
    states: dict[str, list[int]] = attrs.Factory(dict)

    def show(self, image: "ClusterImage") -> str:
        """Compare an image that a node shows with the wishes; returns an error or ""."""
        if image.version <= self.version:
            return ""
        skipped = image.version > self.version + 1
        self.version, before = image.version, self.topics
        self.topics = {
            topic.name: (topic.topic_id, len(topic.partitions)) for topic in image.topics.values()
        }
        for name in {**before, **self.topics, **self.under_way}:
            self._note(name, skipped=skipped)
            wrong = self._changed(name, before.get(name), self.topics.get(name))
            if wrong:
                return f"{wrong} in version {image.version}, and nobody waits for that"
        return ""

    def asked(self, frame: Buffer) -> TopicRequest | None:
        """Note a client's request; None when it would change nothing, or is not whole."""
        try:
            decoded = decode_request(frame)
        except RaftlogError:
            return None
        wanted = list(_wanted(decoded.api_key, decoded.body))
        changes = [self._begun(decoded.api_key, name, count) for name, count in wanted]
        return TopicRequest(decoded.api_key, decoded.api_version, tuple(changes))

    def answered(self, request: TopicRequest, frame: bytes) -> Iterator[tuple[str, str]]:
        """Yields (invariant, error or "") for each part of the answer that can be judged."""
        body = decode_response(request.key, request.version, frame).body
        for change, code in zip(request.changes, _codes(request.key, body), strict=True):
            if code in _UNDECIDED:
                continue
            self.under_way[change.name].remove(change)
            seen = self.states[change.name][change.seen :]
            yield "told-of-committed", _unfounded(change, code, seen)
            if change.alone:
                yield "denied-rightly", _denied(change, code)

    def _begun(self, key: int, name: str, count: int) -> TopicChange:
        others = self.under_way.setdefault(name, [])
        for other in others:
            other.alone = False
        there = self.topics.get(name, (b"", 0))[1]
        seen = len(self.states.setdefault(name, [there])) - 1
        change = TopicChange(key, name, count, there, alone=not others, seen=seen)
        others.append(change)
        return change

    def _note(self, name: str, *, skipped: bool) -> None:
        """Note what a topic is now, and before that whatever it was in images that were skipped."""
        states = self.states.setdefault(name, [0])
        now = self.topics.get(name, (b"", 0))[1]
        states.extend([_ANY, now] if skipped else [now] if states[-1] != now else [])

    def _changed(
        self, name: str, before: tuple[bytes, int] | None, now: tuple[bytes, int] | None
    ) -> str:
        if before == now:
            return ""
        if name == OFFSETS_TOPIC and before is None:
            return ""  # a client that looks for a coordinator creates it
        asked = frozenset(change.key for change in self.under_way.get(name, ()))
        if before is not None and (now is None or now[0] != before[0]):
            return "" if DELETE_TOPICS in asked else f"topic {name} was deleted"
        if before is None:
            return "" if CREATE_TOPICS in asked else f"topic {name} was made"
        return "" if CREATE_PARTITIONS in asked else f"topic {name} was grown"


def _denied(change: TopicChange, code: int) -> str:
    if change.key == CREATE_TOPICS:
        wrong = code == ErrorCode.TOPIC_ALREADY_EXISTS and not change.there
    elif change.key == DELETE_TOPICS:
        wrong = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and change.there > 0
    else:
        wrong = (code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and change.there > 0) or (
            code == ErrorCode.INVALID_PARTITIONS and 0 < change.there < change.count
        )
    if not wrong:
        return ""
    return (
        f"who alone wants topic {change.name} {_WHAT[change.key]} hears {error_name(code)}; it had"
        f" {change.there} partitions"
    )


def _unfounded(change: TopicChange, code: int, seen: list[int]) -> str:
    """Returns what is wrong with an answer of which no state bears out what it says; "" for
    nothing. `seen` are the states of the topic from the question on."""
    if _ANY in seen:
        return ""
    always, never = min(seen) > 0, max(seen) == 0
    if change.key == CREATE_TOPICS:
        wrong = code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS) and never
    elif change.key == DELETE_TOPICS:
        wrong = code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) and always
    elif code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        wrong = always
    else:
        grown = code in (ErrorCode.NONE, ErrorCode.INVALID_PARTITIONS)
        wrong = grown and always and max(seen) < change.count
    if not wrong:
        return ""
    return (
        f"who wants topic {change.name} {_WHAT[change.key]}, with {change.count} partitions, hears"
        f" {error_name(code)}; images that were shown since it asked had {seen} partitions"
    )


def _wanted(key: int, body: Any) -> Iterator[tuple[str, int]]:
    """Yields the names that a request would change, and how many partitions they would have."""
    if key == DELETE_TOPICS:
        yield from ((topic.name or "", 0) for topic in body.topics)
        yield from ((name, 0) for name in body.topic_names)
    elif not body.validate_only:
        counts = "num_partitions" if key == CREATE_TOPICS else "count"
        yield from ((topic.name, getattr(topic, counts)) for topic in body.topics)


def _codes(key: int, body: Any) -> list[int]:
    """Returns the error codes of an answer, in the order of the request's topics."""
    parts = {CREATE_TOPICS: "topics", DELETE_TOPICS: "responses", CREATE_PARTITIONS: "results"}
    return [part.error_code for part in getattr(body, parts[key])]
