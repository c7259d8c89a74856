"""Which steps of a scenario real processes do, and how the others are refused."""

import pytest
from raftlog_sim.playing.scenario_files import told
from raftlog_sim.schedules.schedule import KINDS

from raftlog.base.errors import OperatingError
from raftlog.embed.chaos.plan import PLAYED, ChaosPlan, PlanRefused, default_load, plan_of
from raftlog.embed.chaos.stage import _STRIKES


def planned(text: str, seed: int | None = None) -> ChaosPlan:
    """As `raftlog sim steps` says it."""
    said = told("mine", text)
    document = {
        "name": "mine",
        "settings": [{"line": n, "name": name, "value": v} for n, name, v in said.settings],
        "steps": [{"line": line, **step.document()} for line, step in said.steps],
    }
    return plan_of(document, "mine.txt", seed)


def refused(text: str) -> str:
    with pytest.raises(PlanRefused) as caught:
        planned(text)
    return caught.value.what


def test_what_a_scenario_says_is_the_plan():
    plan = planned(
        "# A story.\nset brokers 5\nset partitions 2\nset seed 9\n"
        "300 pause node=n2\n100 crash node=leader:1 for 250\n"
        "0 load slot=1 partition=0 count=10 every_ms=100\n=> ok\n"
    )
    assert (plan.brokers, plan.partitions, plan.seed, plan.replication) == (5, 2, 9, 3)
    assert [(each.line, str(each)) for each in plan.faults] == [
        (6, "100 crash node=leader:1 for 250"),
        (5, "300 pause node=n2"),
    ]
    assert plan.lasts_ms == 1_000
    assert planned("100 crash node=n1\n", seed=7).seed == 7


def test_every_line_that_cannot_be_done_is_named():
    what = refused(
        "set sync_us 5000\nmutants 3\n100 power node=n1 keep=none for 9\n"
        "200 clock-jump node=n1 way=back ms=5 for 9\n300 trim partition=0\n"
        "400 partition side=n1 how=loud for 9\n500 disk-full node=n1 bytes=9 for 9\n"
        "600 crash node=n1+coordinator:0 for 9\n700 crash node=n1 for 9\n"
    )
    said = [line.strip() for line in what.splitlines()[1:]]
    assert [line.partition(":")[0] for line in said] == [
        f"line {number}" for number in (1, 3, 4, 5, 6, 7, 8)
    ]
    for word in ("set sync_us", "power", "clock", "trim", "how=silent", "bytes=0", "coordinator"):
        assert word in what


@pytest.mark.parametrize("kind", sorted(set(KINDS) - set(PLAYED)))
def test_each_other_kind_is_refused_by_name(kind):
    words = []
    for name, form in KINDS[kind].arguments:
        value = {"small": "0", "int": "0", "nodes": "n1"}.get(form, form.partition("|")[0])
        words.append(f"{name}={value}")
    assert f"line 1: {kind}" in refused(f"100 {kind} {' '.join(words)}\n")


def test_every_kind_that_is_played_is_one_of_the_simulators_and_is_done():
    assert set(PLAYED) <= set(KINDS)
    assert set(_STRIKES) == {kind for kind in PLAYED if KINDS[kind].by == "nemesis"}


def test_more_brokers_than_a_machine_takes():
    document = {"name": "x", "steps": [], "settings": [{"line": 1, "name": "brokers", "value": 10}]}
    with pytest.raises(PlanRefused, match="at most 9"):
        plan_of(document, "x.txt")


def test_errors_of_a_file_name_its_own_lines():
    """Regression: lines of `mutants` and `reaches` were not counted, so another line was named."""
    with pytest.raises(OperatingError) as caught:
        told("mine", "# A story.\nmutants 3\nreaches torn-tail-cut\n100 crash node=n9\n")
    assert caught.value.on == "mine, line 4"


def test_a_scenario_without_clients_gets_a_load_until_its_end():
    plan = planned("set partitions 2\n100 crash node=n1 for 900\n")
    kinds = [(each.kind, each.arguments["partition"]) for each in default_load(plan, 20, 100)]
    assert kinds == [("load", 0), ("reads", 0), ("load", 1), ("reads", 1)]
    (load, *_) = default_load(plan, 20, 100)
    assert load.arguments["count"] * load.arguments["every_ms"] == plan.lasts_ms == 1_000
