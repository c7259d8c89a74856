"""The settings of one RaftNode, with their defaults."""

from typing import final

import attrs

from raftlog.base import limits
from raftlog.base.units import Nanos, millis
from raftlog.raft.throttle import Throttling


@final
@attrs.frozen(kw_only=True)
class RaftOptions:
    """Times are nanoseconds. An election timeout is drawn from `election_ns` to twice that.

    `eager_commit`: followers are told of a commit in the turn in which it moved (the metadata
    group, where every broker waits for it), not with the next append or heartbeat.
    `lease_ns`: how long a voter that echoed a read round elects nobody else; 0, no leases: every
    read costs a round. See raftlog.raft.lease for what it takes for granted. `earlier_lease_ns`:
    the longest that an earlier boot may have promised, with other settings.
    `throttling`: what paces the entries that this replica sends to learners; None, nothing does.
    """

    heartbeat_ns: Nanos = millis(100)
    election_ns: Nanos = millis(500)
    pre_vote: bool = True
    check_quorum: bool = True
    eager_commit: bool = False
    lease_ns: Nanos = Nanos(0)
    earlier_lease_ns: Nanos = Nanos(0)
    append_bytes_max: int = limits.APPEND_BYTES_MAX
    appends_in_flight_max: int = limits.APPENDS_IN_FLIGHT_MAX
    inflight_bytes_max: int = limits.INFLIGHT_BYTES_MAX
    reads_pending_max: int = limits.READS_PENDING_MAX
    install_chunk_bytes: int = limits.INSTALL_CHUNK_BYTES
    promote_lag_max: int = limits.PROMOTE_LAG_MAX
    throttling: Throttling | None = None

    def __attrs_post_init__(self) -> None:
        assert 0 < self.heartbeat_ns < self.election_ns, (self.heartbeat_ns, self.election_ns)
        assert 0 <= self.lease_ns <= self.election_ns, (self.lease_ns, self.election_ns)
        assert self.appends_in_flight_max >= 1, self.appends_in_flight_max
        assert self.install_chunk_bytes >= 1, self.install_chunk_bytes
