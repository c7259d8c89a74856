"""`raftlog incident`: looks into the recordings that a cluster has left, and plays them again.

Exit codes of `replay`: 0 every broker did the same again, 1 one did not.
"""

import argparse
from collections import Counter
from pathlib import Path
from typing import Any, Final

from raftlog.base.amounts import amount
from raftlog.base.errors import OperatingError
from raftlog.base.units import NANOS_PER_MILLI
from raftlog_sim.commands import common
from raftlog_sim.commands.debug import lines_of
from raftlog_sim.hunting.incident_stepper import Stepper
from raftlog_sim.incidents.incident_folder import BootFiles, IncidentFolder
from raftlog_sim.incidents.incident_replay import NO_END
from raftlog_sim.incidents.incident_scenario import scenario_of

_COMMAND: Final = "raftlog incident"


def add(parsers: common.Parsers) -> None:
    """Add `incident` to the commands."""
    parser = common.add_command(
        parsers, "incident", _incident, "look into recordings of brokers, and play them again",
        "incident replay failures/test_orders/recordings", of="raftlog",
    )  # fmt: skip
    parser.add_argument(
        "action", choices=sorted(_ACTIONS),
        help="show what was recorded; replay it and compare; step through the replay of one "
        "broker; or write a scenario of the same shape",
    )  # fmt: skip
    parser.add_argument("folder", type=Path, metavar="DIR", help="what Cluster(record=DIR) left")
    parser.add_argument(
        "boots", nargs="*", metavar="BOOT", help="n1, all boots of a broker, or n1-boot2; "
        "default: all",
    )  # fmt: skip


def _incident(options: argparse.Namespace) -> int:
    try:
        folder = IncidentFolder(options.folder)
        boots = folder.chosen(options.boots)
    except OperatingError as error:
        raise common.refused(error) from None
    return _ACTIONS[options.action](options, folder, boots)


# --- show -----------------------------------------------------------------------------------------


def _show(options: argparse.Namespace, folder: IncidentFolder, boots: list[BootFiles]) -> int:
    told = [_told(folder, boot) for boot in boots]
    if options.format == "json":
        common.print_json({"recordings": told, "payloads": folder.payload_count})
        return common.DONE
    for each in told:
        print(f"{each['name']}: {amount(each['turns'], 'turn')} in {each['ms']:.0f} ms")
        print(
            f"  made by   {', '.join(f'{name} {value}' for name, value in each['about'].items())}"
        )
        events = ", ".join(f"{count} {name}" for name, count in each["events"].items())
        print(f"  took      {events or 'nothing'}")
        print(f"  ended     {each['ended']}")
    print(f"{amount(folder.payload_count, 'payload')} beside them")
    return common.DONE


def _told(folder: IncidentFolder, boot: BootFiles) -> dict[str, Any]:
    recording = folder.recording(boot)
    events: Counter[str] = Counter()
    turns, last = 0, recording.begun_at
    for turn in recording.turns():
        turns, last = turn.number, turn.now
        events.update(recording.kinds(turn))
    return {
        "name": boot.name,
        "node": boot.node,
        "boot": boot.boot,
        "about": recording.about,
        "turns": turns,
        "ms": (last - recording.begun_at) / NANOS_PER_MILLI,
        "events": dict(sorted(events.items())),
        "ended": recording.ended or NO_END,
    }


# --- replay ---------------------------------------------------------------------------------------


def _replay(options: argparse.Namespace, folder: IncidentFolder, boots: list[BootFiles]) -> int:
    told = []
    for boot in boots:
        replay = folder.replay(boot)
        difference = replay.run()
        told.append(
            {
                "name": boot.name,
                "turns": replay.position,
                "equal": difference is None,
                "difference": None if difference is None else str(difference),
                "ended": replay.ended,
            }
        )
    equal = all(each["equal"] for each in told)
    if options.format == "json":
        common.print_json({"equal": equal, "replays": told})
    else:
        print("equal" if equal else "different")
        for each in told:
            what = f"the same; {each['ended']}" if each["equal"] else f"differs at {each['ended']}"
            print(f"{each['name']}: {amount(int(str(each['turns'])), 'turn')}, {what}")
    return common.DONE if equal else common.FAILED


# --- step -----------------------------------------------------------------------------------------


def _step(options: argparse.Namespace, folder: IncidentFolder, boots: list[BootFiles]) -> int:
    if len(boots) != 1:
        known = ", ".join(each.name for each in boots)
        raise common.UsageError(f"step plays one boot: name one of {known}", _COMMAND)
    stepper = Stepper(folder.replay(boots[0]))
    if options.format == "text":
        print(f"{boots[0].name}; `help` lists the commands")
    for line in lines_of(prompt=options.format == "text"):
        words = line.split()
        if words in (["quit"], ["exit"]):
            break
        try:
            answer = stepper.obey(words)
        except OperatingError as error:
            answer = [f"{error.what}: {error.do}"]
        if options.format == "json":
            common.print_json({"command": line, "turn": stepper.position, "answer": answer})
        else:
            print("\n".join(answer), flush=True)
    return common.DONE


# --- to-scenario ----------------------------------------------------------------------------------


def _to_scenario(
    options: argparse.Namespace, folder: IncidentFolder, boots: list[BootFiles]
) -> int:
    text = scenario_of(folder, boots)
    if options.format == "json":
        common.print_json({"scenario": text})
    else:
        print(text, end="")
    return common.DONE


_ACTIONS: Final = {
    "show": _show,
    "replay": _replay,
    "step": _step,
    "to-scenario": _to_scenario,
}
