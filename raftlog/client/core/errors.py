"""The errors in which a call can end. Each says whether the cluster may have acted.

* `KafkaError`: a broker answered with an error code; it did not do what was asked.
* `NotDone`: nothing was asked of any broker, or all of them refused; safe to call again.
* `OutcomeUnknown`: the cluster may or may not have done it; ask it before calling again.
"""

from typing import final

from raftlog.base.errors import OperatingError, RemoteError
from raftlog.kafka.error_codes import ErrorCode, error_name, is_retriable


@final
class KafkaError(RemoteError):
    """A broker answered with an error and did not do what was asked; `code` is Kafka's number."""

    def __init__(
        self, code: int, *, on: str = "", message: str | None = None, do: str = ""
    ) -> None:
        text = message or _message_of(code)
        super().__init__(f"{error_name(code)}: {text}", on=on, do=do)
        self.code = code
        self.text = text

    @property
    def retriable(self) -> bool:
        """Whether Kafka calls the condition temporary."""
        return is_retriable(self.code)


@final
class ConnectionLost(RemoteError):
    """The connection broke after the request had left: the broker may have carried it out or
    not."""


@final
class NotSent(RemoteError):
    """The request certainly did not reach the broker."""


@final
class NotDone(RemoteError):
    """The time was up, and the cluster certainly did nothing."""


@final
class OutcomeUnknown(RemoteError):
    """Time was up or the connection broke after the request had left: it may still take effect."""


@final
class CommitFailed(RemoteError):
    """The coordinator refused a commit, because the group has rebalanced without this member. Other
    members may have its partitions now; they begin at the offsets committed before. `code` is
    Kafka's number."""

    def __init__(self, code: int, *, on: str = "") -> None:
        super().__init__(
            f"the offsets were not committed: {error_name(code)}: {_message_of(code)}",
            on=on,
            do="poll again: it joins the group and reads on from the committed offsets",
        )
        self.code = code


@final
class NoOffset(OperatingError):
    """A partition has no committed offset to begin at, and `auto_offset_reset` is "none"."""


@final
class BufferFull(OperatingError):
    """The records that wait for acknowledgement fill `buffer_bytes`."""


@final
class LogTruncated(RemoteError):
    """The log no longer holds records that this client has read: the cluster lost acknowledged
    records."""


def _message_of(code: int) -> str:
    known = ErrorCode._value2member_map_.get(code)
    return known.message if isinstance(known, ErrorCode) else "an error that we do not know"
