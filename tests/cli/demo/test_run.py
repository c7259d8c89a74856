"""The files that the demo writes beside its history."""

import json

import pytest

from raftlog.cli.demo.proof import Claim
from raftlog.cli.demo.run import DemoOutcome, _Demo
from raftlog.cli.main import run
from raftlog.runtime.real_ports import SystemClock
from raftlog.verify import Header, judge
from raftlog.verify.report.proof import data_of
from tests.verify.writing import poll, send, written


@pytest.mark.parametrize(("holds", "verdict"), [(True, "valid"), (False, "invalid")])
def test_a_claim_that_fell_is_in_the_verdict(holds, verdict, tmp_path):
    """verdict.json said valid when only the history was; the report's command to copy was `demo`,
    and its folder one below `runs/` wherever it was."""
    calls = (send(0, (1, 2), "k#1", 0), poll(1, (3, 4), (0, "k#1")))
    good = written(*calls, header=Header(source="demo"))
    (tmp_path / "history.jsonl").write_text(good)
    claim = Claim(name="dense", says="offsets are dense", holds=holds, evidence="a hole at 3")
    outcome = DemoOutcome(
        folder=tmp_path, claims=(claim,), faults=(), verdict="valid", metrics={"acknowledged": 1}
    )
    demo = _Demo(tmp_path, None, SystemClock(), 5000, print, False, "2026-01-01T00:00:00+00:00")
    demo._write_verdict(judge(good.splitlines(keepends=True)), outcome)
    document = json.loads((tmp_path / "verdict.json").read_text())
    assert (document["verdict"], document["history"]) == (verdict, "valid")
    page = (tmp_path / "report.html").read_text()
    fields = data_of(page)["commands"]
    assert fields == {"place": str(tmp_path), "kind": "demo", "rows": 5000, "folder": True}
    assert run(["verify", str(tmp_path), "--check-report", str(tmp_path / "report.html")]) == 0
