"""Calls that are recorded: which process number each has, and how it ends."""

from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, final

if TYPE_CHECKING:
    from collections.abc import Callable


class OpenHistory(Protocol):
    """The recording that an operation belongs to."""

    def end(
        self, ended: "RecordedCall", kind: str, *, value: Any = None, key: str | None = None
    ) -> None: ...
    def acknowledged(self, key: str, offset: int) -> None: ...
    def put_off(self, ended: "RecordedCall", kind: str, error: str) -> None: ...


@final
class Seats:
    """The free process numbers of one client."""

    def __init__(self) -> None:
        self._free: list[int] = []

    def take(self) -> int | None:
        """Take the number that became free last; None if none is free."""
        return self._free.pop() if self._free else None

    def give_back(self, process: int) -> None:
        self._free.append(process)

    def leave(self) -> None:
        """Give up the free numbers, so that the client begins with new ones."""
        self._free.clear()


@final
class RecordedCall:
    """A recorded call. Its first end counts; later ones are ignored."""

    def __init__(
        self, history: OpenHistory, seats: Seats, process: int, f: str, key: str, value: Any
    ) -> None:
        self.history = history
        self.value = value
        self.seats = seats
        self.process = process
        self.f = f
        self.key = key
        self.unsure = ""
        """Why an earlier attempt may have been written, if any was of unknown outcome."""
        self.look: Callable[[], None] | None = None
        """Ends the operation if its client knows the outcome already, though it has not told."""

    def ok(self, value: Any, *, key: str | None = None) -> None:
        """End the call: it happened."""
        self.history.end(self, "ok", value=value, key=key)

    def sent(self, topic: str, partition: int, offset: int | None) -> None:
        """End a send: the record was acknowledged at this place. The offset is None with acks=0."""
        if offset is None or offset < 0:
            self.info("acknowledged without an offset, as acks=0 is")
            return
        key = f"{topic}/{partition}"
        self.history.acknowledged(key, offset)
        self.ok([offset, self.value], key=key)

    def fail(self, error: object) -> None:
        """End the call: it certainly did not happen and never will."""
        self.history.put_off(self, "fail", _told(error))

    def info(self, error: object) -> None:
        """End the call: it may have happened, or may still happen. This is for timeouts, lost
        connections and all other errors."""
        self.history.put_off(self, "info", _told(error))


@final
class Reading:
    """A poll. `with` records its call and its return. The block puts the polled records into
    `found`: topic partition -> pairs of offset and identity."""

    def __init__(self, polling: RecordedCall) -> None:
        self._polling = polling
        self.found: dict[str, list[list[Any]]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        del kind, trace
        # StopIteration is no failure: the iterator has read and found nothing.
        if error is None or isinstance(error, StopIteration | StopAsyncIteration):
            self._polling.ok(self.found)
        else:
            self._polling.info(error)


def _told(error: object) -> str:
    return (error if isinstance(error, str) else repr(error))[:500]
