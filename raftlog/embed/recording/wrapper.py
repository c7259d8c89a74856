"""An object that stands for another one. Methods that a subclass does not define are the
original's.

`isinstance` sees the original's class. Attributes are read, set and deleted on the original. A
`with` block that would return the original returns the stand-in instead.
"""

from types import TracebackType
from typing import Any, Final

from raftlog.base.errors import LocalMisuse
from raftlog.embed.recording.door import Identify, SeenRecord, identity_of
from raftlog.embed.recording.history import Recording
from raftlog.embed.recording.operations import Reading, RecordedCall, Seats

_OWN: Final = ("_raftlog_original", "_raftlog_history", "_raftlog_identify", "_raftlog_seats")


class Recorded:
    """The base of all stand-ins."""

    _raftlog_original: Any
    _raftlog_history: Recording
    _raftlog_identify: Identify
    _raftlog_seats: Seats

    def __init__(self, original: Any, history: Recording, identify: Identify) -> None:
        own = (original, history, identify, Seats())
        for name, value in zip(_OWN, own, strict=True):
            object.__setattr__(self, name, value)

    # --- what is recorded -------------------------------------------------------------------------

    def _sending(
        self, topic: Any, partition: int | None, key: Any, value: Any, headers: Any
    ) -> RecordedCall | None:
        """Record a send before it happens. None when its topic is not recorded, or is no text, so
        that the library will refuse the call."""
        history = self._raftlog_history
        if not isinstance(topic, str) or not history.records(topic):
            return None
        identity = identity_of(SeenRecord(topic, key, value, headers), self._raftlog_identify)
        return history.begin_send(self._raftlog_seats, topic, partition, identity)

    def _reading(self) -> Reading:
        return Reading(self._raftlog_history.begin(self._raftlog_seats, "poll"))

    def _seek(self) -> None:
        """Note that the application moved this consumer: its next records need not follow the last
        ones."""
        self._raftlog_seats.leave()

    # --- as the original --------------------------------------------------------------------------

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self._raftlog_original)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._raftlog_original, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._raftlog_original, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._raftlog_original, name)

    def __dir__(self) -> list[str]:
        return dir(self._raftlog_original)

    def __repr__(self) -> str:
        return f"<recorded {self._raftlog_original!r}>"

    def __len__(self) -> int:
        return len(self._raftlog_original)

    def __bool__(self) -> bool:
        return bool(self._raftlog_original)

    def __iter__(self) -> Any:
        return self._instead(iter(self._raftlog_original))

    def __next__(self) -> Any:
        return next(self._raftlog_original)

    def __aiter__(self) -> Any:
        return self._instead(aiter(self._raftlog_original))

    async def __anext__(self) -> Any:
        return await anext(self._raftlog_original)

    def __enter__(self) -> Any:
        return self._instead(self._raftlog_original.__enter__())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Any:
        return self._raftlog_original.__exit__(kind, error, trace)

    async def __aenter__(self) -> Any:
        return self._instead(await self._raftlog_original.__aenter__())

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> Any:
        return await self._raftlog_original.__aexit__(kind, error, trace)

    def _instead(self, given: Any) -> Any:
        return self if given is self._raftlog_original else given


def not_recorded(method: str, do: str) -> Any:
    """A method that is refused, because it sends records that the recorder cannot see. Consumers
    would read records that the history does not have as sent."""

    def refuse(self: Recorded, *args: Any, **more: Any) -> Any:
        del args, more
        raise LocalMisuse(f"{method} is not recorded", on=repr(self), do=do)

    refuse.__name__ = method.rpartition(".")[2]
    return refuse


ONE_BY_ONE: Final = "send the records one by one"
NO_TRANSACTIONS: Final = "use a producer without transactional.id; transactions are not recorded"
