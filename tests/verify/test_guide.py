"""The guide's Python runs as it stands, and its samples are what it says."""

import re

import pytest

from raftlog.cli.main import run
from raftlog.verify import Model, check_history
from tests.tidy.tree import ROOT
from tests.verify.sample_runs import write_folder
from tests.verify.writing import op, poll, send, written

GUIDE = (ROOT / "docs" / "guides" / "verify.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", GUIDE, re.S)


def test_the_three_lines(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = written(send(0, (1, 2), "k#1", 0), poll(1, (3, 4), (0, "k#1")))
    (tmp_path / "history.jsonl").write_text(text)
    snippet = SNIPPETS[0].replace('open("history.jsonl")', 'open("history.jsonl").readlines()')
    with pytest.warns(ResourceWarning):
        exec(snippet, {})
    assert capsys.readouterr().out == "valid []\n"


def test_the_register():
    space = {}
    exec(SNIPPETS[1], space)
    assert space["verdict"].classes["model"].status == "valid"


def test_your_own_model():
    space = {}
    exec(SNIPPETS[2], space)
    counter = space["COUNTER"]
    assert isinstance(counter, Model)
    text = written(op(0, "add", (1, 2), None), op(1, "get", (3, 4), None, 1))
    assert check_history(text.splitlines(), model=counter).exit_code == 0
    assert check_history(text.replace("1}", "2}").splitlines(), model=counter).exit_code == 1


@pytest.mark.parametrize(("kind", "code"), [("passing", 0), ("failing", 1)])
def test_the_samples(kind, code, tmp_path, capsys):
    folder, report = tmp_path / kind, tmp_path / "report.html"
    write_folder(kind, folder)
    assert run(["verify", str(folder), "--report", str(report)]) == code
    assert report.stat().st_size > 50_000
    assert f"report: {report}" in capsys.readouterr().out


def test_every_sample_command_is_there():
    for kind in ("failing", "passing", "long"):
        assert f"python -m tests.verify.sample_runs {kind} build/{kind}" in GUIDE
        assert f"raftlog verify build/{kind} --report build/{kind}.html" in GUIDE
