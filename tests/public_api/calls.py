"""The public functions, with right arguments for each; see `test_wrong_types`."""

import io
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import attrs
import pytest

from raftlog import verify
from raftlog.base.errors import OperatingError
from raftlog.base.units import millis
from raftlog.client.blocking import BlockingClient
from raftlog.client.core import admin_asks, asks, group_asks
from raftlog.client.core.admin_asks import Change, Resource, ResourceKind
from raftlog.client.core.values import ClientOptions, TopicPartition
from raftlog.client.trio_driver import Client
from raftlog.embed import pytest_plugin
from raftlog.embed.cluster import Cluster
from raftlog.embed.replicated_log import ReplicatedLog
from raftlog.spark import session as spark_session
from raftlog.spark.connector.source import register
from raftlog.verify import Header, HistoryReader, HistoryWriter, Model

PLACE = TopicPartition("t", 0)
HISTORY = (
    '{"format":1,"source":"demo","seed":1,"commit":null,"model":"log","options":{},"nodes":[]}\n'
)
OPTIONS = {
    "topic_wait_ns": millis(50),
    "call_timeout_ns": millis(5_000),
    "delivery_timeout_ns": millis(5_000),
}
CLIENT_CALLS: Mapping[str, Mapping[str, Any]] = {
    "produce": {
        "topic": "t",
        "value": b"v",
        "key": b"k",
        "headers": (("h", b"v"),),
        "partition": 0,
        "timestamp_ms": 7,
        "timeout": 9.0,
    },
    "send_soon": {
        "topic": "t",
        "value": b"v",
        "key": b"k",
        "headers": (("h", b"v"),),
        "partition": 0,
        "timestamp_ms": 7,
        "then": lambda told: None,
        "timeout": 9.0,
    },
    "assign": {"positions": {PLACE: 0}},
    "seek": {"place": PLACE, "offset": 0},
    "unassign": {"place": PLACE},
    "poll": {"seconds": 0.0, "bytes_max": 1},
    "ask": {"request": asks.metadata(["t"])},
    "topics": {},
    "describe": {"topic": "t"},
    "create_topic": {
        "name": "t",
        "partitions": 1,
        "replication_factor": 1,
        "configs": {"retention.ms": "-1"},
    },
    "delete_topic": {"name": "not-there"},
    "create_partitions": {"name": "t", "count": 1},
    "offset": {"place": PLACE, "timestamp_ms": -1},
    "offsets": {"topic": "t", "timestamp_ms": -1},
    "flush": {"timeout": 9.0},
}
CLIENT_OWN = {
    *("failure", "give_up", "know_brokers", "tell_later", "unsettled_bytes", "options", "wait"),
    *("open_consumer", "result_of", "take_turn", "turn_effects", "until_changed"),
}
"""Without arguments, with handles of the client's own, or what the consumer's face calls."""
ASKS: Mapping[str, Mapping[str, Any]] = {
    "metadata": {"topics": ["t"], "timeout_ns": 1},
    "describe_cluster": {"timeout_ns": 1, "fenced": True},
    "describe_configs": {"topics": ["t"], "timeout_ns": 1, "resource": 2},
    "new_topic": {
        "name": "t",
        "partitions": 1,
        "replication_factor": 1,
        "configs": {},
        "assignment": [[1]],
    },
    "create_topics": {"topics": [asks.new_topic("t")], "validate_only": True, "timeout_ns": 1},
    "delete_topics": {"names": ["t"], "timeout_ns": 1},
    "create_partitions": {
        "counts": {"t": 1},
        "assignments": {"t": [[1]]},
        "validate_only": True,
        "timeout_ns": 1,
    },
    "alter_reassignments": {
        "moves": {PLACE: [1]},
        "factor_may_change": True,
        "timeout_ns": 1,
    },
    "list_reassignments": {"places": [PLACE], "timeout_ns": 1},
    "list_offsets": {
        "place": PLACE,
        "timestamp_ms": -1,
        "timeout_ns": 1,
        "committed": False,
    },
    "end_of_epoch": {"place": PLACE, "leader_epoch": 1, "timeout_ns": 1},
    "fetch": {
        "place": PLACE,
        "offset": 0,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": 1,
        "committed": False,
        "timeout_ns": 1,
    },
    "delete_records": {"place": PLACE, "offset": 0, "timeout_ns": 1},
}
TOPIC = Resource(ResourceKind.TOPIC, "t")
ADMIN_ASKS: Mapping[str, Mapping[str, Any]] = {
    "describe_settings": {
        "resources": [TOPIC],
        "names": ["retention.ms"],
        "documentation": True,
        "timeout_ns": 1,
    },
    "alter_settings": {
        "resource": TOPIC,
        "changes": [Change("retention.ms", "1")],
        "validate_only": True,
        "timeout_ns": 1,
    },
    "list_resources": {"kinds": [ResourceKind.TOPIC], "timeout_ns": 1},
    "elect_leaders": {"places": [PLACE], "unclean": False, "timeout_ns": 1},
    "describe_log_dirs": {"node": 1, "places": [PLACE], "timeout_ns": 1},
    "alter_replica_log_dirs": {"node": 1, "paths": {PLACE: "/a"}, "timeout_ns": 1},
    "describe_quorum": {"timeout_ns": 1},
    "describe_features": {"node": 1, "timeout_ns": 1},
    "unregister_broker": {"node": 7, "timeout_ns": 1},
}
GROUP_ASKS: Mapping[str, Mapping[str, Any]] = {
    "commit_offsets": {
        "group": "g",
        "offsets": {PLACE: group_asks.OffsetAndMetadata(1)},
        "identity": group_asks.NO_MEMBER,
        "timeout_ns": 1,
    },
    "fetch_offsets": {"group": "g", "places": [PLACE], "timeout_ns": 1, "stable": True},
    "delete_offsets": {"group": "g", "places": [PLACE], "timeout_ns": 1},
    "find_coordinator": {"group": "g", "timeout_ns": 1},
    "list_groups": {"node": 1, "states": ["Empty"], "types": ["classic"], "timeout_ns": 1},
    "describe_group": {"group": "g", "timeout_ns": 1},
    "delete_group": {"group": "g", "timeout_ns": 1},
}
ASKED: Mapping[Any, Mapping[str, Mapping[str, Any]]] = {
    asks: ASKS,
    admin_asks: ADMIN_ASKS,
    group_asks: GROUP_ASKS,
}
"""Every module of questions, with right arguments for each of its questions."""
ASKED_OWN = {"broker_ms", "group_name"}
"""Helpers that these modules share, which are no questions."""
CLUSTER_CALLS: Mapping[str, Mapping[str, Any]] = {
    "address_of": {"node": 7},
    "kill": {"node": 7},
    "shut_down": {"node": 7},
    "restart": {"node": 7, "wait": True},
    "pause": {"node": 7},
    "resume": {"node": 7},
    "leader_of": {"topic": "t", "partition": 0, "seconds": 0.0},
    "wait_until_healthy": {"seconds": 0.0},
    "recover": {"seconds": 0.0},
}
"""Arguments for a cluster of node 1: there is no node 7, so nothing is killed."""
VERB_CALLS: Mapping[str, Mapping[str, Any]] = {
    "partition": {"first": [1], "second": [7], "third": [8], "one_way": False},
    "isolate": {"node": 7},
    "delay": {"first": [1], "second": [7], "ms": 1},
    "slow_disk": {"node": 7, "ms": 1},
    "full_disk": {"node": 7},
    "fail_sync": {"node": 7},
    "on": {"api": "Produce", "topic": "t", "client_id": "c", "connection": "h:1", "node": 7},
}
"""Fault verbs of the same cluster; `heal` takes nothing."""
REQUEST_VERB_CALLS: Mapping[str, Mapping[str, Any]] = {
    "drop_response": {"times": 1, "nth": 1},
    "error": {"error": "NOT_LEADER_OR_FOLLOWER", "times": 1, "nth": 1},
    "delay": {"ms": 1, "times": 1, "nth": 1},
    "disconnect": {"executed": False, "times": 1, "nth": 1},
}
"""Arguments for the verbs of `cluster.on(...)`."""
CLUSTER_OWN = {
    "heal",
    "start",
    "start_all",
    "stop",
    "bootstrap_servers",
    "directory",
    "nodes",
    "alive",
    "aio",
}
LOG_CALLS: Mapping[str, Mapping[str, Any]] = {
    "append": {"data": b"v", "timeout": 9.0},
    "append_many": {"pieces": [b"v"], "timeout": 9.0},
    "start": {"timeout": 9.0},
    "end": {"timeout": 9.0},
    "trim": {"before": 0, "timeout": 9.0},
    "read": {"from_offset": 0, "timeout": 9.0},
    "follow": {"from_offset": 0, "seconds": 0.0, "timeout": 9.0},
}


def _recorded(**more: Any) -> None:
    """A wrapped client iterates as the client does, and nothing here may begin that."""
    verify.record(**more)


VERIFY_CALLS: Mapping[str, tuple[Callable[..., Any], Mapping[str, Any]]] = {
    "check_history": (
        verify.check_history,
        {
            "source": [HISTORY],
            "model": "log",
            "allowed": ["lost-write"],
            "search_steps": 10,
            "hole_steps": 10,
            "with_metrics": True,
        },
    ),
    "judge": (
        verify.judge,
        {
            "source": [HISTORY],
            "model": "log",
            "allowed": ["lost-write"],
            "search_steps": 10,
            "hole_steps": 10,
            "with_metrics": True,
        },
    ),
    "judge_operations": (
        verify.judge_operations,
        {
            "header": Header(source="demo"),
            "operations": [],
            "nemesis": [],
            "model": "log",
            "allowed": ["lost-write"],
            "search_steps": 10,
            "hole_steps": 10,
            "with_metrics": True,
        },
    ),
    "intervals": (verify.intervals, {"ops": []}),
    "HistoryReader": (lambda lines: list(HistoryReader(lines)), {"lines": [HISTORY]}),
    "HistoryWriter": (HistoryWriter, {"sink": io.StringIO(), "header": Header(source="demo")}),
    "Header": (
        Header,
        {
            "source": "demo",
            "seed": 1,
            "commit": "c",
            "model": "log",
            "options": {},
            "nodes": ["n"],
            "extra": {},
        },
    ),
    "Model": (
        Model,
        {
            "name": "m",
            "init": int,
            "step": lambda state, asked, value: (True, state),
            "call_of": lambda op: None,
            "partition": lambda op: None,
            "functions": ("f",),
            "describe": lambda asked, answer: "",
        },
    ),
    "invoke": (
        lambda **more: HistoryWriter(io.StringIO(), Header(source="demo")).invoke(**more),
        {"process": 1, "f": "send", "time_ns": 1, "key": "k", "value": 1},
    ),
    "complete": (
        lambda **more: _invoked().complete(**more),
        {"process": 1, "kind": "ok", "time_ns": 2, "value": 1},
    ),
    "recording": (
        verify.recording,
        {
            "path": "history.jsonl",
            "topics": ["t"],
            "consumer": "assign",
            "final_read": True,
            "options": {"dense": True},
        },
    ),
    "record": (
        _recorded,
        {
            "client": Cluster(),
            "history": verify.recording("history.jsonl"),
            "identity": lambda record: record.key,
        },
    ),
    "nemesis": (
        lambda **more: _invoked().nemesis(**more),
        {"f": "kill", "time_ns": 2, "value": 1},
    ),
}
VERIFY_OWN = {"MODELS", "BadHistory", "JudgeOptions"}
VERIFY_RESULTS = {"Call", "ClassResult", "Interval", "Judgement", "Op", "Verdict", "Witness"}
"""Results that the judge makes by the million, and hands out."""


def _session_without_spark(**arguments: Any) -> object:
    """The arguments' door, and not the JVM behind it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spark_session, "missing", lambda: OperatingError("no Spark here"))
        return spark_session.local_session(**arguments)


OTHERS: Mapping[str, tuple[Callable[..., Any], Mapping[str, Any]]] = {
    "Client": (
        Client,
        {"bootstrap": "h:1", "options": None, **OPTIONS},
    ),
    "BlockingClient": (BlockingClient, {"bootstrap": "h:1", "options": None, **OPTIONS}),
    "ClientOptions": (
        ClientOptions,
        {
            **{
                field.name: field.default
                for field in attrs.fields(ClientOptions)
                if field.name != "bootstrap"
            },
            "bootstrap": (("h", 1),),
        },
    ),
    "Cluster": (
        Cluster,
        {
            "brokers": 1,
            "processes": False,
            "directory": "d",
            "settings": {},
            "controllers": 1,
            "fixture": "f",
        },
    ),
    "verify": (verify.check_history, {"source": [HISTORY]}),
    "ReplicatedLog": (
        ReplicatedLog,
        {"replicas": 1, "name": "log", "directory": "d", "cluster": None, "processes": False},
    ),
    "topic_name": (pytest_plugin.topic_name, {"node_id": "tests/a.py::b"}),
    "register": (register, {"spark": None}),
    "local_session": (
        _session_without_spark,
        {"master": "local", "name": "n", "memory": "1g", "spark_ui_enabled": "false"},
    ),
}


def _invoked() -> HistoryWriter:
    writer = HistoryWriter(io.StringIO(), Header(source="demo"))
    writer.invoke(1, "send", time_ns=1, key="k", value=1)
    return writer


@attrs.define
class Target:
    """A public function and right arguments for it. `lives` shows that nothing else broke."""

    name: str
    call: Callable[..., Any]
    right: Mapping[str, Any]
    lives: Callable[[], object]


def blocking_target(client: BlockingClient, name: str) -> Target:
    return Target(name, getattr(client, name), CLIENT_CALLS[name], partial(produces, client))


def produces(client: BlockingClient) -> None:
    client.unassign(PLACE)
    assert client.produce("t", b"after").offset >= 0


WRONG = object()
"""A value whose type is wrong for every argument."""


def refused_by_name(target: Target, argument: str, wrong: Any = WRONG) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        target.call(**{**target.right, argument: wrong})
    assert argument in str(caught.value), caught.value
