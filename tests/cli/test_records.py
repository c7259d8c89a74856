"""`raftlog produce` and `raftlog consume` against a cluster of three."""

import pytest

from raftlog.client.blocking import BlockingClient
from raftlog.client.core.partitioner import partition_of

pytestmark = pytest.mark.processes


def test_lines_go_in_and_come_out(on_cluster):
    on_cluster("topics", "create", "lines", "--partitions", 1)
    ran = on_cluster("produce", "lines", stdin=b"one\ntwo\nthree")
    assert (ran.code, ran.out) == (0, "produced 3 records to lines\n")
    assert on_cluster("consume", "lines", "-e").out == "one\ntwo\nthree\n"
    told = on_cluster("produce", "lines", "--format", "json", stdin=b"four\n").json
    assert told == {"version": 1, "topic": "lines", "produced": 1, "partitions": {"0": 1}}
    assert on_cluster("produce", "lines", stdin=b"").out == "produced 0 records to lines\n"
    assert on_cluster("consume", "lines", "-o", -2, "-e").out == "three\nfour\n"
    assert on_cluster("consume", "lines", "-o", 1, "-c", 2).out == "two\nthree\n"
    assert on_cluster("consume", "lines", "-o", "end", "-e").out == ""
    assert on_cluster("consume", "lines", "-o", -99, "-e", "-c", 1).out == "one\n"


def test_keys_headers_nulls_and_formats(on_cluster):
    on_cluster("topics", "create", "keyed", "--partitions", 3)
    lines = b"".join(b"k%d:v%d\n" % (number, number) for number in range(30))
    ran = on_cluster("produce", "keyed", "-K", ":", "-H", "source=test", "-H", "flag", stdin=lines)
    assert ran.code == 0
    shown = on_cluster("consume", "keyed", "-e", "-f", r"%p %k %s %h\n").out.splitlines()
    assert len(shown) == 30
    for line in shown:
        partition, key, value, headers = line.split()
        assert int(partition) == partition_of(key.encode(), 3)
        assert value == "v" + key[1:]
        assert headers == "source=test,flag=NULL"
    only = on_cluster("consume", "keyed", "-p", 1, "-e", "-f", r"%p\n").out
    assert set(only.split()) == {"1"}
    on_cluster("topics", "create", "nulls", "--partitions", 1)
    on_cluster("produce", "nulls", "-Z", "-K", ":", stdin=b":\na:\n:b\n")
    assert on_cluster("consume", "nulls", "-e", "-Z", "-f", r"%k %s\n").out == (
        "NULL NULL\na NULL\nNULL b\n"
    )
    (first, *_) = on_cluster("consume", "nulls", "-e", "--format", "json").json_lines
    assert (first["key"], first["value"], first["offset"]) == (None, None, 0)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_files_in_fixed_partitions(codec, on_cluster, tmp_path):
    topic = f"squeezed-{codec}"
    on_cluster("topics", "create", topic, "--partitions", 2)
    paths = []
    for name in ("a", "b"):
        paths.append(tmp_path / name)
        paths[-1].write_bytes(b"".join(b"%s-%04d;" % (name.encode(), at) for at in range(2000)))
    ran = on_cluster("produce", topic, *paths, "-D", ";", "-p", 1, "-z", codec, "-k", "same")
    assert ran.out == f"produced 4000 records to {topic}\n"
    shown = on_cluster("consume", topic, "-e", "-f", r"%p %k %s\n").out.splitlines()
    assert shown[0] == "1 same a-0000"
    assert shown[-1] == "1 same b-1999"
    assert len(shown) == 4000


@pytest.mark.parametrize("acks", ["0", "1", "all", "-1"])
def test_every_kind_of_acknowledgement(acks, on_cluster):
    topic = f"acks{acks}"
    on_cluster("topics", "create", topic)
    ran = on_cluster("produce", topic, "--acks", acks, stdin=b"x\ny\n")
    assert ran.out == f"produced 2 records to {topic}\n"
    assert on_cluster("consume", topic, "-c", 2).out == "x\ny\n"


def test_a_time_to_begin_at(on_cluster, cluster):
    on_cluster("topics", "create", "timed")
    with BlockingClient(cluster.bootstrap_servers) as client:
        now = client.produce("timed", b"now").timestamp_ms
        for number in (1, 2, 3):
            client.produce("timed", b"%d" % number, timestamp_ms=now + number * 1000)
    shown = on_cluster("consume", "timed", "-o", f"s@{now + 2000}", "-e").out
    assert shown == "2\n3\n"
    assert on_cluster("consume", "timed", "-o", f"s@{now + 99_000}", "-e").out == ""


def test_a_bad_topic_name_is_called_so_before_a_broker_is_asked(raftlog):
    """It was called `request.topic`, a name that no user of the command has seen."""
    ran = raftlog("produce", "nope/x", "-b", "localhost:1", stdin=b"")
    assert ran.code == 1
    assert "topic is no topic's name" in ran.err
    assert "nope/x" in ran.err
    assert "request" not in ran.err


def test_what_goes_wrong_is_said(on_cluster, tmp_path):
    on_cluster("topics", "create", "strict", "--config", "max.message.bytes=1000")
    big = on_cluster("produce", "strict", "--format", "json", stdin=b"x" * 5000)
    assert big.code == 1
    assert "MESSAGE_TOO_LARGE" in big.json_error["what"]
    assert on_cluster("produce", "nowhere", stdin=b"x").code == 1
    assert on_cluster("consume", "nowhere").code == 1
    assert on_cluster("consume", "strict", "-p", 7, "-e").code == 64
    assert on_cluster("produce", "strict", "-p", 7, stdin=b"x").code == 64
    assert on_cluster("consume", "strict", "-o", 17, "-c", 1).code == 1
    assert on_cluster("consume", "strict", "-o", "nowhere").code == 64
    assert on_cluster("consume", "strict", "-f", "%!").code == 64
    assert on_cluster("produce", "strict", tmp_path / "missing").code == 1
    assert on_cluster("produce", "strict", "-H", "=x", stdin=b"").code == 64
