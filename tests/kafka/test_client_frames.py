"""Requests that real clients sent: one of each (client, API, version), recorded from their sockets.

Each client created a topic, produced (plain, compressed, idempotent) and read back by assignment.
The frames are kept so that a change here is seen without the clients; tests with real broker
processes run the clients themselves.
"""

import json
from pathlib import Path

import pytest

from raftlog.kafka.codec import decode_request, encode_request
from raftlog.kafka.headers import read_fixed
from raftlog.kafka.versions import api_name

FRAMES = json.loads((Path(__file__).parent / "fixtures" / "client_frames.json").read_text("utf-8"))
CASES = [(client, api, frame) for client, apis in FRAMES.items() for api, frame in apis.items()]


def case_id(value):
    return value if len(value) < 40 else ""


@pytest.mark.parametrize(("client", "api", "frame"), CASES, ids=case_id)
def test_a_recorded_request_is_read_whole_and_written_back_the_same(client, api, frame):
    data = bytes.fromhex(frame)
    found = decode_request(data)
    assert f"{api_name(found.api_key)} v{found.api_version}" == api
    assert found.served, client
    assert found.trailing == 0
    key, version, correlation = read_fixed(data)
    again = b"".join(encode_request(key, version, correlation, found.client_id, found.body))
    assert again[4:] == data


def versions_of(client):
    return {api.rpartition(" v")[0]: int(api.rpartition(" v")[2]) for api in FRAMES[client]}


def test_the_clients_chose_the_versions_that_were_measured_before():
    """The versions that each client sends when it may choose freely: a change is news."""
    assert versions_of("confluent-kafka 2.16.1") == {
        "Produce": 10,
        "Fetch": 16,
        "Metadata": 13,
        "FindCoordinator": 2,
        "ApiVersions": 3,
        "CreateTopics": 4,
        "InitProducerId": 4,
    }
    assert versions_of("kafka-python 3.0.12") == {
        "Produce": 9,
        "Fetch": 12,
        "Metadata": 13,
        "ApiVersions": 4,
        "CreateTopics": 7,
        "InitProducerId": 4,
    }
    assert versions_of("aiokafka 0.14.0") == {
        "Produce": 7,
        "Fetch": 11,
        "Metadata": 5,
        "ApiVersions": 0,
        "InitProducerId": 0,
    }
    assert versions_of("kcat 1.7.1") == {
        "Produce": 7,
        "Fetch": 11,
        "ListOffsets": 2,
        "Metadata": 4,
        "ApiVersions": 3,
    }


@pytest.mark.parametrize("client", sorted(FRAMES))
def test_produced_batches_are_views_of_magic_2(client):
    found = decode_request(
        bytes.fromhex(next(v for k, v in FRAMES[client].items() if "Produce" in k))
    )
    for topic in found.body.topic_data:
        for partition in topic.partition_data:
            assert type(partition.records) is memoryview
            assert partition.records[16] == 2


def test_kcat_still_compresses_when_produce_is_advertised_from_zero():
    """It was told 0-13; with 3-13 it sends gzip batches uncompressed, and says nothing."""
    found = decode_request(bytes.fromhex(FRAMES["kcat 1.7.1"]["Produce v7"]))
    records = found.body.topic_data[0].partition_data[0].records
    gzip = 1
    assert records[22] & 7 == gzip
