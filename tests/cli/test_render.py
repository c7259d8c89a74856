import json
import re
import sys

import pytest

from raftlog.cli.output.render import print_json, print_json_line, print_table, progress
from raftlog.cli.settings import parse_settings


def test_json_is_one_document_with_its_version(capsys):
    print_json({"a": "ä"})
    assert json.loads(capsys.readouterr().out) == {"version": 1, "a": "ä"}


def test_streams_are_a_document_a_line(capsys):
    print_json_line({"a": 1})
    print_json_line({"a": "two\nlines"})
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["a"] for line in lines] == [1, "two\nlines"]


def test_columns_are_as_wide_as_their_widest_cell(capsys):
    print_table(["A", "LONG"], [["wide cell", 1], ["b", ""]])
    assert capsys.readouterr().out == "A          LONG\nwide cell  1\nb\n"


def test_no_progress_without_a_terminal(capsys):
    with progress("working", 10) as advance:
        advance(5)
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize("total", [10, None])
def test_progress_is_on_standard_error_of_a_terminal(total, capsys, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    with progress("working", total) as advance:
        advance(5)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "working" in shown.err


@pytest.mark.parametrize(("total", "shown"), [(10, "5/10"), (None, "5")])
def test_a_bar_without_a_known_end_counts_and_shows_no_question_mark(
    total, shown, capsys, monkeypatch
):
    """rich shows an unknown end as `5/?`."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    with progress("working", total) as advance:
        advance(5)
    last = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err)
    assert shown in last
    assert "?" not in last


def test_settings_are_pairs():
    assert parse_settings((" a = b=c ", "a=d", "e=")) == {"a": "d", "e": ""}
    with pytest.raises(Exception, match="KEY=VALUE"):
        parse_settings(("novalue",))
