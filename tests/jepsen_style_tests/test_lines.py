"""Clients in other languages: the line protocol, its breaches, and a program that lies."""

import json
import sys
from pathlib import Path

import pytest

from jepsen_style_tests import runner
from jepsen_style_tests.__main__ import main
from jepsen_style_tests.clients.choice import (
    MIXED,
    PROGRAMS,
    check_choice,
    client_name,
    open_client,
    read_commands,
)
from jepsen_style_tests.clients.face import CallRefused, ClientSettings, Unknown
from jepsen_style_tests.clients.lines import LineClient, LineProtocolError
from jepsen_style_tests.runner import RunPlan
from jepsen_style_tests.world import Nemesis
from raftlog.base.errors import OperatingError
from tests.jepsen_style_tests import line_subject

# Answers `open`, and then each request with the next of its arguments. `-` is no answer, `!` ends
# it; `{id}` becomes the request's number and `{last}` that of the request before it.
PROGRAM = """
import json, sys
answers = iter(sys.argv[1:])
last = 0
for line in sys.stdin:
    number = json.loads(line)["id"]
    said = next(answers, "!") if number else '{"id": {id}, "type": "ok"}'
    if said == "!":
        sys.exit("its last words")
    if said != "-":
        print(said.replace("{id}", str(number)).replace("{last}", str(last)), flush=True)
    last = number
"""
SETTINGS = ClientSettings(bootstrap="broker", seconds=30.0)
OK = '{"id": {id}, "type": "ok", "value": 7}'


@pytest.fixture
def opened():
    made = []

    def make(*answers, settings=SETTINGS):
        made.append(LineClient([sys.executable, "-c", PROGRAM, *answers], settings))
        return made[-1]

    yield make
    for client in made:
        client.close()


def test_an_ok_is_the_offset(opened):
    assert opened(OK).send("t", 0, "a") == 7


@pytest.mark.parametrize(("kind", "error"), [("fail", CallRefused), ("info", Unknown)])
def test_fail_is_certain_and_info_is_not(opened, kind, error):
    client = opened(f'{{"id": {{id}}, "type": "{kind}", "error": "why"}}', OK)
    with pytest.raises(error, match="why"):
        client.send("t", 0, "a")
    assert client.end("t", 0) == 7


def test_no_answer_is_unknown_and_a_late_one_is_dropped(opened):
    late = '{"id": {last}, "type": "ok", "value": 3}\n' + OK
    client = opened("-", late, settings=ClientSettings(bootstrap="broker", seconds=0.2))
    with pytest.raises(Unknown, match=r"send: no answer in 0\.4 s"):
        client.send("t", 0, "a")
    # A busy machine may take longer than this client waits, so this call has no limit to speak of.
    assert client._call(60.0, "end") == 7


def test_the_end_of_the_program_leaves_every_call_unknown(opened):
    client = opened("-", "!")
    told = []
    client.send_soon("t", 0, "a", lambda *answer: told.append(answer))
    with pytest.raises(Unknown, match="ended with 1: its last words"):
        client.end("t", 0)
    client.settle(30.0)
    [(offset, error)] = told
    assert offset is None
    assert isinstance(error, Unknown)
    with pytest.raises(Unknown, match="ended with 1"):
        client.send("t", 0, "b")


def test_a_program_that_ends_before_it_is_open_is_no_client():
    with pytest.raises(
        LineProtocolError, match="cannot be a client: the program ended with 1: no way"
    ):
        LineClient([sys.executable, "-c", "import sys; sys.exit('no way')"], SETTINGS)


@pytest.mark.parametrize(
    "line",
    [
        "hello",
        "[]",
        '{"id": 99, "type": "ok", "value": 7}',
        '{"id": {last}, "type": "ok", "value": 7}',
        '{"id": {id}, "type": "done", "value": 7}',
        '{"id": {id}, "value": 7}',
        *(f'{{"id": {{id}}, "type": "ok", "value": {value}}}' for value in ("true", "-1", '"7"')),
        '{"id": {id}, "type": "ok"}',
    ],
)
def test_a_breach_of_the_protocol_is_never_an_answer(opened, line):
    client = opened(line, OK)
    with pytest.raises((LineProtocolError, Unknown)):
        client.send("t", 0, "a")
    with pytest.raises(LineProtocolError):
        client.end("t", 0)


def test_records_of_a_poll_are_checked(opened):
    client = opened('{"id": {id}, "type": "ok", "value": [["t", 1, 5, "a"], ["t", 1, 6, "b"]]}')
    assert client.poll(0.1) == {"t/1": [[5, "a"], [6, "b"]]}
    client = opened('{"id": {id}, "type": "ok", "value": [["t", 1, "5", "a"]]}')
    with pytest.raises(LineProtocolError, match="no record"):
        client.poll(0.1)


def test_answers_come_in_any_order(opened):
    second_first = OK + '\n{"id": {last}, "type": "info", "error": "late"}'
    client = opened("-", second_first)
    told = {}
    client.send_soon("t", 0, "a", lambda *answer: told.update(a=answer))
    client.send_soon("t", 0, "b", lambda *answer: told.update(b=answer))
    client.settle(30.0)
    client.close()
    client.close()
    assert told["b"] == (7, None)
    assert (told["a"][0], str(told["a"][1])) == (None, "late")


# --- which clients there are ----------------------------------------------------------------------


def test_commands_are_read_as_they_were_written(tmp_path):
    file = tmp_path / "programs.json"
    file.write_text(json.dumps({"franz-go": ["/some/where", "a"]}))
    assert read_commands(file) == {"franz-go": ("/some/where", "a")}


@pytest.mark.parametrize(
    "text", ["", "[]", '{"franz-go": []}', '{"franz-go": "x"}', '{"sarama": ["x"]}', None]
)
def test_a_file_without_commands_is_refused(tmp_path, text):
    file = tmp_path / "programs.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(OperatingError, match=r"scripts/strangers --subjects"):
        read_commands(file)


def test_a_client_in_another_language_needs_its_program(tmp_path, capsys):
    with pytest.raises(OperatingError, match="--programs FILE"):
        check_choice("franz-go", {"kafka-clients": ("java",)})
    assert main(["run", "--client", "franz-go", "--out", str(tmp_path / "run")]) == 1
    assert "needs a program (--client franz-go): give --programs FILE" in capsys.readouterr().err


def test_mixed_takes_what_has_a_program():
    commands = dict.fromkeys(PROGRAMS, ("x",))
    assert {client_name(MIXED, number, commands) for number in range(5)} >= set(PROGRAMS)
    assert not {client_name(MIXED, number, {}) for number in range(5)} & set(PROGRAMS)


def test_a_client_of_this_name_is_its_program(opened):
    command = (sys.executable, "-c", PROGRAM, OK)
    client = open_client("franz-go", SETTINGS, {"franz-go": command})
    assert client.end("t", 0) == 7
    client.close()


# --- a program that lies --------------------------------------------------------------------------


def everyone_sleeps(world):
    """No call is answered for longer than a call may take."""
    yield 2.0
    world.pause(world.nodes)
    yield 8.0
    world.resume(world.nodes)
    yield 2.0


@pytest.mark.slow
@pytest.mark.processes
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("options", "verdict"), [([], "valid"), (["--lying"], "invalid")], ids=["honest", "lying"]
)
def test_a_program_that_turns_timeouts_into_ok_is_caught(tmp_path, options, verdict):
    """The same program under the same fault is valid while it says that it does not know."""
    programs = tmp_path / "programs.json"
    command = [sys.executable, str(Path(line_subject.__file__)), *options]
    programs.write_text(json.dumps({"franz-go": command}))
    nemesis = Nemesis(name="sleep", about="every broker sleeps", steps=everyone_sleeps)
    plan = RunPlan(
        workload="append",
        nemesis="sleep",
        seconds=30.0,
        seed=3,
        client="franz-go",
        programs=programs,
    )
    found = runner.run(plan, tmp_path, print, nemesis)
    assert found.verdict == verdict
    assert bool(found.counts.get("send info")) == (verdict == "valid")
    assert found.checks["test-ran"]["status"] == "held"
