"""A run of the black-box tests that fails before it wrote anything leaves no folder in `runs`."""

import pytest
from click.testing import CliRunner

from jepsen_style_tests import __main__ as commands
from raftlog.base.errors import OperatingError


@pytest.mark.parametrize(
    "arguments",
    [
        ["run", "--workload", "append", "--nemesis", "none", "--time-limit", "1"],
        ["scenario", "nats-7567", "--time-limit", "1"],
        ["suite", "--minutes", "0.1"],
    ],
)
def test_a_run_that_failed_at_once_leaves_no_folder(arguments, tmp_path, monkeypatch):
    def refused(*_, **__):
        raise OperatingError("no broker starts")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(commands.runner, "run", refused)
    monkeypatch.setattr(commands.suite, "run", refused)
    assert CliRunner().invoke(commands.cli, arguments).exit_code != 0
    assert list(tmp_path.iterdir()) == []
