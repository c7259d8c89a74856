"""Have product and simulator compiled: copy, rewrite, number fields, mypyc, the C compiler.

    sources -> DIR/*.py, rewritten -> DIR/.build/c/*.c -> DIR/.build/o -> DIR/*.so

Tuned, the last two steps are taken twice: what the first compiled build counts while it plays some
seeds tells the C compiler which branches are taken (gcc's -fprofile-use).

Modules that are not compiled stay in DIR as the same Python, so that DIR is all that a process must
import from. `compiled.json` there says of which sources it is, and is written last. All is made in
DIR.new, which then takes the place of DIR.
"""

import argparse
import copy
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from mypyc.build import mypycify
from raftlog_sim.hunting.compiled_build import PACKAGES, say_what, sources_digest
from setuptools import Extension, setup  # before distutils, which it brings along

from distutils.ccompiler import CCompiler  # isort: skip

from compiling.forms import refused
from compiling.named_fields import number_fields
from compiling.rewriting import HELPERS, HELPERS_TEXT, RewritingError, Tree

FOLDERS = [
    "raftlog/base",
    "raftlog/records",
    "raftlog/raft",
    "raftlog/storage",
    "raftlog/kafka",
    "raftlog/metadata",
    "raftlog/partition",
    "raftlog/broker",
    "raftlog/client/core",
    "raftlog/verify",
    "raftlog_sim",
]
# Modules that stay Python, with the reason.
LEFT_OUT = {
    "raftlog/base/_compiled.py": "helpers for attrs itself",
    "raftlog/kafka/error_codes.py": "an enum with a __new__ of its own",
    "raftlog/verify/imports/edn.py": "inherits from str",
    "raftlog/verify/judging/facts.py": "msgspec.Struct has a metaclass",
    "raftlog/verify/histories/history.py": "msgspec.Struct has a metaclass",
    "raftlog/verify/histories/history_reader.py": "msgspec.Struct has a metaclass",
    "raftlog/verify/histories/interval.py": "msgspec.Struct has a metaclass",
    "raftlog/verify/histories/pairing.py": "msgspec.Struct has a metaclass",
    "raftlog/verify/histories/pairs.py": "msgspec.Struct has a metaclass",
    "raftlog/verify/__init__.py": "it loads two of its names on first use, by __getattr__, which a "
    "compiled package is asked for before its own names are there",
    "raftlog_sim/__init__.py": "empty",
    "raftlog_sim/__main__.py": "a program",
    "raftlog_sim/hunting/spark_sweep.py": "Spark's types",
    "raftlog_sim/playing/stepping.py": "an attribute whose name is a word of C",
    "raftlog_sim/hunting/workers.py": "starts processes",
}
LEFT_OUT_BEGINNINGS = (
    "raftlog_sim/shell/",
    "raftlog_sim/commands/",
    "raftlog_sim/subjects/",
    # Compiled runs are not recorded.
    "raftlog/broker/incident/",
    "raftlog_sim/incidents/",
    "raftlog_sim/hunting/incident_stepper.py",
)
# The linker need not look up calls between modules by name at run time, and may inline them.
FLAGS = ["-fvisibility=hidden", "-fno-semantic-interposition", "-fno-plt"]
COUNTING = ["-fprofile-generate", "-fprofile-update=single"]
COUNTED = ["-fprofile-use", "-fprofile-partial-training", "-Wno-missing-profile"]
TRAINING = Path(__file__).with_name("training.py")
MARK = ".raftlog-compiled"
"""A file that marks a folder, from its beginning on, as one that may be removed."""
USAGE = 64
SETTINGS = "[mypy]\npython_version = 3.11\nignore_missing_imports = True\n"


def copy_rewritten(folder: Path) -> int:
    """Copy both packages, rewritten; returns how many modules there are."""
    modules, others = {}, []
    for package, source in PACKAGES.items():
        for path in sorted(source.rglob("*")):
            relative = package / path.relative_to(source)
            if path.suffix == ".py":
                modules[_module(relative)] = path
            elif path.is_file() and "__pycache__" not in path.parts:
                others.append((path, relative))
    tree = Tree(modules)
    for module, path in modules.items():
        package = Path(module.partition(".")[0])
        _write(folder / package / path.relative_to(PACKAGES[package]), tree.rewritten(module))
    for path, relative in others:
        (folder / relative).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, folder / relative)
    _write(folder / (HELPERS.replace(".", "/") + ".py"), HELPERS_TEXT)
    return len(modules)


def compiled_paths(folder: Path) -> list[str]:
    """Returns the modules that are compiled, relative to the folder."""
    paths = [
        path.relative_to(folder).as_posix()
        for each in FOLDERS
        for path in sorted((folder / each).rglob("*.py"))
    ]
    return [path for path in paths if _is_taken(path)]


def check_forms() -> None:
    """Raise `RewritingError` when mypyc compiles a module to something else than it says
    (`forms`)."""
    found = [
        f"{path}:{each.line}: {each.what}; {each.do}"
        for package, source in PACKAGES.items()
        for path in sorted(source.rglob("*.py"))
        if _is_compiled((package / path.relative_to(source)).as_posix())
        for each in refused(path.read_text("utf-8"))
    ]
    if found:
        raise RewritingError("\n".join(found))


def c_sources(paths: list[str], optimise: str) -> list[Extension]:
    """Returns the C sources that mypyc makes of the modules, in the current folder."""
    return mypycify(
        ["--config-file", "mypy.ini", *paths],
        opt_level=optimise,
        debug_level="0",
        multi_file=True,
        target_dir=".build/c",
        group_name="raftlog",
    )


def compile_c(extensions: list[Extension], more: list[str]) -> None:
    """Run the C compiler and the linker, in the current folder, with more flags."""
    CCompiler.compile = _compile_side_by_side
    with_flags = copy.deepcopy(extensions)
    for each in with_flags:
        each.extra_compile_args += [*FLAGS, *more]
        each.extra_link_args += more
    setup(
        name="raftlog-compiled",
        packages=[],
        ext_modules=with_flags,
        script_args=[
            "-q", "build_ext", "--force", "--inplace", "-t", ".build/o", "-b", ".build/lib"
        ],
    )  # fmt: skip


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(USAGE, f"compile: {message}\n  see scripts/compile --help\n")


def main(arguments: list[str]) -> int:
    parser = Parser(
        prog="scripts/compile",
        description="Compile product and simulator.",
        epilog="Example: scripts/compile --tuned",
    )
    parser.add_argument(
        "--out", type=Path, default=Path("build/compiled"), metavar="DIR",
        help="a folder that is not there, is empty or was made by this; from the repository's root",
    )  # fmt: skip
    parser.add_argument("--optimise", choices=("0", "1", "2", "3"), default="2")
    parser.add_argument("--tuned", action="store_true", help="twice as long; a tenth faster (gcc)")
    options = parser.parse_args(arguments)
    _need_a_compiler()
    folder = options.out.absolute()
    draft = folder.with_name(folder.name + ".new")
    for each in (folder, draft):
        if why := why_not_ours(each):
            parser.error(f"{each} {why}; it would be removed. Name another folder")
    check_forms()
    began, sources = time.perf_counter(), sources_digest()
    empty(draft)
    _write(draft / "mypy.ini", SETTINGS)
    modules = copy_rewritten(draft)
    _tell(began, f"{modules} modules rewritten")
    os.chdir(draft)
    paths = compiled_paths(draft)
    count = number_fields(paths, "mypy.ini")
    _tell(began, f"{count['numbered']} fields of named tuples numbered")
    extensions = c_sources(paths, options.optimise)
    if options.tuned:
        compile_c(extensions, COUNTING)
        _tell(began, "compiled to count, plays seeds")
        command = [sys.executable, str(TRAINING)]
        told = subprocess.run(command, check=False, env=os.environ | {"PYTHONPATH": str(draft)})
        if told.returncode:
            sys.exit(f"error: what was compiled to count ended with code {told.returncode}")
    compile_c(extensions, COUNTED if options.tuned else [])
    shutil.rmtree(draft / ".build")
    shutil.rmtree(draft / ".mypy_cache", ignore_errors=True)
    if sources_digest() != sources:
        sys.exit("error: the sources were changed meanwhile. Run it again")
    say_what(draft, sources, len(paths))
    if folder.exists():
        shutil.rmtree(folder)
    draft.rename(folder)
    _tell(began, f"{len(paths)} modules compiled into {folder}")
    return 0


def why_not_ours(folder: Path) -> str:
    """Returns why a folder must not be removed; "" when it may."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        return "is no folder"
    marked = (folder / MARK).is_file()
    return "" if marked or not folder.exists() or not any(folder.iterdir()) else "has other files"


def empty(folder: Path) -> None:
    """Remove everything in the folder, and make it again, marked."""
    if folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    _write(folder / MARK, "made by scripts/compile, which may remove it\n")


def _compile_side_by_side(self, sources, output_dir=None, macros=None, include_dirs=None, debug=0,
                          extra_preargs=None, extra_postargs=None, depends=None):  # fmt: skip
    """Compile several files at a time; distutils compiles one after the other."""
    macros, objects, extra_postargs, preprocess, files = self._setup_compile(
        output_dir, macros, include_dirs, sources, depends, extra_postargs
    )
    arguments = self._get_cc_args(preprocess, debug, extra_preargs)

    def one(target):
        source, extension = files[target]
        self._compile(target, source, extension, arguments, extra_postargs, preprocess)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(one, objects))
    return objects


def _is_compiled(path: str) -> bool:
    return path.startswith(tuple(f"{each}/" for each in FOLDERS)) and _is_taken(path)


def _is_taken(path: str) -> bool:
    return path not in LEFT_OUT and not path.startswith(LEFT_OUT_BEGINNINGS)


def _need_a_compiler() -> None:
    compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
    header = Path(sysconfig.get_path("include")) / "Python.h"
    for what, found in ((compiler, shutil.which(compiler)), (str(header), header.exists())):
        if not found:
            sys.exit(f"error: {what} is missing. On Debian: apt-get install gcc python3-dev")


def _module(relative: Path) -> str:
    return relative.with_suffix("").as_posix().removesuffix("/__init__").replace("/", ".")


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _tell(began: float, what: str) -> None:
    print(f"{time.perf_counter() - began:5.0f} s  {what}", flush=True)
