"""The faults that exist, and every way in which one is refused."""

import json

import pytest

from raftlog.base.errors import LocalMisuse
from raftlog.testing.rules import as_json, parse_fault

RIGHT = [
    {"do": "drop_response", "on": "Produce"},
    {"do": "drop_response", "on": "Produce", "times": 1, "nth": 3, "topic": "orders"},
    {"do": "error", "on": "Fetch", "error": "NOT_LEADER_OR_FOLLOWER", "client_id": "billing"},
    {"do": "delay", "on": "JoinGroup", "ms": 600_000},
    {"do": "disconnect", "on": "Metadata", "executed": True, "connection": "127.0.0.1:1"},
    {"do": "error", "on": "OffsetFetch", "error": "UNKNOWN_SERVER_ERROR", "topic": "orders"},
    {"do": "partition", "groups": [[1], [2, 3]], "one_way": True},
    {"do": "delay_peers", "ms": 1},
    {"do": "delay_peers", "ms": 1, "groups": [[1], [2]]},
    {"do": "slow_disk", "ms": 50},
    {"do": "full_disk"},
    {"do": "fail_sync", "id": "a-B_9"},
]


def new_id():
    return "made"


@pytest.mark.parametrize("told", RIGHT, ids=json.dumps)
def test_a_fault_is_the_same_after_json(told):
    fault = parse_fault(told, new_id)
    assert fault.id == told.get("id", "made")
    again = json.loads(json.dumps(as_json(fault)))
    assert again == {"id": "made", **told}
    assert parse_fault(again, new_id) == fault


PRODUCE = {"do": "error", "on": "Produce", "error": "NOT_LEADER_OR_FOLLOWER"}
CUT = {"do": "partition", "groups": [[1], [2]]}


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ([], "a fault must be a JSON object, not list"),
        ({}, "do must be one of drop_response, error"),
        ({"do": "explode"}, "not 'explode'"),
        ({"do": []}, "do must be one of"),
        ({"do": "full_disk", "ms": 5}, "ms is no field of full_disk"),
        ({**CUT, "on": "Produce"}, r"on is no field of partition.*it takes groups, one_way"),
        ({"do": "full_disk", "id": ""}, "id must be 1 to 64 letters"),
        ({"do": "full_disk", "id": "../x"}, "id must be 1 to 64 letters"),
        ({"do": "full_disk", "id": "x" * 65}, "id must be 1 to 64 letters"),
        ({"do": "full_disk", "id": 7}, "id must be 1 to 64 letters"),
        ({"do": "slow_disk"}, "ms must be a whole number from 1 to 600000, not None"),
        ({"do": "slow_disk", "ms": 0}, "ms must be"),
        ({"do": "slow_disk", "ms": 600_001}, "ms must be"),
        ({"do": "slow_disk", "ms": True}, "ms must be"),
        ({"do": "slow_disk", "ms": 1.5}, "ms must be"),
        ({**PRODUCE, "on": "produce"}, "served, not 'produce'.*did you mean Produce"),
        ({**PRODUCE, "on": "Vote"}, "on must be the name of an API"),
        ({"do": "error", "on": "Produce"}, "error must be a text"),
        ({**PRODUCE, "error": "NOT_LEADER"}, "did you mean NOT_LEADER_OR_FOLLOWER"),
        ({**PRODUCE, "error": "NONE"}, "error must be the name of a Kafka error"),
        ({**PRODUCE, "times": 0}, "times must be a whole number from 1 to 1000000"),
        ({**PRODUCE, "nth": 0}, "nth must be"),
        ({**PRODUCE, "client_id": 7}, "client_id must be a text"),
        ({**PRODUCE, "client_id": "x" * 256}, "client_id must be a text of 1 to 255"),
        ({**PRODUCE, "on": "Heartbeat", "topic": "t"}, "topic cannot restrict Heartbeat"),
        ({"do": "disconnect", "on": "Produce", "executed": 1}, "executed must be true or false"),
        ({"do": "partition"}, "groups must be 2 to 9 lists"),
        ({**CUT, "groups": [[1]]}, "groups must be 2 to 9 lists"),
        ({**CUT, "groups": [[1], []]}, "each of groups must be a list"),
        ({**CUT, "groups": [[1], [1]]}, "node 1 stands in groups twice"),
        ({**CUT, "groups": [[1], ["2"]]}, "groups must hold node ids"),
        ({**CUT, "groups": [[1], [-1]]}, "groups must hold node ids"),
        ({**CUT, "groups": [[0], list(range(1, 11))]}, "at most 9 node ids"),
    ],
)
def test_what_is_no_fault_is_refused_by_name(told, why):
    with pytest.raises(LocalMisuse, match=f"(?s).*{why}"):
        parse_fault(told, new_id)


@pytest.mark.parametrize(
    ("told", "pairs"),
    [
        ({"groups": [[1], [2, 3]]}, ["12", "13", "21", "31"]),
        ({"groups": [[1], [2, 3]], "one_way": True}, ["12", "13"]),
        ({"groups": [[3], [1]], "one_way": True}, ["31"]),
        ({"groups": [[1], [2], [3]]}, ["12", "13", "21", "23", "31", "32"]),
    ],
)
def test_which_messages_a_partition_touches(told, pairs):
    """Broker 4 stands in no group."""
    fault = parse_fault({"do": "partition", **told}, new_id)
    found = [f"{a}{b}" for a in range(1, 5) for b in range(1, 5) if fault.touches(a, b)]
    assert found == pairs
