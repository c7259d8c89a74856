"""What the demo writes beside its history."""

import json

import pytest

from raftlog.cli.demo.proof import Claim
from raftlog.cli.demo.run import Outcome, _Demo
from raftlog.verify import judge
from tests.verify.writing import poll, send, written


@pytest.mark.parametrize(("holds", "verdict"), [(True, "valid"), (False, "invalid")])
def test_a_claim_that_fell_is_in_the_verdict(holds, verdict, tmp_path):
    """verdict.json said valid when only the history was; the report's command to copy was `demo`,
    and its folder one below `runs/` wherever it was."""
    good = written(send(0, (1, 2), "k#1", 0), poll(1, (3, 4), (0, "k#1")))
    claim = Claim(name="dense", says="offsets are dense", holds=holds, evidence="a hole at 3")
    outcome = Outcome(
        folder=tmp_path, claims=(claim,), faults=(), verdict="valid", metrics={"acknowledged": 1}
    )
    demo = _Demo(tmp_path, None, None, 5000, print, False)
    demo._write_verdict(judge(good.splitlines(keepends=True)), outcome)
    document = json.loads((tmp_path / "verdict.json").read_text())
    assert (document["verdict"], document["history"]) == (verdict, "valid")
    page = (tmp_path / "report.html").read_text()
    assert "raftlog demo --rows 5000" in page
    assert f"raftlog verify {tmp_path}" in page
