"""The expected table: whole, compared in both directions, written again by hand of a person."""

import contextlib
import json

import pytest
from outsiders import clients, features, main, matrix, page
from outsiders.matrix import Column
from outsiders.outcomes import Cell
from outsiders.programs import tool_calls
from outsiders.running import ProgramError

from raftlog.base.errors import OperatingError
from tests.tidy.tree import text_of

WORKS = Cell("works")
REFUSED = Cell("clear error", "groups are not served yet")


def column(version="1", **cells):
    return Column(version, cells)


def test_the_checked_in_table_has_every_cell():
    assert list(matrix.holes(matrix.load())) == []


def test_a_hole_is_found():
    table = dict(matrix.load())
    gone = table.pop("kcat")
    table["kafka-python"] = Column("1", {**gone.cells, "group": Cell("wrong")})
    del table["kafka-python"].cells["create"]
    found = list(matrix.holes(table))
    assert "kcat: not in the table" in found
    assert "kafka-python: create: no cell" in found
    assert "kafka-python: group: no reason" in found


def test_as_expected_there_is_no_difference():
    table = {"kcat": column(group=REFUSED, consume=WORKS)}
    other_words = Cell("clear error", "in other words")
    assert list(matrix.differences(table, {"kcat": column(group=other_words)})) == []


@pytest.mark.parametrize(
    ("seen", "line"),
    [
        (
            {"kcat": column(group=WORKS)},
            "kcat: group: expected clear error (groups are not served yet), saw works",
        ),
        (
            {"kcat": column(consume=Cell("wrong", "59 of 60"))},
            "kcat: consume: expected works, saw wrong (59 of 60)",
        ),
        ({"kcat": column("2", consume=WORKS)}, "kcat: version 2, the table is of 1"),
        ({"kcat": column(grow=WORKS)}, "kcat: grow: works, the table has no such cell"),
        ({"other": column()}, "other: the expected table does not have this client"),
    ],
)
def test_a_difference_in_either_direction_has_a_line(seen, line):
    table = {"kcat": column(group=REFUSED, consume=WORKS)}
    assert list(matrix.differences(table, seen)) == [line]


def test_a_table_is_read_as_it_was_written(tmp_path):
    table = {"kcat": column("1 (2)", group=Cell("hang", 'a "quoted" word'), consume=WORKS)}
    matrix.save(table, tmp_path / "table.json")
    read = matrix.load(tmp_path / "table.json")
    assert {name: (each.version, each.cells) for name, each in read.items()} == {
        "kcat": ("1 (2)", {"group": ("hang", 'a "quoted" word'), "consume": WORKS})
    }


def test_writing_keeps_the_reasons_of_what_did_not_change():
    before = {"kcat": column("1", group=REFUSED, consume=WORKS)}
    seen = {"kcat": column("2", group=Cell("clear error", "new"), consume=Cell("wrong", "59"))}
    after = matrix.merged(before, seen)["kcat"]
    assert (after.version, after.cells["group"], after.cells["consume"]) == (
        *("2", REFUSED),
        Cell("wrong", "59"),
    )


def test_the_text_has_a_mark_for_each_cell():
    text = matrix.to_text({"kcat": column(group=REFUSED), "aiokafka": column(group=WORKS)})
    row = next(line for line in text.splitlines() if line.startswith("group "))
    assert row.split() == ["group", "e", "+"]


def test_json_says_the_same():
    told = json.loads(matrix.to_json({"kcat": column(group=REFUSED, consume=WORKS)}))
    assert told["kcat"]["features"] == {
        "group": ["clear error", "groups are not served yet"],
        "consume": "works",
    }


def test_the_page_has_a_table_and_the_reasons():
    lines = page.lines({"kcat": column(group=REFUSED, consume=WORKS)})
    assert "| group | clear error |" in lines
    assert "| group | clear error | `groups are not served yet` |" in lines


def test_the_quick_part_has_the_clients_that_must_run():
    must = {"confluent-kafka", "kafka-python", "aiokafka", "kcat", "franz-go"}
    assert must <= {client.name for client in clients.CLIENTS if client.quick}


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-client"],
        ["--quick", "kcat"],
        ["--feature", "no-such"],
        ["--format", "xml"],
        ["kcat", "--feature", "stream"],
        ["kcat", "spark-connector", "--feature", "stream", "--write"],
        ["--quick", "--feature", "stream"],
    ],
)
def test_wrong_usage_has_its_code(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main.main(arguments)
    assert ended.value.code == 64
    assert "kcat" in capsys.readouterr().err


def test_a_client_without_its_toolchain_is_skipped_and_named():
    lacking = clients.BY_NAME["kcat"]._replace(needs=("no-such-program",))
    commands, skipped = main.prepared([lacking])
    assert commands == {}
    assert skipped["kcat"].startswith("there is no no-such-program")


def test_features_are_told_apart():
    assert len(set(main.EVERY_FEATURE)) == len(main.EVERY_FEATURE)


def test_the_calls_of_tools_belong_to_tools_alone():
    assert features.names_of("kcat") == features.NAMES
    own = features.names_of("kafka-tools-4")[len(features.NAMES) + 1 :]
    assert own == [*tool_calls.CALLS, *(each.name for each in features.TOOL_STORIES)]


def test_the_calls_of_tools_are_well_formed():
    """A plan is named where there is one; a refusal shows no output."""
    for name, call in tool_calls.CALLS.items():
        assert ("{plan}" in call.flags) == bool(call.plan), name
        assert not (call.shows and call.refused), name


@pytest.fixture
def command_line(monkeypatch):
    """The command line on a table of two clients, where the clients do as the test says."""

    def run(seen, skipped, *arguments):
        table = {
            "kcat": column(group=REFUSED, consume=WORKS),
            "franz-go": column(consume=WORKS),
        }
        monkeypatch.setattr(main.matrix, "load", lambda: table)
        monkeypatch.setattr(main, "prepared", lambda _: ({}, skipped))
        monkeypatch.setattr(main, "run_all", lambda *_: ({**table, **seen}, {}))
        monkeypatch.setattr(clients.Client, "lacks", lambda _: [])
        return main.main(list(arguments))

    return run


def test_a_run_as_expected_ends_well(command_line, capsys):
    assert command_line({}, {}, "--quick") == 0
    assert "2 clients, 3 cells, 0 not as expected, 0 clients skipped" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"no-client": {}}, "there is no client 'no-client'"),
        ({"kcat": {"stream": "works"}}, "kcat is not asked for 'stream'"),
        ({"kcat": {"group": ["fine", "a reason"]}}, "kcat: group: no outcome 'fine'"),
    ],
)
def test_a_table_of_what_there_is_not_is_refused(tmp_path, table, told):
    """Regression: an invented cell was found by nothing."""
    path = tmp_path / "table.json"
    columns = {name: {"version": "1", "features": cells} for name, cells in table.items()}
    path.write_text(json.dumps(columns))
    with pytest.raises(ValueError, match=told):
        matrix.load(path)


def test_a_reason_in_other_words_is_said_and_does_not_fail(command_line, capsys):
    other = {"kcat": column(group=Cell("clear error", "another reason"), consume=WORKS)}
    assert command_line(other, {}) == 0
    assert "in other words: kcat: group: clear error (another reason)" in capsys.readouterr().err


def test_a_cluster_that_ends_fails_every_client_that_is_left(monkeypatch, capsys):
    @contextlib.contextmanager
    def cluster(**_):
        yield None

    def run_one(_brokers, client, *_):
        if client.name == "kcat":
            raise OperatingError("broker 2 ended with -9")
        return column(consume=WORKS)

    monkeypatch.setattr(main, "cluster", cluster)
    monkeypatch.setattr(main, "_run_one", run_one)
    commands = {clients.BY_NAME[name]: [] for name in ("aiokafka", "kcat", "sarama")}
    seen, untold = main.run_all(commands, None)
    assert list(seen) == ["aiokafka"]
    assert untold == dict.fromkeys(("kcat", "sarama"), "the cluster: broker 2 ended with -9")


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (TimeoutError("20 s"), "the witness cannot make or read its topics: 20 s"),
        (ProgramError("no JSON"), "its program: no JSON"),
    ],
)
def test_a_client_without_its_cells_stops_no_other(monkeypatch, error, told):
    @contextlib.contextmanager
    def cluster(**_):
        yield LocalCluster

    class LocalCluster:
        places = ()

    def run_one(_brokers, client, *_):
        if client.name == "kcat":
            raise error
        return column(consume=WORKS)

    monkeypatch.setattr(main, "cluster", cluster)
    monkeypatch.setattr(main, "_run_one", run_one)
    seen, untold = main.run_all({clients.BY_NAME[name]: [] for name in ("kcat", "sarama")}, None)
    assert (list(seen), untold) == (["sarama"], {"kcat": told})


@pytest.mark.parametrize("quick", [[], ["--quick"]])
def test_one_broken_cell_fails_and_is_named(command_line, capsys, quick):
    broken = {"kcat": column(group=REFUSED, consume=Cell("wrong", "59 of 60"))}
    assert command_line(broken, {}, *quick) == 1
    told = capsys.readouterr().out
    assert "FAILED kcat: consume: expected works, saw wrong (59 of 60)\n" in told


def test_one_better_cell_fails_and_is_named(command_line, capsys):
    assert command_line({"kcat": column(group=WORKS, consume=WORKS)}, {}) == 1
    assert "FAILED kcat: group: expected clear error" in capsys.readouterr().out


def test_a_client_that_cannot_be_judged_fails(command_line, monkeypatch, capsys):
    command_line({}, {})
    monkeypatch.setattr(main, "run_all", lambda *_: ({}, {"kcat": "the witness cannot"}))
    assert main.main([]) == 1
    assert "FAILED kcat: the witness cannot" in capsys.readouterr().out


def test_a_skip_is_counted_and_fails_where_the_client_must_run(command_line, capsys):
    assert command_line({}, {"sarama": "there is no go"}) == 0
    told = capsys.readouterr()
    assert "1 clients skipped" in told.out
    assert "skipped: sarama: there is no go" in told.err
    assert command_line({}, {"franz-go": "there is no go"}, "--quick") == 1
    told = capsys.readouterr()
    assert "FAILED franz-go: there is no go" in told.out
    assert "not in the quick part: 13 clients: confluent-kafka-2.3" in told.err


# The README's names of the clients, and what it says that all of them can do.
README_NAMES = {
    "csharp-mono": "C#",
    "confluent-kafka-2.3": "confluent-kafka",
    "faststream": "FastStream",
    "sarama-default": "sarama",
    "sarama-newest": "sarama",
    "kafka-clients-3.9": "Java clients",
    "kafka-clients-4": "Java clients",
    "kafka-tools-3.9": "command-line tools",
    "kafka-tools-4": "command-line tools",
    "spark-connector": "Spark's own connector",
}
README_CLAIMS = [
    *(f"produce-{codec}" for codec in features.CODECS),
    *(f"acks-{acks}" for acks in features.ACKS),
    *("idempotent", "consume", "consume-time", "group", "create", "grow", "describe", "delete"),
]
README_REFUSES = {"transaction": "Transactions"}


def unkept(table, readme):
    """Yields the claims about clients that only the README or only the table has."""
    text = " ".join(readme.split())
    for name, each in table.items():
        if README_NAMES.get(name, name) not in text:
            yield f"{name} is not in the README"
        for claim in README_CLAIMS:
            if each.cells[claim].outcome not in ("works", "absent"):
                yield f"{name}: {claim}: {each.cells[claim].outcome}"
    for feature, words in README_REFUSES.items():
        works = any(each.cells[feature].outcome == "works" for each in table.values())
        if works == (f"* **{words}.**" in text):
            yield f"{words}: {'work' if works else 'do not work'}"


def test_the_readme_says_what_the_table_says():
    assert list(unkept(matrix.load(), text_of("README.md") or "")) == []


def test_a_readme_that_says_too_much_or_too_little_is_found():
    table = matrix.load()
    readme = text_of("README.md") or ""
    assert list(unkept(table, readme.replace("kafkajs", "k"))) == ["kafkajs is not in the README"]
    assert list(unkept(table, readme.replace("* **Transactions.**", ""))) == [
        "Transactions: do not work"
    ]
    broken = {**table["kcat"].cells, "acks-0": Cell("hang", "silent for 15 s")}
    broken["transaction"] = WORKS
    assert list(unkept({**table, "kcat": Column("1", broken)}, readme)) == [
        "kcat: acks-0: hang",
        "Transactions: work",
    ]
