"""Every command has help, an example, JSON and exit codes, and never prints a traceback."""

import json
import subprocess
import sys
from importlib.metadata import version

import click
import pytest

from raftlog.base.errors import OperatingError
from raftlog.cli import main
from raftlog.cli.main import COMMANDS, cli, run

# Runs another program, which has its own help and formats.
PASSES_ON = {"sim", "incident"}


def walk(command=cli, path=()):
    """Every command with its path, groups included."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            found = command.get_command(context, name)
            assert found is not None, (path, name)
            yield from walk(found, (*path, name))


ALL = [(path, command) for path, command in walk() if path]
PATHS = [path for path, _ in ALL]


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_every_command_has_help_with_an_example(path, raftlog):
    ran = raftlog(*path, "--help")
    assert ran.code == 0
    assert "Usage: raftlog " + " ".join(path) in ran.out
    assert "Example" in ran.out
    example = ran.out[ran.out.index("Example") :]
    assert "raftlog " + " ".join(path) in example, "the example shows the command itself"
    assert max(map(len, ran.out.splitlines())) <= 100


@pytest.mark.parametrize(
    "path",
    [
        path
        for path, command in ALL
        if not isinstance(command, click.Group) and path[0] not in PASSES_ON
    ],
    ids=" ".join,
)
def test_every_command_prints_json_when_asked(path):
    command = dict(ALL)[path]
    forms = [option for option in command.params if "--format" in option.opts]
    assert len(forms) == 1
    assert "json" in forms[0].type.choices


@pytest.mark.parametrize("path", PATHS, ids=" ".join)
def test_every_option_says_what_it_is(path):
    for option in dict(ALL)[path].params:
        if isinstance(option, click.Option):
            assert option.help, option.opts


@pytest.mark.parametrize("path", [path for path in PATHS if path[0] not in PASSES_ON], ids=" ".join)
def test_wrong_usage_is_64_or_for_kafkas_tools_1(path, raftlog):
    ran = raftlog(*path, "--no-such-option")
    assert ran.code == (1 if path[0].startswith("kafka-") else 64)
    assert "no-such-option" in ran.err
    assert ran.out == ""


def test_the_overview_names_every_command_without_loading_it(raftlog):
    ran = raftlog("--help")
    assert ran.code == 0
    for name, (_, _, text) in COMMANDS.items():
        assert name in ran.out
        assert text.endswith(".")


@pytest.mark.parametrize("path", [(), ("topics",), ("cluster",)], ids=" ".join)
def test_a_group_alone_shows_its_help_and_is_wrong_usage(path, raftlog):
    """It said "raftlog: Usage: ..." and, below the help, to see the help; `raftlog` alone ended in
    a traceback."""
    ran = raftlog(*path)
    assert (ran.code, ran.out) == (64, "")
    assert ran.err.startswith("Usage: raftlog")
    assert "Commands:" in ran.err
    assert ran.err.rstrip().endswith(raftlog(*path, "--help").out.rstrip()[-40:])


def test_unknown_commands_are_wrong_usage(raftlog):
    assert raftlog("nonsense").code == 64
    error = raftlog("nonsense", "--format", "json").json_error
    assert "nonsense" in error["what"]
    assert "--help" in error["do"]


@pytest.mark.parametrize("form", [("--format", "json"), ("--format=json",)])
def test_version_is_one_document_under_format_json(form, raftlog):
    for arguments in ((*form, "--version"), ("--version", *form)):
        told = raftlog(*arguments)
        assert told.code == 0
        assert told.json["raftlog"] == version("raftlog")
        assert told.json["peer_protocol"]["min"] <= told.json["peer_protocol"]["max"]
    assert raftlog("--format", "text", "--version").out == raftlog("--version").out
    misplaced = raftlog(*form, "topics", "list")
    assert misplaced.code == 64
    assert "behind the command" in misplaced.json_error["what"]


def test_version_tells_layout_and_protocol_levels(raftlog):
    ran = raftlog("--version")
    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0] == f"raftlog {version('raftlog')}"
    assert [line.partition(":")[0] for line in lines[1:]] == [
        "data directory layout",
        "peer protocol",
        "feature level",
        "Kafka APIs",
    ]
    assert "Fetch 4-18" in lines[4]


def raising(error):
    @click.command("raising")
    def command():
        raise error

    return command


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OperatingError("it broke", on="the thing", do="mend it"), 1),
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (click.ClickException("hm"), 1),
    ],
)
def test_errors_become_codes_and_lines(error, code, monkeypatch, raftlog):
    monkeypatch.setattr(main.cli, "get_command", lambda *_: raising(error))
    assert raftlog("raising").code == code


def test_an_error_is_one_line_with_advice_or_one_document(monkeypatch, raftlog):
    error = OperatingError("it broke", on="the thing", do="mend it")
    monkeypatch.setattr(main.cli, "get_command", lambda *_: raising(error))
    assert raftlog("raising").err == "raftlog: it broke (the thing)\n  mend it\n"
    monkeypatch.setattr(main, "_wants_json", lambda _: True)
    assert raftlog("raising").json_error == {
        "what": "it broke",
        "on": "the thing",
        "do": "mend it",
    }


def test_a_bug_is_not_hidden(monkeypatch):
    monkeypatch.setattr(main.cli, "get_command", lambda *_: raising(AssertionError("a bug")))
    with pytest.raises(AssertionError):
        run(["raising"])


def test_a_reader_that_has_enough_is_no_traceback():
    """`raftlog topics list | head`: the pipe breaks."""
    command = f"{sys.executable} -m raftlog --help | true"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""


def test_nothing_slow_is_loaded_for_the_overview():
    """Help and errors are quick: no trio, no client, no rich."""
    code = (
        "import sys; from raftlog.cli.main import run; run(['--help']); "
        "print(json.dumps(sorted(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", "import json; " + code], capture_output=True, text=True, check=True
    )
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert not {"trio", "rich", "raftlog.client.trio_driver", "raftlog.broker.broker"} & set(loaded)


def test_the_garbage_collector_waits_while_a_command_is_imported():
    program = (
        "import gc, json, click; from raftlog.cli.main import cli; seen = []\n"
        "gc.callbacks.append(lambda phase, told: seen.append(phase))\n"
        "cli.get_command(click.Context(cli), 'serve')\n"
        "print(json.dumps([seen.count('start'), gc.isenabled()]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    collections, collects = json.loads(done.stdout)
    assert collections <= 1  # that of what the import has made, when it is done
    assert collects
