"""Imports one module of the product with a mutant in it.

It is a plugin of pytest; elsewhere it must be imported first. RAFTLOG_MADE_MUTANT names the JSON
file that tells which mutant, and how many seconds of CPU time the process may use. A mutant that
loops ends by SIGXCPU, on a busy machine no sooner.
"""

import importlib.util
import json
import os
import resource
import sys
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
MUTANT = "RAFTLOG_MADE_MUTANT"


class MutatedLoader(SourceFileLoader):
    """Compiles the mutated source, and neither reads nor writes earlier bytecode."""

    def __init__(self, name: str, path: str, source: str) -> None:
        super().__init__(name, path)
        self.source = source

    def get_code(self, fullname):
        return compile(self.source, self.path, "exec", dont_inherit=True)


class MutatedFinder:
    """Finds the mutated module."""

    def __init__(self, module: str, path: Path, source: str) -> None:
        self.module, self.path, self.source = module, str(path), source

    def find_spec(self, name, path=None, target=None) -> ModuleSpec | None:
        if name != self.module:
            return None
        loader = MutatedLoader(name, self.path, self.source)
        return importlib.util.spec_from_file_location(name, self.path, loader=loader)


def install() -> None:
    """Import the mutated module from now on."""
    told = json.loads(Path(os.environ[MUTANT]).read_text())
    if told["module"] in sys.modules:
        raise RuntimeError(f"{told['module']} was imported before the mutant")
    seconds = told["cpu_seconds"]
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 10))
    sys.meta_path.insert(0, MutatedFinder(told["module"], ROOT / told["path"], told["source"]))


if MUTANT in os.environ:
    install()
