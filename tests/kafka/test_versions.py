"""The table of APIs: only what is served is advertised, and minimums are what old clients need."""

import pytest

from raftlog.kafka import versions
from raftlog.kafka.connection import BEFORE_AUTHENTICATION
from raftlog.kafka.tables import all_tables, message_table
from raftlog.kafka.versions import SERVED, ApiKey, api_versions_response, docs_table, is_served

TRIED = {
    "Produce": (0, 13),
    "Fetch": (4, 18),
    "ListOffsets": (1, 11),
    "Metadata": (0, 13),
    "OffsetCommit": (2, 10),
    "OffsetFetch": (1, 10),
    "FindCoordinator": (0, 6),
    "JoinGroup": (0, 9),
    "Heartbeat": (0, 4),
    "LeaveGroup": (0, 5),
    "SyncGroup": (0, 5),
    "DescribeGroups": (0, 6),
    "ListGroups": (0, 5),
    "ApiVersions": (0, 4),
    "CreateTopics": (2, 7),
    "DeleteTopics": (1, 6),
    "DeleteRecords": (0, 2),
    "InitProducerId": (0, 5),
    "OffsetForLeaderEpoch": (2, 4),
    "DescribeAcls": (1, 3),
    "CreateAcls": (1, 3),
    "DeleteAcls": (1, 3),
    "DescribeConfigs": (1, 4),
    "AlterConfigs": (0, 2),
    "IncrementalAlterConfigs": (0, 1),
    "AlterReplicaLogDirs": (1, 2),
    "DescribeLogDirs": (1, 5),
    "ElectLeaders": (0, 2),
    "UpdateFeatures": (0, 2),
    "DescribeQuorum": (0, 2),
    "DescribeProducers": (0, 0),
    "UnregisterBroker": (0, 0),
    "ListConfigResources": (0, 1),
    "DescribeTopicPartitions": (0, 0),
    "CreatePartitions": (0, 3),
    "AlterPartitionReassignments": (0, 1),
    "ListPartitionReassignments": (0, 0),
    "DeleteGroups": (0, 2),
    "OffsetDelete": (0, 0),
    "DescribeCluster": (0, 2),
    "ConsumerGroupHeartbeat": (0, 1),
    "ShareGroupHeartbeat": (1, 1),
    "AddRaftVoter": (0, 0),
    "RemoveRaftVoter": (0, 0),
}


def test_what_is_advertised_is_what_was_tried_with_real_clients():
    offered = api_versions_response().api_keys
    found = {versions.api_name(api.api_key): (api.min_version, api.max_version) for api in offered}
    assert found == TRIED


def test_every_key_has_tables_and_every_table_a_key():
    tables = {table[0] for table in all_tables() if table[0] >= 0}
    assert {int(key) for key in ApiKey} == tables
    for key in ApiKey:
        assert versions.api_name(key).upper() == key.name.replace("_", "")


@pytest.mark.parametrize(
    ("key", "version", "served"),
    [
        (ApiKey.PRODUCE, 2, False),
        (ApiKey.PRODUCE, 3, True),
        (ApiKey.PRODUCE, 13, True),
        (ApiKey.PRODUCE, 14, False),
        (ApiKey.FETCH, 3, False),
        (ApiKey.FETCH, 4, True),
        (ApiKey.SYNC_GROUP, 5, True),
        (ApiKey.SYNC_GROUP, 6, False),
        (ApiKey.INIT_PRODUCER_ID, 6, False),
        (999, 0, False),
        (-1, 0, False),
    ],
)
def test_what_is_accepted(key, version, served):
    assert is_served(key, version) is served


def test_produce_is_advertised_from_0_and_accepted_from_3():
    """With a minimum of 3, librdkafka before 2.11.1 silently sends compressed batches uncompressed.

    With 7 it falls back to message format v1 and every produce fails (its issue 4956, KAFKA-18659).
    """
    assert SERVED[0].advertised_min == 0
    assert SERVED[0].accepted_min == 3
    assert message_table(0, "request")[3] == (3, 13)


def test_find_coordinator_is_advertised_from_0():
    """With a minimum of 1 the same clients' group consumers read nothing at all."""
    assert SERVED[ApiKey.FIND_COORDINATOR].advertised_min == 0


def test_the_table_ascends_and_every_served_version_has_a_schema_on_both_sides():
    assert list(SERVED) == sorted(SERVED)
    for api in SERVED.values():
        for kind in ("request", "response"):
            low, high = message_table(api.key, kind)[3]
            assert low <= api.accepted_min <= api.max <= high, (api, low, high)
        assert api.advertised_min <= api.accepted_min, api


def test_an_unstable_version_is_not_even_known():
    assert message_table(ApiKey.INIT_PRODUCER_ID, "request")[3] == (0, 5)
    assert message_table(ApiKey.INIT_PRODUCER_ID, "response")[3] == (0, 5)


def test_requests_and_responses_have_the_same_versions():
    for key in ApiKey:
        request, response = message_table(key, "request"), message_table(key, "response")
        assert request[3] == response[3], request[1]
        assert request[4] == response[4], request[1]


def test_a_version_error_still_carries_the_whole_list():
    answer = api_versions_response(error_code=35)
    assert answer.error_code == 35
    assert len(answer.api_keys) == len(SERVED)


def test_the_list_is_in_ascending_order():
    keys = [api.api_key for api in api_versions_response().api_keys]
    assert keys == sorted(keys)


def test_what_clients_may_ask_before_authentication_is_the_handshake_only():
    assert {17, 18, 36} == BEFORE_AUTHENTICATION


def test_an_unknown_api_is_named_by_its_number():
    assert versions.api_name(999) == "API 999"


def test_the_docs_page_has_a_line_for_every_api():
    lines = docs_table().splitlines()
    assert len(lines) == len(SERVED) + 2
    assert "| Produce | 0 | 0-13 | 3 | 1 |" in lines
