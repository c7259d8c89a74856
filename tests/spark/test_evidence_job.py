"""What brokers told of themselves: a history that is invalid only by that is never valid here."""

import io

import pytest

from raftlog.spark.history_table import history_to_parquet, read_history
from raftlog.spark.verify_job import judge_history
from raftlog.verify import check_history
from tests.verify.writing import KEY, poll, send, written

pytestmark = [pytest.mark.needs_command("java"), pytest.mark.filterwarnings("ignore")]


def test_a_watermark_that_went_back_is_no_pass(spark, tmp_path):
    text = written(
        send(0, (1, 2), "#0", 0),
        poll(1, (7, 8), (0, "#0"), node="n1", hw={KEY: 3}),
        poll(2, (9, 10), (0, "#0"), node="n1", hw={KEY: 2}),
        final_read=False,
    )
    (tmp_path / "history.jsonl").write_text(text)
    assert [found.name for found in check_history(io.StringIO(text)).failures()] == [
        "hw-regression"
    ]
    history_to_parquet(spark, tmp_path, tmp_path / "parquet")
    found = judge_history(spark, read_history(spark, tmp_path / "parquet"))
    assert (found.verdict, found.exit_code) == ("unknown", 2)
    left = {name for name, result in found.classes.items() if result.status == "unknown"}
    assert left == {"hw-regression", "read-above-hw", "truncated-below-hw", "fork"}
    assert all(name in found.notes[0] for name in left)
    assert "raftlog verify" in found.notes[0]
