"""What a call can end in, besides its result. Each says whether the cluster may have acted.

* `KafkaError`: a broker answered with an error code; it did not do what was asked.
* `NotDone`: nothing was asked of any broker, or all of them refused; safe to call again.
* `OutcomeUnknown`: the cluster may or may not have done it; ask it before calling again.
"""

from typing import final

from raftlog.base.errors import OperatingError, RemoteError
from raftlog.kafka.error_codes import ErrorCode, error_name, is_retriable


@final
class KafkaError(RemoteError):
    """A broker's refusal; `code` is Kafka's number."""

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
    """The request may or may not have been carried out."""


@final
class NotSent(RemoteError):
    """The request has certainly not reached the broker."""


@final
class NotDone(RemoteError):
    """Time was up, and certainly nothing happened."""


@final
class OutcomeUnknown(RemoteError):
    """Time was up or the connection broke after the request had left: it may still take effect."""


@final
class CommitFailed(RemoteError):
    """The coordinator refused a commit, since the group has gone on: `code` is Kafka's number. The
    partitions may belong to other members now, which begin at the offsets committed before."""

    def __init__(self, code: int, *, on: str = "") -> None:
        super().__init__(
            f"the offsets were not committed: {error_name(code)}: {_message_of(code)}",
            on=on,
            do="poll again: it joins the group and reads on from the committed offsets",
        )
        self.code = code


@final
class NoOffset(OperatingError):
    """There is no offset to begin at, and auto_offset_reset says that none shall be chosen."""


@final
class BufferFull(OperatingError):
    """More bytes wait for acknowledgement than the client may hold."""


@final
class LogTruncated(RemoteError):
    """The log no longer holds what was read from it: acknowledged records were lost."""


def _message_of(code: int) -> str:
    known = ErrorCode._value2member_map_.get(code)
    return known.message if isinstance(known, ErrorCode) else "an error that we do not know"
