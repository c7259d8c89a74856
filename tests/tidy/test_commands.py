"""Docs name every command, the simulator's too. tests/cli/test_main.py looks at their help."""

import re
from collections.abc import Iterator

import click
import pytest
from raftlog_sim.__main__ import parser

from raftlog.cli.main import cli
from raftlog.cli.sim import sim
from tests.tidy.tree import paths, text_of

REFERENCE = "docs/reference/command_line.md"


def walk(command: click.Command, path: str, context: click.Context) -> Iterator[tuple]:
    """(path, command) of a group and of all below it."""
    yield path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None, name
            yield from walk(below, f"{path} {name}", context)


EVERY = list(walk(cli, "raftlog", click.Context(cli)))
LEAVES = [(path, each) for path, each in EVERY if not isinstance(each, click.Group)]
SIM = next(each for each in parser()._actions if each.dest == "command").choices


def by_hand() -> str:
    """All pages that people wrote."""
    pages = [path for path in paths() if path.endswith(".md") and "docs/reference" not in path]
    return "\n".join(text_of(path) or "" for path in pages)


def unnamed(commands: list[str], text: str) -> list[str]:
    """Commands that a text does not name, as whole words."""
    return [each for each in commands if not re.search(rf"{re.escape(each)}(?![\w-])", text)]


def test_the_reference_has_every_command():
    headings = (text_of(REFERENCE) or "").splitlines()
    wanted = [path for path, _ in EVERY] + [f"raftlog sim {name}" for name in SIM]
    assert [each for each in wanted if f"## {each}" not in headings] == []


def test_somebody_wrote_about_every_command():
    wanted = [path for path, _ in LEAVES] + [each.prog for each in SIM.values()]
    assert unnamed(wanted, by_hand()) == []


@pytest.mark.parametrize("name", SIM)
def test_every_argument_of_the_simulator_says_what_it_is(name):
    """Regression: nine said nothing, among them the ones that are needed most."""
    silent = [each.dest for each in SIM[name]._actions if not each.help]
    assert silent == []
    numbers = [each for each in SIM[name]._actions if each.type and each.default not in (None, [])]
    said = [each.dest for each in numbers if "default" in each.help]
    assert said == [each.dest for each in numbers]


def test_the_help_of_sim_lists_all_its_commands():
    """Regression: `turns` was missing."""
    listed = re.findall(r"^    (\w+)  +\w", sim.callback.__doc__, re.MULTILINE)
    assert sorted(listed) == sorted(SIM)


def test_the_reference_shows_the_options_for_help_as_they_are():
    """Regression: it had `--help`, and the simulator's tables had none."""
    page = text_of(REFERENCE) or ""
    assert page.count("\n  -h, --help ") == len(EVERY)
    assert page.count("| `-h, --help` |") == len(SIM)


@pytest.mark.parametrize("name", SIM)
def test_every_command_of_the_simulator_too(name):
    command = SIM[name]
    assert f"Example: {command.prog} " in command.epilog
    assert "--format" in command.format_help()


def test_a_command_that_nobody_names_is_found():
    assert unnamed(["raftlog up", "raftlog down"], "`raftlog up`, `raftlog downs`") == [
        "raftlog down"
    ]
