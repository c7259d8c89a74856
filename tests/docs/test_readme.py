"""README's first screen is true: its program prints what stands below it, its commands run."""

import re
import subprocess
import sys

import pytest

from raftlog.embed.cluster import Cluster
from tests.tidy.tree import ROOT

pytestmark = [pytest.mark.processes, pytest.mark.slow]

README = (ROOT / "README.md").read_text(encoding="utf-8")


BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```$", README, re.M | re.S)
"""Language and text of each fenced block, in the order of the page."""


def ran(*command: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False, **options
    )


def test_the_program_prints_what_the_page_says():
    (language, program), (_, output) = BLOCKS[:2]
    assert language == "python"
    assert len([line for line in program.splitlines() if line.strip()]) <= 16
    done = ran(sys.executable, "-c", program)
    assert done.returncode == 0, done.stderr
    brokers = re.compile(r"broker \d")
    assert brokers.sub("broker N", done.stdout) == brokers.sub("broker N", output)


def test_the_commands_of_the_four_uses_run(tmp_path):
    uses = re.findall(r"^\| .*? \| `(raftlog .*?)` \|", README, re.M)
    assert [use.split()[1] for use in uses] == ["sim", "verify"]
    history = tmp_path / "history.jsonl"
    simulated = ran(sys.executable, "-m", *uses[0].split(), "--out", str(tmp_path / "run"))
    assert simulated.returncode == 0, simulated.stderr
    history.write_bytes((tmp_path / "run" / "history.jsonl").read_bytes())
    words = [str(tmp_path / word) if "." in word else word for word in uses[1].split()]
    judged = ran(sys.executable, "-m", *words)
    assert judged.returncode == 0, judged.stderr
    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_replicated_log_is_where_the_page_says():
    import raftlog

    assert "`raftlog.ReplicatedLog`" in README
    with raftlog.ReplicatedLog(replicas=1) as log:
        assert log.append(b"first") == 0
    assert raftlog.Cluster is Cluster
