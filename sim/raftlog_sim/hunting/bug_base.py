"""The bug base: a folder for each failing seed, with all that repeats it and a page for people.

    bugs/<failure class>-<seed>/
      run.json ...     the run folder of the whole plan, and of which commit it is
      schedule.json    the plan (plan.txt: of guests)
      shrunk.json      the smallest part found that fails alike (shrunk.txt)
      story.md         what failed, how to repeat it, what happened
      seen.jsonl       a line for each time that it was met

Failures of one cause have one signature. The first few seeds of a signature get a folder, the first
of them is shrunk, and others are lines in its `seen.jsonl`. Existing files are never overwritten.
"""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, final

import attrs

from raftlog.base.errors import OperatingError
from raftlog_sim.base.minimise import Effort
from raftlog_sim.hunting.bug import Bug
from raftlog_sim.hunting.bug_story import Shrunk, log_story, story
from raftlog_sim.hunting.shrink import shrink_case
from raftlog_sim.hunting.trials import ALONE, Helpers
from raftlog_sim.playing.cases import Case, read_text
from raftlog_sim.playing.run_folder import put, put_json, utc_text, write

FOLDERS_A_SIGNATURE: Final = 3
NAME_CHARS_MAX: Final = 60
MANIFEST: Final = "run.json"
STORY: Final = "story.md"
SEEN: Final = "seen.jsonl"
LOG: Final = "output.log"
FOLDERS_MAX: Final = 10_000
LOG_BYTES_MAX: Final = 4 << 20
_FAILED_TEST: Final = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


@final
@attrs.define(eq=False)
class BugBase:
    """A folder of bugs. `home` need not exist yet."""

    home: Path
    _filed: list[tuple[Path, Bug]] = attrs.Factory(list)
    """The folders made by this process, in order, with their bugs."""

    def file(self, bug: Bug) -> Path:
        """File a bug; returns its folder.

        The folder may be new, or there already. When the signature has enough folders, it is the
        first one.
        """
        alike = self._alike(bug.cause)
        folder = self._folder_of(bug)
        again = next((each for each in alike if each == folder), None)
        if again is None and len(alike) >= FOLDERS_A_SIGNATURE:
            again = alike[0]
        self._seen(again or folder, bug)
        if again is not None:
            return again
        circumstances = bug.circumstances
        if bug.play is not None:
            bug = attrs.evolve(bug, outcome=bug.play())
        if bug.outcome is not None:
            write(folder, bug.case, bug.outcome, circumstances)
        put(folder / bug.case.file_name, bug.case.text())
        document = _document_of(folder) | {
            "seed": bug.case.seed, "failure": bug.failure, "signature": bug.signature,
            "cause": bug.cause, "commit": circumstances.commit, "mutant": circumstances.mutant,
        }  # fmt: skip
        put_json(folder / MANIFEST, document)
        first = alike[0].name if alike else ""
        put(folder / STORY, story(folder, bug, Shrunk(why_not=_why_not(bug, first))))
        self._filed.append((folder, bug))
        return folder

    def shrink(self, effort_of: Callable[[], Effort], helpers: Helpers = ALONE) -> list[Path]:
        """Shrink one bug of each signature filed here that has no shrunk one yet; returns their
        folders."""
        found = []
        for folder, bug in self._filed:
            alike = self._alike(bug.cause)
            shrunk_name = shrunk_file_name(bug.case)
            if not _fails_again(bug) or any((each / shrunk_name).exists() for each in alike):
                continue
            assert bug.outcome is not None, folder
            effort = effort_of()
            if not effort.may_go_on():
                continue
            small = shrink_case(bug.case, bug.outcome, effort, helpers)
            outcome = small.play(trace=True)
            put(folder / shrunk_name, small.text())
            shrunk = Shrunk(case=small, outcome=outcome, effort=effort)
            put(folder / STORY, story(folder, bug, shrunk))
            found.append(folder)
        return found

    def _folder_of(self, bug: Bug) -> Path:
        """Returns a folder name that is free, or that has this bug already."""
        stem = f"{name_of(bug.failure_class)}-{bug.case.seed}"
        for number in range(1, FOLDERS_MAX):
            folder = self.home / (stem if number == 1 else f"{stem}-{number}")
            if not folder.exists() or _document_of(folder).get("cause") == bug.cause:
                return folder
        raise OperatingError("too many bugs of one name", on=stem, do="clear the bug base")

    def _alike(self, cause: str) -> list[Path]:
        """Returns the folders of that cause, by name."""
        if not self.home.is_dir():
            return []
        folders = sorted(path for path in self.home.iterdir() if (path / MANIFEST).is_file())
        return [path for path in folders if _document_of(path).get("cause") == cause]

    def _seen(self, folder: Path, bug: Bug) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        row = {"seed": bug.case.seed, "when": utc_text(), "commit": bug.circumstances.commit}
        with (folder / SEEN).open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(row) + "\n")


def file_log(home: Path, part: str, command: list[str], code: int, log: Path, of: str) -> Path:
    """File the failure of something that is no case, one folder for each failed test.

    The folder has the output `log`, the command that repeats it, and the commit `of`.
    """
    said = read_text_lossy(log)
    tests = [*dict.fromkeys(_FAILED_TEST.findall(said))]
    failure = f"{part}: {', '.join(tests[:5]) or f'exit code {code}'}"
    folder = home / f"{part}-{name_of(tests[0].rpartition('/')[2]) if tests else f'exit-{code}'}"
    new = not (folder / MANIFEST).exists()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / SEEN).open("a", encoding="utf-8") as stream:
        stream.write(json.dumps({"when": utc_text(), "commit": of}) + "\n")
    if new:
        put(folder / LOG, said)
        put(folder / STORY, log_story(failure, command, said, of))
        document = {"version": 1, "command": command, "failure": failure, "signature": failure,
                    "commit": of, "exit_code": code, "cause": failure}  # fmt: skip
        put_json(folder / MANIFEST, document)
    return folder


def read_text_lossy(path: Path) -> str:
    """Returns the end of a file as text, whatever its bytes."""
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - LOG_BYTES_MAX))
        return stream.read().decode("utf-8", errors="replace")


def shrunk_file_name(case: Case) -> str:
    """Returns the name of the shrunk case beside `schedule.json`: `shrunk.json`."""
    return f"shrunk{Path(case.file_name).suffix}"


def name_of(text: str) -> str:
    """Returns a text as the name of a folder."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:NAME_CHARS_MAX] or "unnamed"


def commit() -> str:
    """Returns this checkout's commit, with `-dirty` when files differ from it; "" without a
    checkout."""
    here = str(Path(__file__).resolve().parent)
    command = ["git", "-C", here, "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _fails_again(bug: Bug) -> bool:
    return bug.outcome is not None and bug.outcome.signature == bug.signature


def _why_not(bug: Bug, first: str) -> str:
    if bug.outcome is None:
        return "its process died, so it is not run in another one"
    if not _fails_again(bug):
        return f"run again it gave another result: {bug.outcome.failure[:300] or 'ok'}"
    if first:
        return f"the first of this kind is: `{first}`"
    return "there was no time"


def _document_of(folder: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_text(folder / MANIFEST))
    except (OperatingError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
