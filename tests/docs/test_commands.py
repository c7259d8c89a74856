"""Every command of raftlog that a page or an error names exists, with the options that it names."""

import re
import shlex
from pathlib import Path

import click
import pytest

from raftlog.cli.main import cli

ROOT = Path(__file__).parents[2]
INLINE = re.compile(r"`(?:\.venv/bin/)?(raftlog [^`\n]+)`")
BLOCK = re.compile(r"^(?:\.venv/bin/)?(raftlog [^#|>\n]+)", re.MULTILINE)
FOREIGN = {"sim", "black-box"}
"""Groups whose commands are programs of their own, with their own options."""
NO_COMMANDS = {"raftlog chain 1"}
"""Texts that begin like one: this one stands in the hash of a chain (docs/internals/format.md)."""


def pages():
    yield ROOT / "README.md"
    yield from sorted((ROOT / "docs").rglob("*.md"))


def commands_of(text):
    blocks = "\n".join(re.findall(r"```[a-z]*\n(.*?)```", text, re.DOTALL)).replace("\\\n", " ")
    inline = INLINE.findall(re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return [line for line in (*inline, *BLOCK.findall(blocks)) if line not in NO_COMMANDS]


def problem(line):
    """Returns what is wrong with a command line; None when the command and its options exist."""
    words = shlex.split(line.rstrip(".,;:"))[1:]
    command, context = cli, click.Context(cli)
    at = 0
    for at, word in enumerate(words):  # noqa: B007 - used behind the loop
        if not isinstance(command, click.Group) or word.startswith("-"):
            break
        if word in FOREIGN:
            return None
        found = command.get_command(context, word)
        if found is None:
            return f"no command {word!r}"
        command = found
    else:
        return None
    known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
    known |= {"-h", "--help", "--version"}
    unknown = [word for word in words[at:] if re.match(r"--?[a-z]", word)]
    unknown = [word for word in unknown if word.split("=")[0] not in known]
    return f"no option {', '.join(unknown)}" if unknown else None


@pytest.mark.parametrize("page", list(pages()), ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_of_a_page_exist(page):
    wrong = [
        f"{line}: {found}"
        for line in commands_of(page.read_text(encoding="utf-8"))
        if (found := problem(line)) is not None
    ]
    assert wrong == []


def test_a_command_that_does_not_exist_is_found():
    assert problem("raftlog cluster -b ADDRESS") == "no option -b"
    assert problem("raftlog clusters status") == "no command 'clusters'"
    assert problem("raftlog cluster status -b ADDRESS --watch") is None
    assert commands_of("Say `raftlog up`.\n```sh\nraftlog down --dir \\\n x\n```\n") == [
        "raftlog up",
        "raftlog down --dir   x",
    ]
