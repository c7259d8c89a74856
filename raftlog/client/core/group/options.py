"""How a member of a group behaves."""

from typing import Annotated, Any, Final, final

import attrs

from raftlog.base.arguments import between, check
from raftlog.base.errors import WrongValue
from raftlog.base.limits import INT32_MAX
from raftlog.base.units import Nanos, millis
from raftlog.client.core.group.assignors import ASSIGNORS, Assignor

RESETS: Final = ("earliest", "latest", "none")
Millis = Annotated[int, between(1, INT32_MAX)]


@final
@attrs.frozen(kw_only=True)
class ConsumerOptions:
    """How a consumer behaves. Names and defaults are Kafka's."""

    group_id: str | None = None
    """The group to join. Without one nothing is committed, and partitions are assigned by hand."""
    group_instance_id: str | None = None
    """The name of a static member. Such a member keeps its partitions if it comes back before its
    session ends."""
    partition_assignment_strategy: tuple[str, ...] = ("range", "cooperative-sticky")
    """The assignors, the preferred one first. The group takes the first that all members know. A
    rebalance stops all members ("eager") unless "cooperative-sticky" is the only one."""
    auto_offset_reset: str = "latest"
    """Where to begin when there is no committed offset or its record is gone: "earliest", "latest",
    or "none" to raise an error."""
    enable_auto_commit: bool = True
    """Commit the records of earlier polls automatically: during a poll, when a rebalance begins,
    and at `close`."""
    auto_commit_interval_ms: int = 5_000
    session_timeout_ms: int = 45_000
    """The coordinator removes a member that it has not heard from for so long, in milliseconds."""
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    """A member that has not polled for so long, in milliseconds, leaves the group. In a rebalance
    the other members wait for it at most this long."""
    max_poll_records: int = 500

    def __attrs_post_init__(self) -> None:
        for field in attrs.fields(ConsumerOptions):
            check(field.name, getattr(self, field.name), _TYPES.get(field.name, Millis))
        for name in ("group_id", "group_instance_id"):
            if getattr(self, name) == "":
                raise WrongValue(f"{name} must not be empty")
        if self.group_instance_id is not None and self.group_id is None:
            raise WrongValue("group_instance_id needs a group_id")
        if self.auto_offset_reset not in RESETS:
            raise WrongValue(
                f"auto_offset_reset must be one of {', '.join(RESETS)}, "
                f"not {self.auto_offset_reset!r}"
            )
        names = self.partition_assignment_strategy
        if not names or len(set(names)) < len(names):
            raise WrongValue("partition_assignment_strategy must name each way to assign once")
        for name in names:
            if name not in ASSIGNORS:
                raise WrongValue(
                    f"partition_assignment_strategy must be of {', '.join(ASSIGNORS)}, not {name!r}"
                )
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise WrongValue(
                "heartbeat_interval_ms must be below session_timeout_ms",
                do="a third of it leaves room for two lost heartbeats",
            )

    @property
    def assignors(self) -> list[Assignor]:
        return [ASSIGNORS[name] for name in self.partition_assignment_strategy]

    @property
    def cooperative(self) -> bool:
        """Whether members keep reading during a rebalance. All assignors must be cooperative for
        that."""
        return all(each.cooperative for each in self.assignors)

    @property
    def session_timeout_ns(self) -> Nanos:
        return millis(self.session_timeout_ms)

    @property
    def heartbeat_interval_ns(self) -> Nanos:
        return millis(self.heartbeat_interval_ms)

    @property
    def max_poll_interval_ns(self) -> Nanos:
        return millis(self.max_poll_interval_ms)

    @property
    def auto_commit_interval_ns(self) -> Nanos:
        return millis(self.auto_commit_interval_ms)


_TYPES: Final[dict[str, Any]] = {
    "group_id": str | None,
    "group_instance_id": str | None,
    "partition_assignment_strategy": tuple[str, ...],
    "auto_offset_reset": str,
    "enable_auto_commit": bool,
}
