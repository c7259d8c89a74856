"""Hypothesis strategies for every command and request: any value that a wire could carry."""

from hypothesis import strategies as st

from raftlog.base.entries import Membership
from raftlog.base.ids import ReplicaId
from raftlog.metadata import commands as c
from raftlog.metadata import requests as r
from raftlog.metadata.broker_image import BrokerListener
from raftlog.metadata.performed import OnceId
from raftlog.metadata.refusals import Refusal
from raftlog.metadata.settings.broker_settings import EVERY_BROKER
from raftlog.metadata.settings.config_changes import ConfigChange, ConfigOperation

nodes = st.integers(0, 2**31 - 1)
owners = st.one_of(st.just(EVERY_BROKER), nodes)
directories = st.integers(1, 2**64 - 1)
u16 = st.integers(0, 2**16 - 1)
u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
terms = st.integers(0, 2**31 - 1)
ids = st.binary(min_size=16, max_size=16).filter(any)
texts = st.text(max_size=12)
replicas = st.builds(ReplicaId, nodes, directories, u64)
replica_sets = st.lists(replicas, max_size=4, unique=True).map(lambda some: tuple(sorted(some)))
memberships = st.builds(Membership, replica_sets, replica_sets, replica_sets, replica_sets)
listeners = st.builds(BrokerListener, name=texts, host=texts, port=u16, protocol=texts)
configs = st.lists(st.tuples(texts, texts), max_size=3).map(tuple)
assignments = st.lists(st.tuples(nodes, directories), max_size=5).map(tuple)
many_assignments = st.lists(assignments, max_size=3).map(tuple)

registrations = st.builds(
    c.RegisterBroker,
    node=nodes,
    directory=directories,
    boot=u64,
    incarnation=u64,
    listeners=st.lists(listeners, max_size=2).map(tuple),
    peer_host=texts,
    peer_port=u16,
    rack=texts,
    level_min=u16,
    level_max=u16,
)
reports = st.builds(
    c.ReportMembership,
    group=u64,
    term=terms,
    membership_index=u64,
    serial=u64,
    membership=memberships,
    leader=st.none() | replicas,
    in_sync=replica_sets,
    target_version=u64,
)

commands = st.one_of(
    st.builds(c.FoundCluster, cluster_id=ids, controllers=replica_sets, feature_level=u16),
    registrations,
    st.builds(c.CondemnDirectory, node=nodes, directory=directories),
    st.builds(c.FenceBroker, node=nodes, epoch=u64),
    st.builds(c.UnfenceBroker, node=nodes, epoch=u64),
    st.builds(c.UnregisterBroker, node=nodes),
    st.builds(c.ChangeController, node=nodes, directory=directories, votes=st.booleans()),
    st.builds(
        c.CreateTopic,
        topic_id=ids,
        name=texts,
        internal=st.booleans(),
        configs=configs,
        assignments=many_assignments,
    ),
    st.builds(c.DeleteTopic, topic_id=ids),
    st.builds(c.CreatePartitions, topic_id=ids, count_before=u32, assignments=many_assignments),
    st.builds(
        c.SetTarget, topic_id=ids, partition=u32, assignment=assignments, if_target_version=u64
    ),
    st.builds(c.ReplaceReplica, group=u64, lost=replicas),
    reports,
    st.builds(
        c.ConfirmRemoved,
        node=nodes,
        directory=directories,
        removed=st.lists(st.tuples(u64, u64), max_size=3).map(tuple),
    ),
    st.builds(c.AllocateProducerIds, node=nodes, count=u32),
    st.builds(
        c.AlterTopicConfigs,
        topic_id=ids,
        changed=configs,
        removed=st.lists(texts, max_size=2).map(tuple),
    ),
    st.builds(
        c.AlterBrokerConfigs,
        owner=owners,
        changed=configs,
        removed=st.lists(texts, max_size=2).map(tuple),
    ),
    st.builds(c.RaiseFeatureLevel, level=u16),
    st.builds(c.CompareDigest, version=u64, digest=st.binary(max_size=32)),
    st.builds(c.SnapshotImage, snapshot=st.binary(max_size=40)),
    st.builds(c.CloseRequest, refusal=st.none() | st.sampled_from(Refusal)),
)

once_ids = st.builds(OnceId, node=nodes, incarnation=u64, number=u64, settled=u64)

node_lists = st.lists(nodes, max_size=5).map(tuple)
performable = st.one_of(
    st.builds(r.SubmitCommand, command=commands),
    st.builds(
        r.NewTopicRequest,
        topic_id=ids,
        name=texts,
        internal=st.booleans(),
        count=u32,
        factor=u16,
        nodes=st.lists(node_lists, max_size=2).map(tuple),
        configs=configs,
        validate_only=st.booleans(),
    ),
    st.builds(
        r.GrowTopicRequest,
        topic_id=ids,
        count=u32,
        nodes=st.lists(node_lists, max_size=2).map(tuple),
        validate_only=st.booleans(),
    ),
    st.builds(
        r.AlterTopicRequest,
        topic_id=ids,
        changes=st.lists(
            st.builds(ConfigChange, st.sampled_from(ConfigOperation), texts, texts), max_size=3
        ).map(tuple),
        replace=st.booleans(),
        validate_only=st.booleans(),
    ),
    st.builds(
        r.AlterBrokerRequest,
        owner=owners,
        changes=st.lists(
            st.builds(ConfigChange, st.sampled_from(ConfigOperation), texts, texts), max_size=3
        ).map(tuple),
        replace=st.booleans(),
        validate_only=st.booleans(),
    ),
    st.builds(r.PreferLeaderRequest, topic_id=ids, partition=u32),
    st.builds(
        r.ReassignRequest, topic_id=ids, partition=u32, nodes=node_lists, same_factor=st.booleans()
    ),
)
requests = st.one_of(
    performable,
    st.builds(
        r.OnceRequest,
        incarnation=u64,
        number=u64,
        settled=u64,
        again=st.booleans(),
        request=performable,
    ),
    registrations,
    st.builds(r.DescribeQuorum),
    st.builds(
        r.Heartbeat, node=nodes, directory=directories, boot=u64, incarnation=u64, version=u64
    ),
    st.builds(r.Reports, reports=st.lists(reports, max_size=2).map(tuple)),
    st.just(r.CurrentVersion()),
    st.builds(r.ShownEverywhere, version=u64, wait_ns=u64),
)
