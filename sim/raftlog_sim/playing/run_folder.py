"""Run folders: `run.json`, `trace.txt`, `history.jsonl`, `verdict.json`, and the case that replays.

`runs/<UTC yyyymmddThhmmss>-<command>-<seed>/` under the working directory unless told otherwise;
`runs/latest` points to the newest (docs/internals/history_format.md).
"""

import io
import json
import locale
import platform
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, final

import attrs

from raftlog.base.errors import OperatingError
from raftlog.verify import HistoryReader, judge
from raftlog.verify.empty_folders import removed_if_empty
from raftlog.verify.report.page import RunFolder, render
from raftlog.verify.report.proof import digest_of
from raftlog_sim.base.outcome import Outcome
from raftlog_sim.playing.cases import Case

LIBRARIES: Final = ("attrs", "cramjam", "crc32c", "lz4", "msgspec", "trio", "zstandard")
RUNS: Final = Path("runs")
LATEST: Final = "latest"
REPORT: Final = "report.html"


@final
@attrs.frozen(kw_only=True)
class Circumstances:
    """The part of run.json that the outcome does not give."""

    command: tuple[str, ...]
    began: str
    real_ns: int
    mutant: str = ""
    commit: str = ""
    """The commit of the checkout; only a bug base, which outlives many commits, sets it."""
    shrink: dict[str, Any] = attrs.Factory(dict)


def utc_text() -> str:
    """Returns the present time in UTC, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime())


def new_folder(command: str, seed: int, out: Path | None = None) -> Path:
    """Returns an existing folder: `out`, or a new one under `runs`, to which `latest` then
    points."""
    check_writable(RUNS if out is None else out)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        return out
    stem = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{command}-{seed}"
    name, number = stem, 1
    while (RUNS / name).exists():
        number += 1
        name = f"{stem}-{number}"
    (RUNS / name).mkdir(parents=True)
    aside = RUNS / f".{LATEST}-{name}"
    aside.symlink_to(name)
    aside.replace(RUNS / LATEST)
    return RUNS / name


def check_writable(folder: Path) -> None:
    """Raise `OperatingError` unless files can be written in the folder, or it can be made.

    It makes nothing, and is called before the work whose result goes there.
    """
    home = next(each for each in (folder, *folder.absolute().parents) if each.exists())
    try:
        with tempfile.TemporaryFile(dir=home):
            return
    except OSError as error:
        what = f"cannot be written: {error.strerror}"
        raise OperatingError(what, on=str(folder), do="name another folder") from None


def write(folder: Path, case: Case, outcome: Outcome, circumstances: Circumstances) -> None:
    """Write everything about a run, each file whole or not at all.
    be, on a full disk, the folder goes, too."""
    with removed_if_empty(folder):
        put(folder / case.file_name, case.text())
        put(folder / "history.jsonl", outcome.history)
        put(folder / "trace.txt", "".join(f"{line}\n" for line in outcome.trace))
        put_json(folder / "verdict.json", outcome.verdict)
        put_json(folder / "run.json", manifest(folder, case, outcome, circumstances))


def versions() -> dict[str, str]:
    """Returns the versions on which a run may depend beside its seed: look here when it does not
    replay."""
    found = {name: version(name) for name in LIBRARIES}
    return {
        "raftlog": version("raftlog"),
        "python": platform.python_version(),
        **found,
        "locale": locale.setlocale(locale.LC_ALL),
    }


def manifest(
    folder: Path, case: Case, outcome: Outcome, circumstances: Circumstances
) -> dict[str, Any]:
    """Returns the content of run.json."""
    mutant = f" --mutant {circumstances.mutant}" if circumstances.mutant else ""
    document = {
        "version": 1,
        "command": list(circumstances.command),
        "seed": outcome.seed,
        "subject": case.subject,
        "options": outcome.document.get("options", {}),
        "started": circumstances.began,
        "ended": utc_text(),
        "versions": versions(),
        "metrics": {
            "events": outcome.events,
            "simulated_ns": outcome.simulated_ns,
            "real_ns": circumstances.real_ns,
        },
        "failure": outcome.failure,
        "signature": outcome.signature,
        "trace_hash": outcome.trace_hash,
        "commands": {
            "replay": f"raftlog sim replay {folder / case.file_name}{mutant}",
            "shrink": f"raftlog sim shrink {folder / case.file_name}{mutant}",
            "debug": f"raftlog sim debug {folder / case.file_name}{mutant}",
            "judge again": f"raftlog verify {folder}",
        },
        "replicas": outcome.replicas,
        "probes": outcome.probes,
        "shrink": circumstances.shrink,
        "run": {key: value for key, value in outcome.document.items() if key != "options"},
    }
    if circumstances.mutant:
        document["mutant"] = circumstances.mutant
    return document


def report(folder: Path, outcome: Outcome) -> Path:
    """Let the judge of histories write the HTML report of a folder."""
    judgement = judge(HistoryReader(io.StringIO(outcome.history)))
    run = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    page = render(
        judgement,
        RunFolder(
            name=folder.name,
            run=run,
            invariants=outcome.verdict.get("invariants", {}),
            trace="".join(f"{line}\n" for line in outcome.trace),
            place=str(folder),
            history_sha256=digest_of(io.BytesIO(outcome.history.encode())),
        ),
    )
    put(folder / REPORT, page)
    return folder / REPORT


def put(path: Path, text: str) -> None:
    """Write a file, whole or not at all. Raises `OperatingError` when it cannot, on a full disk."""
    aside = path.with_name(f".{path.name}.tmp")
    try:
        aside.write_text(text, encoding="utf-8")
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        what = f"cannot be written: {error.strerror}"
        raise OperatingError(what, on=str(path), do="make room, or name another folder") from None


def put_json(path: Path, document: dict[str, Any]) -> None:
    """Write a document as JSON, as `put` does."""
    put(path, json.dumps(document, indent=1) + "\n")
