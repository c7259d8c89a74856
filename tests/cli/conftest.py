import io
import json
import sys

import attrs
import pytest

from raftlog.cli.main import run
from raftlog.embed.cluster import Cluster


@attrs.define(eq=False)
class Ran:
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def json(self):
        document = json.loads(self.out)
        assert document["version"] == 1
        return document

    @property
    def json_lines(self):
        lines = [json.loads(line) for line in self.out.splitlines()]
        assert all(line["version"] == 1 for line in lines)
        return lines

    @property
    def json_error(self):
        document = json.loads(self.err)
        assert document["version"] == 1
        assert set(document["error"]) == {"what", "on", "do"}
        return document["error"]


@pytest.fixture
def raftlog(capfd, monkeypatch):
    """Runs a command in this process: `raftlog("topics", "list", stdin=b"...")`."""

    def command(*arguments, stdin=b""):
        stream = io.TextIOWrapper(io.BytesIO(stdin))
        monkeypatch.setattr(sys, "stdin", stream)
        capfd.readouterr()
        code = run([str(each) for each in arguments])
        sys.stdout.flush()
        out, err = capfd.readouterr()
        assert "Traceback" not in out + err
        return Ran(code, out, err)

    return command


@pytest.fixture(scope="module")
def cluster():
    with Cluster(brokers=3, settings={"auto.create.topics.enable": "false"}) as running:
        yield running


@pytest.fixture
def on_cluster(raftlog, cluster):
    """The same, with `-b` for a running cluster of three."""

    def command(*arguments, stdin=b""):
        return raftlog(*arguments, "-b", cluster.bootstrap_servers, stdin=stdin)

    return command
