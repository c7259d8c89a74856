"""Hostile members of consumer groups against a live broker: each gets an error or a closed
connection, and a well-behaved group is served meanwhile. See test_hostile.py."""

import contextlib
import socket
import struct
import threading

import pytest

from raftlog.base.limits import FRAME_ITEMS_MAX, GROUP_MEMBERS_MAX
from raftlog.client.blocking import BlockingClient
from raftlog.client.blocking_consumer import BlockingConsumer
from raftlog.kafka import codec
from raftlog.kafka.error_codes import ErrorCode
from raftlog.kafka.messages import (
    describe_groups,
    find_coordinator,
    join_group,
    list_groups,
    offset_commit,
    offset_fetch,
)
from raftlog.kafka.versions import ApiKey
from raftlog.runtime.local import cluster as local_cluster
from tests.processes.test_hostile import (
    MEMORY_RISE_MAX,
    TOPIC,
    call,
    closed_by_broker,
    connect,
    read_frame,
    survives,
)

pytestmark = [pytest.mark.processes, pytest.mark.slow]

ROUNDS_MAX = 200


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    running = local_cluster.found(tmp_path_factory.mktemp("hostile"), brokers=1)
    try:
        running.start_all()
        with BlockingClient(running.bootstrap_servers) as client:
            client.create_topic(TOPIC, partitions=1, replication_factor=1)
            for _ in range(ROUNDS_MAX):
                client.send_soon(TOPIC, b"warm")
        good_group_is_served(running, "first")
        yield running
    finally:
        running.stop()


def good_group_is_served(broker, group):
    """A group of one joins, reads a record, commits, and leaves."""
    options = {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False}
    with BlockingConsumer(broker.bootstrap_servers, max_poll_records=1, **options) as consumer:
        consumer.subscribe([TOPIC])
        while not consumer.poll(seconds=1.0):
            pass
        consumer.commit()


@pytest.fixture
def unharmed(broker):
    """The broker before and after; another group works all the while."""
    stop, failed, rounds = threading.Event(), [], []

    def go_on():
        try:
            while not stop.is_set() and len(rounds) < ROUNDS_MAX:
                good_group_is_served(broker, "beside")
                rounds.append(1)
        except Exception as error:
            failed.append(error)

    with survives(broker, MEMORY_RISE_MAX):
        beside = threading.Thread(target=go_on)
        beside.start()
        try:
            yield broker
        finally:
            stop.set()
            beside.join()
        assert not failed, failed
        assert rounds, "the other group was never served"


def join_body(group, member="", metadata=b"", instance=None, session_ms=6_000):
    protocols = [join_group.JoinGroupRequestProtocol("range", metadata)]
    return join_group.JoinGroupRequest(
        group, session_ms, session_ms, member, instance, "consumer", protocols
    )


def frame_of(api_key, version, body):
    return b"".join(codec.encode_request(api_key, version, 7, "hostile", body))


def flood(connection: socket.socket, frame: bytes, count: int, api_key: int, version: int):
    """Send the frame so many times, in one go; the answers."""
    sender = threading.Thread(target=connection.sendall, args=(frame * count,))
    sender.start()
    answers = read_answers(connection, count, api_key, version)
    sender.join()
    return answers


def read_answers(connection: socket.socket, count: int, api_key: int, version: int):
    stream = connection.makefile("rb")
    answers = []
    for _ in range(count):
        size = int.from_bytes(stream.read(4), "big")
        answers.append(codec.decode_response(api_key, version, stream.read(size)).body)
    return answers


def test_ten_thousand_members_that_join_and_never_sync(unharmed):
    """Over a hundred connections, without a wait: the coordinator admits as many as a group may
    have, and forgets them when they do not sync."""
    frame = frame_of(ApiKey.JOIN_GROUP, 3, join_body("crowd"))
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(connect(unharmed)) for _ in range(100)]
        for connection in opened:
            connection.settimeout(60)
            connection.sendall(frame * 100)
        answers = [each for one in opened for each in read_answers(one, 100, ApiKey.JOIN_GROUP, 3)]
    codes = [ErrorCode(each.error_code) for each in answers]
    assert ErrorCode.NONE in codes
    others = {ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert set(codes) <= {ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, *others}
    assert codes.count(ErrorCode.NONE) <= 2 * GROUP_MEMBERS_MAX


def test_ids_of_ten_thousand_groups_that_are_never_joined_with(unharmed):
    with connect(unharmed) as connection:
        connection.settimeout(60)
        frames = [frame_of(ApiKey.JOIN_GROUP, 9, join_body(f"{n:05}")) for n in range(10_000)]
        sender = threading.Thread(target=connection.sendall, args=(b"".join(frames),))
        sender.start()
        answers = read_answers(connection, len(frames), ApiKey.JOIN_GROUP, 9)
        sender.join()
        assert {each.error_code for each in answers} == {ErrorCode.MEMBER_ID_REQUIRED}


def test_subscriptions_of_a_mebibyte(unharmed):
    """Twenty of them at once are held within the bound of subscriptions, or refused."""
    with connect(unharmed) as connection:
        connection.settimeout(60)
        frame = frame_of(ApiKey.JOIN_GROUP, 3, join_body("wide", metadata=bytes(1 << 20)))
        codes = [
            ErrorCode(each.error_code)
            for each in flood(connection, frame, 20, ApiKey.JOIN_GROUP, 3)
        ]
        assert ErrorCode.NONE in codes
        others = {ErrorCode.GROUP_MAX_SIZE_REACHED, ErrorCode.UNKNOWN_MEMBER_ID}
        assert set(codes) <= {ErrorCode.NONE, *others}


def test_a_large_group_described_ten_thousand_times_in_one_request(unharmed):
    with connect(unharmed) as connection:
        body = join_body("seen", metadata=bytes(100_000))
        answer = call(connection, ApiKey.JOIN_GROUP, 3, body)
        assert answer.error_code == 0
        request = describe_groups.DescribeGroupsRequest(["seen"] * 10_000)
        answer = call(connection, ApiKey.DESCRIBE_GROUPS, 5, request)
        assert [each.group_id for each in answer.groups] == ["seen"]


def test_all_offsets_of_one_group_asked_for_thousands_of_times(unharmed):
    with connect(unharmed) as connection:
        partition = offset_commit.OffsetCommitRequestPartition(0, 1, -1, "")
        topic = offset_commit.OffsetCommitRequestTopic(TOPIC, bytes(16), [partition])
        body = offset_commit.OffsetCommitRequest("asked", -1, "", topics=[topic])
        answer = call(connection, ApiKey.OFFSET_COMMIT, 8, body)
        assert answer.topics[0].partitions[0].error_code == 0
        groups = [offset_fetch.OffsetFetchRequestGroup("asked", topics=None)] * 10_000
        request = offset_fetch.OffsetFetchRequest(groups=groups)
        answer = call(connection, ApiKey.OFFSET_FETCH, 9, request)
        assert {each.error_code for each in answer.groups} == {0}


def test_long_names_of_groups_in_every_request_that_names_many(unharmed):
    names = [f"{number:04}" + "n" * 32_000 for number in range(120)]
    with connect(unharmed) as connection:
        body = find_coordinator.FindCoordinatorRequest("", 0, names)
        answer = call(connection, ApiKey.FIND_COORDINATOR, 6, body)
        assert [each.error_code for each in answer.coordinators] == [0] * 120
        body = describe_groups.DescribeGroupsRequest(names)
        answer = call(connection, ApiKey.DESCRIBE_GROUPS, 5, body)
        assert {each.group_state for each in answer.groups} == {"Dead"}
        body = list_groups.ListGroupsRequest(names, names[:5])
        assert call(connection, ApiKey.LIST_GROUPS, 5, body).groups == ()


def test_more_than_a_frame_may_name_is_closed(unharmed):
    with connect(unharmed) as connection:
        request = describe_groups.DescribeGroupsRequest(["g"] * (FRAME_ITEMS_MAX + 1))
        connection.sendall(frame_of(ApiKey.DESCRIBE_GROUPS, 5, request))
        assert closed_by_broker(connection)


@pytest.mark.parametrize("api", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.LEAVE_GROUP])
def test_a_request_that_ends_in_its_middle_is_closed(unharmed, api):
    bodies = {
        ApiKey.JOIN_GROUP: join_body("cut"),
        ApiKey.SYNC_GROUP: None,
        ApiKey.LEAVE_GROUP: None,
    }
    if bodies[api] is None:
        frame = struct.pack(">hhih", api, 0, 7, -1) + b"\0\1g"
    else:
        frame = frame_of(api, 5, bodies[api])[4:-3]
    with connect(unharmed) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        assert closed_by_broker(connection)


def test_null_where_the_protocol_has_none_is_closed(unharmed):
    with connect(unharmed) as connection:
        frame = struct.pack(">hhih", ApiKey.DESCRIBE_GROUPS, 0, 7, -1) + b"\xff\xff\xff\xff"
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        assert closed_by_broker(connection)
    with connect(unharmed) as connection:
        connection.sendall(frame_of(ApiKey.LIST_GROUPS, 0, list_groups.ListGroupsRequest()))
        assert read_frame(connection)
