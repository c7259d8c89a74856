"""The guide's code runs, block after block, like a notebook."""

import re

import pytest

from tests.tidy.tree import ROOT

pytestmark = [
    pytest.mark.processes,
    pytest.mark.needs_command("java"),
    pytest.mark.filterwarnings("ignore"),
]

GUIDE = ROOT / "docs" / "guides" / "spark.md"


def test_the_notebook_runs(spark, cluster, client):
    client.create_topic("orders", partitions=3, replication_factor=3)
    cells = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(cells) >= 6
    names = {"bootstrap": cluster.bootstrap_servers}
    for number, cell in enumerate(cells):
        exec(compile(cell, f"spark.md, cell {number}", "exec"), names)
    assert names["spark"] is spark
