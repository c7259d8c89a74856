"""Hypothesis strategies for what the records of `__consumer_offsets` may say."""

from hypothesis import strategies as st

from raftlog.groups.records import floor_record, group_record, offset_record
from raftlog.groups.stored import StoredGroup, StoredMember, StoredOffset
from raftlog.kafka.shape import ZERO_ID

groups = st.sampled_from(["g", "h", "", "gr\u00fcn"])
topics = st.sampled_from(["t", "u", "v-1"])
texts = st.text(max_size=8)
nullable = st.none() | texts
i32 = st.integers(-(2**31), 2**31 - 1)
i64 = st.integers(-(2**63), 2**63 - 1)

stored_offsets = st.builds(
    StoredOffset,
    offset=i64,
    leader_epoch=i32,
    metadata=texts,
    commit_ms=i64,
    expire_ms=st.just(-1),
    topic_id=st.just(ZERO_ID) | st.binary(min_size=16, max_size=16),
)
stored_members = st.builds(
    StoredMember,
    member_id=texts,
    instance_id=nullable,
    client_id=texts,
    client_host=texts,
    rebalance_timeout_ms=i32,
    session_timeout_ms=i32,
    subscription=st.binary(max_size=8),
    assignment=st.binary(max_size=8),
)
stored_groups = st.builds(
    StoredGroup,
    protocol_type=texts,
    generation=i32,
    protocol=nullable,
    leader=nullable,
    state_ms=i64,
    members=st.lists(stored_members, max_size=3).map(tuple),
)
partitions = st.integers(0, 2)
records = st.one_of(
    st.builds(offset_record, groups, topics, partitions, st.none() | stored_offsets),
    st.builds(group_record, groups, st.none() | stored_groups),
    st.builds(floor_record, groups, st.none() | i32),
)
