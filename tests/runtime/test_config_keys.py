"""The table of broker settings: every name of Kafka 4 is classed, and promises are not taken."""

import pytest

from raftlog.metadata.settings.topic_config_table import SettingClass
from raftlog.runtime.settings.config_keys import (
    BROKER_DEFAULT_NAMES,
    OTHERS,
    SETTINGS,
    all_names,
    default_of,
    has_no_effect,
    other_problem,
)
from raftlog.runtime.settings.security_settings import NO_OPS
from tests.tidy.tree import ROOT

KAFKAS = dict(
    line.split("\t")[1:]
    for line in (ROOT / "tests/golden/kafka_settings.tsv").read_text().splitlines()
    if line.startswith("broker\t")
)
"""Every broker setting of Kafka 4.0 to 4.4 with its default, as Kafka's own code lists them."""

OUR_DEFAULTS = {
    "broker.id": "",
    "broker.session.timeout.ms": "3000",
    "listener.security.protocol.map": (
        "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
    ),
    "listeners": "PLAINTEXT://127.0.0.1:9092",
    "log.dir": "",
    "max.connections": "2048",
    "socket.request.max.bytes": "33554432",
}
"""Where ours are not Kafka's."""


def test_every_broker_setting_of_kafka_4_is_in_exactly_one_table():
    assert len(KAFKAS) == 351
    assert not [name for name in KAFKAS if name not in all_names()]
    tables = (SETTINGS, BROKER_DEFAULT_NAMES, OTHERS, NO_OPS)
    twice = [name for name in all_names() if sum(name in table for table in tables) != 1]
    assert twice == ["raftlog.read.consistency"], "ours has one name for brokers and topics"


@pytest.mark.parametrize("name", [name for name in KAFKAS if name not in BROKER_DEFAULT_NAMES])
def test_defaults_are_kafkas_or_said_here(name):
    ours = {**NO_OPS, **{key: each.default for key, each in (SETTINGS | OTHERS).items()}}
    assert ours[name] == OUR_DEFAULTS.get(name, KAFKAS[name])


def test_defaults_of_topic_settings_are_kafkas():
    """Kafka gives them in hours, or says nothing where a coarser name has the default."""
    scaled = {"log.retention.hours": "604800000", "log.roll.hours": "604800000"}
    names = [name for name in BROKER_DEFAULT_NAMES if KAFKAS.get(name)]
    assert len(names) > 25
    for name in names:
        assert default_of(name).default == scaled.get(name, KAFKAS[name])


@pytest.mark.parametrize("name", OTHERS)
def test_what_is_not_honoured_takes_its_default_and_nothing_of_another_kind(name):
    setting = OTHERS[name]
    assert setting.why
    assert other_problem(name, setting.default) is None
    assert other_problem(name, "") is None
    wrong = {"int": "many", "number": "many", "flag": "yes"}.get(setting.kind)
    if wrong is not None:
        assert other_problem(name, wrong).startswith(f"{name}={wrong} ")
    other = {"int": "7", "number": "0.25", "flag": "true", "text": "other"}[setting.kind]
    if other == setting.default:
        other = "false"
    refused = setting.classed is SettingClass.DEFAULT_ONLY
    assert (other_problem(name, other) is not None) == refused
    assert has_no_effect(name) == (not refused)


def test_no_setting_that_is_not_honoured_is_called_honoured():
    assert {each.classed for each in OTHERS.values()} == {
        SettingClass.NO_EFFECT,
        SettingClass.DEFAULT_ONLY,
    }
    assert has_no_effect("log.preallocate")
    assert not has_no_effect("log.retention.bytes")
    assert not has_no_effect("num.partitions")


def test_a_promise_that_is_not_kept_is_refused_with_its_reason():
    assert other_problem("max.connections.per.ip", "10") == (
        "max.connections.per.ip=10 must be 2147483647: only max.connections is enforced"
    )
    assert other_problem("create.topic.policy.class.name", "com.example.Policy") == (
        "create.topic.policy.class.name=com.example.Policy must be empty: "
        "no class is loaded, so the policy would not be asked"
    )
    assert other_problem("remote.log.storage.system.enable", "False") is None
