"""A folder with product and simulator compiled, and whether it is of the sources at hand.

`scripts/compile` makes it. `compiled.json` in it: `{"sources": <SHA-256 of all modules, and of what
compiles them>, "python": <tag of the interpreter's binary interface>, "modules": <how many are
compiled>, "libraries": <how many shared libraries there are>}`.
"""

import json
import sysconfig
from hashlib import sha256
from pathlib import Path
from typing import Final

import raftlog
import raftlog_sim
from raftlog.base.errors import OperatingError

PACKAGES: Final = {
    Path("raftlog"): Path(raftlog.__file__).parent,
    Path("raftlog_sim"): Path(raftlog_sim.__file__).parent,
}
"""Package -> the folder of its sources."""
_COMPILING: Final = PACKAGES[Path("raftlog_sim")].parents[1] / "scripts" / "compiling"
_SAID: Final = "compiled.json"


class UnusableBuildError(OperatingError):
    """The folder is not the result of `scripts/compile` for these sources and this interpreter."""


def sources_digest() -> str:
    """Returns the digest of all modules of both packages, and of the scripts that compile them."""
    digest = sha256()
    for package, source in {**PACKAGES, Path("compiling"): _COMPILING}.items():
        for path in sorted(source.rglob("*.py")):
            content = path.read_bytes()
            digest.update(f"{package / path.relative_to(source)} {len(content)}\n".encode())
            digest.update(content)
    return digest.hexdigest()


def say_what(folder: Path, sources: str, modules: int) -> None:
    """Write `compiled.json`, as the last step of a build.

    `sources` is the `sources_digest` from before the build.
    """
    said = {
        "sources": sources,
        "python": _binary_interface(),
        "modules": modules,
        "libraries": _libraries(folder),
    }
    (folder / _SAID).write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")


def check(folder: Path) -> None:
    """Raise `UnusableBuildError` unless the folder is a complete build of the sources at hand."""
    try:
        said = json.loads((folder / _SAID).read_text(encoding="utf-8"))
        sources, python, libraries = said["sources"], said["python"], said["libraries"]
    except (OSError, ValueError, KeyError, TypeError):
        raise UnusableBuildError(
            "is no compiled build", on=str(folder), do="run scripts/compile, and name its folder"
        ) from None
    if python != _binary_interface():
        raise _unusable(folder, f"was compiled for {python}, this is {_binary_interface()}")
    if sources != sources_digest():
        raise _unusable(folder, "was compiled of other sources")
    if libraries != (found := _libraries(folder)):
        raise _unusable(folder, f"has {found} libraries of {libraries}")


def _libraries(folder: Path) -> int:
    return sum(1 for _ in folder.rglob("*.so"))


def _unusable(folder: Path, why: str) -> UnusableBuildError:
    return UnusableBuildError(why, on=str(folder), do=f"run scripts/compile --out {folder}")


def _binary_interface() -> str:
    return str(sysconfig.get_config_var("SOABI"))
