"""SET, DELETE, APPEND and SUBTRACT on a topic's own settings."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.metadata.settings.config_changes import (
    Altered,
    ConfigChange,
    ConfigOperation,
    altered_configs,
)
from raftlog.metadata.settings.topic_config_table import TOPIC_CONFIGS
from raftlog.metadata.settings.topic_defaults import DEFAULTS_NAME, MADE_NOW

OWN = (MADE_NOW, ("cleanup.policy", "compact"), ("retention.ms", "5"))


def alter(*changes, own=OWN, replace=False):
    made = [ConfigChange(ConfigOperation[what], *rest) for what, *rest in changes]
    return altered_configs(own, made, replace=replace)


@pytest.mark.parametrize(
    ("changes", "changed", "removed"),
    [
        ([("SET", "segment.ms", "9")], (("segment.ms", "9"),), ()),
        ([("DELETE", "retention.ms")], (), ("retention.ms",)),
        ([("DELETE", "segment.ms")], (), ()),
        ([("DELETE", "no.such.setting")], (), ()),
        ([("APPEND", "cleanup.policy", "delete")], (("cleanup.policy", "compact,delete"),), ()),
        ([("APPEND", "cleanup.policy", "compact")], (("cleanup.policy", "compact"),), ()),
        ([("SUBTRACT", "cleanup.policy", "compact")], (("cleanup.policy", ""),), ()),
        ([("SUBTRACT", "cleanup.policy", "delete")], (("cleanup.policy", "compact"),), ()),
        (
            [("SET", "segment.ms", "9"), ("DELETE", "retention.ms")],
            (("segment.ms", "9"),),
            ("retention.ms",),
        ),
        ([], (), ()),
    ],
)
def test_changes(changes, changed, removed):
    assert alter(*changes) == Altered(changed, removed)


def test_a_list_that_the_topic_does_not_set_begins_with_its_default():
    assert alter(("APPEND", "cleanup.policy", "compact"), own=(MADE_NOW,)) == Altered(
        (("cleanup.policy", "delete,compact"),), ()
    )


def test_replacing_takes_away_what_is_not_named_but_not_what_the_cluster_wrote():
    assert alter(("SET", "segment.ms", "9"), replace=True) == Altered(
        (("segment.ms", "9"),), ("cleanup.policy", "retention.ms")
    )
    assert alter(replace=True) == Altered((), ("cleanup.policy", "retention.ms"))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            ("SET", "retention.mss", "1"),
            "unknown topic setting retention.mss; did you mean retention.ms?",
        ),
        (
            ("APPEND", "retention.mss", "1"),
            "unknown topic setting retention.mss; did you mean retention.ms?",
        ),
        (
            ("APPEND", "retention.ms", "1"),
            "Can't APPEND to key retention.ms because its type is not LIST.",
        ),
        (
            ("SUBTRACT", "segment.bytes", "1"),
            "Can't SUBTRACT to key segment.bytes because its type is not LIST.",
        ),
        (("SET", "retention.ms", "soon"), "retention.ms=soon is not a whole number"),
        (("APPEND", "cleanup.policy", "shrink"), "cleanup.policy=compact,shrink must be a list"),
        (("DELETE", DEFAULTS_NAME), f"{DEFAULTS_NAME} belongs to the cluster"),
        (("SET", DEFAULTS_NAME, "1"), f"{DEFAULTS_NAME} belongs to the cluster"),
    ],
)
def test_refusals_say_what_is_wrong(change, why):
    problem = alter(change)
    assert isinstance(problem, str)
    assert problem.startswith(why)


def test_what_is_named_twice_is_refused():
    assert alter(("SET", "segment.ms", "9"), ("DELETE", "segment.ms")) == (
        "segment.ms is given twice"
    )
    assert alter(("DELETE", "segment.ms"), ("DELETE", "segment.ms")) == "segment.ms is given twice"


def test_a_value_of_an_older_release_that_no_change_names_stays():
    own = (MADE_NOW, ("setting.of.later", "x"), ("retention.ms", "word"))
    assert alter(("SET", "segment.ms", "9"), own=own) == Altered((("segment.ms", "9"),), ())
    assert alter(("DELETE", "setting.of.later"), own=own) == Altered((), ("setting.of.later",))


names = st.sampled_from([*TOPIC_CONFIGS, DEFAULTS_NAME, "none.such"])
changes = st.builds(ConfigChange, st.sampled_from(ConfigOperation), names, st.text(max_size=5))


@given(
    st.dictionaries(names, st.text(max_size=5), max_size=6),
    st.lists(changes, max_size=6),
    st.booleans(),
)
def test_the_result_can_be_committed_and_the_clusters_own_entry_never_moves(own, asked, replace):
    altered = altered_configs(own.items(), asked, replace=replace)
    if isinstance(altered, str):
        return
    changed, removed = dict(altered.changed), altered.removed
    assert len(changed) == len(altered.changed)
    assert not [name for name in removed if name in changed or name not in own]
    assert DEFAULTS_NAME not in (*changed, *removed)
    after = {name: value for name, value in {**own, **changed}.items() if name not in removed}
    if replace:
        set_names = [each.name for each in asked if each.operation is not ConfigOperation.DELETE]
        assert sorted(after) == sorted({*set_names, *({DEFAULTS_NAME} & set(own))})
