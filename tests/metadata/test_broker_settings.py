"""Settings of brokers that change while they run: what they may be, and where they are kept."""

import attrs
import pytest

from raftlog.base.ids import NodeId
from raftlog.metadata import commands as c
from raftlog.metadata.refusals import Refusal
from raftlog.metadata.rules.apply import apply
from raftlog.metadata.settings.broker_settings import (
    DYNAMIC,
    EVERY_BROKER,
    altered_settings,
    topic_level,
)
from raftlog.metadata.settings.config_changes import Altered, ConfigChange, ConfigOperation
from tests.metadata.clusters import cluster, do, fence

SET, DELETE, APPEND = ConfigOperation.SET, ConfigOperation.DELETE, ConfigOperation.APPEND
RETENTION = "log.retention.ms"


def alter(owner, *changed, removed=()):
    return c.AlterBrokerConfigs(owner=NodeId(owner), changed=changed, removed=removed)


def test_the_dynamic_settings_are_defaults_of_topics_that_are_honoured():
    assert {RETENTION, "log.segment.bytes", "min.insync.replicas", "message.max.bytes"} <= set(
        DYNAMIC
    )
    assert not {"log.retention.hours", "log.cleaner.threads", "node.id"} & set(DYNAMIC)
    assert topic_level([(RETENTION, "1"), ("of.a.later.release", "2")]) == {"retention.ms": "1"}


def test_changes_are_judged_under_the_names_of_brokers():
    own = ((RETENTION, "1"), ("min.insync.replicas", "2"))
    changes = [ConfigChange(SET, "log.segment.bytes", "1048576"), ConfigChange(DELETE, RETENTION)]
    assert altered_settings(own, changes, replace=False) == Altered(
        (("log.segment.bytes", "1048576"),), (RETENTION,)
    )
    replaced = altered_settings(own, changes[:1], replace=True)
    assert replaced.removed == (RETENTION, "min.insync.replicas")
    grown = altered_settings(
        (), [ConfigChange(APPEND, "log.cleanup.policy", "compact")], replace=False
    )
    assert grown.changed == (("log.cleanup.policy", "delete,compact"),)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (ConfigChange(SET, RETENTION, "soon"), "log.retention.ms=soon "),
        (ConfigChange(SET, "node.id", "7"), "node.id does not change while a broker runs"),
        (ConfigChange(APPEND, RETENTION, "1"), "not LIST"),
    ],
)
def test_what_is_wrong_is_said(change, said):
    assert said in altered_settings((), [change], replace=False)


def test_settings_are_kept_by_owner():
    image = do(
        cluster(1, 2), alter(1, (RETENTION, "1")), alter(EVERY_BROKER, ("b", "2"), ("a", "1"))
    )
    assert image.settings == {1: ((RETENTION, "1"),), EVERY_BROKER: (("a", "1"), ("b", "2"))}
    again = apply(image, alter(1, (RETENTION, "1")))
    assert again.image is image
    less = do(image, alter(1, removed=(RETENTION,)))
    assert less.settings == {EVERY_BROKER: (("a", "1"), ("b", "2"))}
    assert less.version == image.version + 1


def test_owners_that_are_not_there_and_settings_given_twice_are_refused():
    image = cluster(1, 2)
    assert apply(image, alter(3, (RETENTION, "1"))).refusal is Refusal.UNKNOWN_BROKER
    assert apply(image, alter(1, ("a", "1"), ("a", "2"))).refusal is Refusal.INVALID_CONFIG
    many = tuple((f"name.{at:04}", "") for at in range(2_000))
    assert apply(image, alter(1, *many)).refusal is Refusal.INVALID_CONFIG


def test_a_broker_that_is_forgotten_leaves_no_settings():
    """Another broker may have its number one day."""
    image = do(cluster(1, 2, 3, 4), alter(4, (RETENTION, "1")))
    image = attrs.evolve(image, controllers=image.controllers[:3])
    gone = do(image, fence(image, 4), c.UnregisterBroker(node=NodeId(4)))
    assert gone.settings == {}
