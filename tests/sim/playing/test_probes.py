"""Which rare paths of the product scenarios and a fixed set of seeds reach together.

The reached paths change with every change of timing. So the test asks only for those that are
reached often, or by a scenario. Paths that take luck stand in SELDOM, which may only shrink.
"""

from collections import Counter

import pytest
from raftlog_sim.base.probe_names import (
    UNREACHABLE,
    fault_names,
    missed_names,
    probe_names,
    reachable_names,
)
from raftlog_sim.hunting import scenarios
from raftlog_sim.playing import scenario_files
from raftlog_sim.playing.cases import BROKERS
from raftlog_sim.playing.seeds import drawn

SEEDS = (*range(1, 41), 49, 109)
"""The first forty, one whose store cannot be written, and one with a crowd of held requests."""
SELDOM = {
    "campaigned-before-an-older-round-was-synced",
    "client-fetched-corrupt",
    "fetch-gave-up-cold-reads",
    "in-sync-voter-out",
    "index-distrusted",
    "install-reply-of-an-ended-sender",
    "job-of-a-closed-replica-dropped",
    "leadership-handed-back",
    "linearizable-fetch-timed-out",
    "log-start-rose-under-a-look-up",
    "made-without-a-leader",
    "produce-short-of-replicas-after-append",
    "read-index-parked",
    "snapshot-read-of-an-ended-sender",
    "stale-refusal-while-replicating",
    "store-second-copy-used",
    "vote-request-against-a-promise",
}


@pytest.mark.slow
@pytest.mark.timeout(900)  # a hundred clusters and more, one after the other
def test_scenarios_and_some_seeds_reach_every_rare_path():
    reached = Counter()
    for name in scenario_files.names():
        scenario = scenario_files.load(name)
        if scenario.case.subject == BROKERS:
            reached.update(scenarios.play(scenario).probes)
    for seed in SEEDS:
        reached.update(drawn(seed, "swarm").play().probes)
    assert set(missed_names(reached)) <= SELDOM
    assert not set(UNREACHABLE) & set(reached), "reached after all: take it off the list"


def test_what_is_excused_exists():
    assert set(UNREACHABLE) <= set(probe_names())
    assert set(reachable_names()) >= SELDOM
    assert len(SELDOM) <= 17, "it may only shrink"


def test_every_probe_that_a_scenario_needs_can_be_reached():
    needed = {name for each in scenario_files.names() for name in scenario_files.load(each).reaches}
    assert needed <= (set(reachable_names()) - SELDOM) | set(fault_names())
