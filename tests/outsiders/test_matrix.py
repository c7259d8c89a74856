"""The expected table: whole, compared in both directions, written again by hand of a person."""

import json

import pytest
from outsiders import clients, features, main, matrix, page
from outsiders.matrix import Column
from outsiders.outcomes import Cell
from outsiders.programs import tool_calls

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
    [["no-such-client"], ["--quick", "kcat"], ["--feature", "no-such"], ["--format", "xml"]],
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
    own = features.names_of("kafka-tools-4")[len(features.NAMES) :]
    assert own == list(tool_calls.CALLS)


def test_the_calls_of_tools_are_well_formed():
    """A plan is named where there is one; a refusal shows no output."""
    for name, call in tool_calls.CALLS.items():
        assert ("{plan}" in call.flags) == bool(call.plan), name
        assert not (call.shows and call.refused), name
