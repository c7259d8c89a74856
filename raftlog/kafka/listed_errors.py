"""Makes error answers of APIs whose response has codes only beside its items, from one table.

A client without an answer loses its connection and learns nothing: kafka-go said "unexpected EOF".
So every API that has a schema has a place here, or a code of its own, whether it is served or not.
A test asks for all of them.
"""

from typing import Any, Final, NamedTuple, final

from raftlog.kafka.messages import (
    alter_client_quotas,
    alter_configs,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    create_acls,
    delete_acls,
    delete_groups,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    elect_leaders,
    incremental_alter_configs,
    txn_offset_commit,
    write_txn_markers,
)

_ITSELF: Final = ""
_RESOURCE: Final = (("resource_type", "resource_type"), ("resource_name", "resource_name"))


@final
class _Listed(NamedTuple):
    """Makes one list of an answer: `made(...)` in `answered` for each item of the list `asked`.

    `same` pairs a field of the made item with the field that it repeats, or with the asked item
    itself. The codes stand in the items of `inner`, where there is one.
    """

    asked: str
    answered: str
    made: Any
    same: tuple[tuple[str, str], ...]
    inner: "_Listed | None" = None


def _partitions(asked: str, made: Any, number: str = _ITSELF) -> _Listed:
    return _Listed(asked, "partitions", made, (("partition_index", number),))


_ELECTED: Final = _Listed(
    "topic_partitions",
    "replica_election_results",
    elect_leaders.ReplicaElectionResult,
    (("topic", "topic"),),
    _Listed(
        "partitions",
        "partition_result",
        elect_leaders.PartitionResult,
        (("partition_id", _ITSELF),),
    ),
)
_MARKED: Final = write_txn_markers.WritableTxnMarkerPartitionResult
_COMMITTED: Final = txn_offset_commit.TxnOffsetCommitResponsePartition
_MOVED: Final = alter_replica_log_dirs.AlterReplicaLogDirPartitionResult
_SCRAM: Final = alter_user_scram_credentials.AlterUserScramCredentialsResult

_TABLE: Final[dict[type, tuple[Any, tuple[_Listed, ...]]]] = {
    alter_configs.AlterConfigsRequest: (
        alter_configs.AlterConfigsResponse,
        (_Listed("resources", "responses", alter_configs.AlterConfigsResourceResponse, _RESOURCE),),
    ),
    incremental_alter_configs.IncrementalAlterConfigsRequest: (
        incremental_alter_configs.IncrementalAlterConfigsResponse,
        (
            _Listed(
                "resources",
                "responses",
                incremental_alter_configs.AlterConfigsResourceResponse,
                _RESOURCE,
            ),
        ),
    ),
    alter_client_quotas.AlterClientQuotasRequest: (
        alter_client_quotas.AlterClientQuotasResponse,
        (
            _Listed(
                "entries",
                "entries",
                alter_client_quotas.EntryDataResponse,
                (),
                _Listed(
                    "entity",
                    "entity",
                    alter_client_quotas.EntityDataResponse,
                    (("entity_type", "entity_type"), ("entity_name", "entity_name")),
                ),
            ),
        ),
    ),
    alter_user_scram_credentials.AlterUserScramCredentialsRequest: (
        alter_user_scram_credentials.AlterUserScramCredentialsResponse,
        (
            _Listed("deletions", "results", _SCRAM, (("user", "name"),)),
            _Listed("upsertions", "results", _SCRAM, (("user", "name"),)),
        ),
    ),
    create_acls.CreateAclsRequest: (
        create_acls.CreateAclsResponse,
        (_Listed("creations", "results", create_acls.AclCreationResult, ()),),
    ),
    delete_acls.DeleteAclsRequest: (
        delete_acls.DeleteAclsResponse,
        (_Listed("filters", "filter_results", delete_acls.DeleteAclsFilterResult, ()),),
    ),
    delete_groups.DeleteGroupsRequest: (
        delete_groups.DeleteGroupsResponse,
        (
            _Listed(
                "groups_names",
                "results",
                delete_groups.DeletableGroupResult,
                (("group_id", _ITSELF),),
            ),
        ),
    ),
    describe_groups.DescribeGroupsRequest: (
        describe_groups.DescribeGroupsResponse,
        (_Listed("groups", "groups", describe_groups.DescribedGroup, (("group_id", _ITSELF),)),),
    ),
    describe_transactions.DescribeTransactionsRequest: (
        describe_transactions.DescribeTransactionsResponse,
        (
            _Listed(
                "transactional_ids",
                "transaction_states",
                describe_transactions.TransactionState,
                (("transactional_id", _ITSELF),),
            ),
        ),
    ),
    describe_topic_partitions.DescribeTopicPartitionsRequest: (
        describe_topic_partitions.DescribeTopicPartitionsResponse,
        (
            _Listed(
                "topics",
                "topics",
                describe_topic_partitions.DescribeTopicPartitionsResponseTopic,
                (("name", "name"),),
            ),
        ),
    ),
    describe_producers.DescribeProducersRequest: (
        describe_producers.DescribeProducersResponse,
        (
            _Listed(
                "topics",
                "topics",
                describe_producers.TopicResponse,
                (("name", "name"),),
                _partitions("partition_indexes", describe_producers.PartitionResponse),
            ),
        ),
    ),
    txn_offset_commit.TxnOffsetCommitRequest: (
        txn_offset_commit.TxnOffsetCommitResponse,
        (
            _Listed(
                "topics",
                "topics",
                txn_offset_commit.TxnOffsetCommitResponseTopic,
                (("name", "name"),),
                _partitions("partitions", _COMMITTED, "partition_index"),
            ),
        ),
    ),
    write_txn_markers.WriteTxnMarkersRequest: (
        write_txn_markers.WriteTxnMarkersResponse,
        (
            _Listed(
                "markers",
                "markers",
                write_txn_markers.WritableTxnMarkerResult,
                (("producer_id", "producer_id"),),
                _Listed(
                    "topics",
                    "topics",
                    write_txn_markers.WritableTxnMarkerTopicResult,
                    (("name", "name"),),
                    _partitions("partition_indexes", _MARKED),
                ),
            ),
        ),
    ),
}


def listed_error(request: Any, code: int, message: str | None) -> Any:
    """The answer with `code` in every item; None when the request is not in this table.

    Also None when the request names no item: an answer without any code would read as success.
    """
    if isinstance(request, alter_replica_log_dirs.AlterReplicaLogDirsRequest):
        return _log_dirs(request, code)
    if isinstance(request, elect_leaders.ElectLeadersRequest):
        # Version 0 has no code at the top. Later versions do, also for a request of all partitions.
        asked = () if request.topic_partitions is None else _items(_ELECTED, request, code, message)
        return elect_leaders.ElectLeadersResponse(error_code=code, replica_election_results=asked)
    if isinstance(request, describe_log_dirs.DescribeLogDirsRequest):
        # Versions before 3 have no code at the top.
        result = describe_log_dirs.DescribeLogDirsResult(code)
        return describe_log_dirs.DescribeLogDirsResponse(error_code=code, results=[result])
    response, lists = _TABLE.get(type(request), (None, ()))
    if not any(_names(listed, request) for listed in lists):
        return None
    answered: dict[str, list[Any]] = {}
    for listed in lists:
        answered.setdefault(listed.answered, []).extend(_items(listed, request, code, message))
    return response(**answered)


def _names(listed: _Listed, holder: Any) -> bool:
    """Whether any item would get a code."""
    inner = listed.inner
    items = getattr(holder, listed.asked)
    if inner is None or "error_code" in listed.made._fields:
        return bool(items)
    return any(_names(inner, item) for item in items)


def _items(listed: _Listed, holder: Any, code: int, message: str | None) -> list[Any]:
    fields = listed.made._fields
    codes = {"error_code": code, "error_message": message}
    known = {name: value for name, value in codes.items() if name in fields}
    made = []
    for item in getattr(holder, listed.asked):
        same = {
            name: item if source == _ITSELF else getattr(item, source)
            for name, source in listed.same
        }
        inner = listed.inner
        more = {} if inner is None else {inner.answered: _items(inner, item, code, message)}
        made.append(listed.made(**known, **same, **more))
    return made


def _log_dirs(request: alter_replica_log_dirs.AlterReplicaLogDirsRequest, code: int) -> Any:
    """The answer's list of topics; the request lists them below directories."""
    results = [
        alter_replica_log_dirs.AlterReplicaLogDirTopicResult(
            topic.name, [_MOVED(number, code) for number in topic.partitions]
        )
        for asked in request.dirs
        for topic in asked.topics
        if topic.partitions
    ]
    return alter_replica_log_dirs.AlterReplicaLogDirsResponse(results=results) if results else None
