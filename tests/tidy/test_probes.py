"""Probes have literal, well-formed names, each at one place in the tree.

Whether a test reaches each of them is seen by the run as a whole: `scripts/test` asks for it with
`--require-probes` (tests/conftest.py).
"""

import re
from collections.abc import Iterable, Iterator

import pytest

from tests.tidy.probes import probe_names
from tests.tidy.tree import BESIDE, PRODUCT, SourceFile, files_below, planted

NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


def problems(files: Iterable[SourceFile]) -> Iterator[str]:
    """Probes with a computed or ugly name, or with a name that is taken."""
    places: dict[str, str] = {}
    for file in files:
        for name, node in probe_names(file):
            if not NAME.fullmatch(name):
                yield file.at(node, f"a probe's name is literal words and hyphens, not {name!r}")
            elif name in places:
                yield file.at(node, f"probe {name} is also at {places[name]}")
            places.setdefault(name, file.at(node, "").rstrip(": "))


def test_probe_names_are_literal_and_unique():
    assert list(problems(files_below(*PRODUCT, *BESIDE))) == []


@pytest.mark.parametrize("text", ["probe(name)", "probe('Not Good')", "probes.probe('a_b')"])
def test_a_bad_name_is_found(text: str):
    assert len(list(problems([planted(text)]))) == 1


def test_a_name_used_twice_is_found():
    files = [planted("probe('vote-lost')"), planted("probe('vote-lost')", "raftlog/raft/node.py")]
    (problem,) = problems(files)
    assert problem == "raftlog/raft/node.py:1: probe vote-lost is also at raftlog/base/planted.py:1"
    assert list(problems([planted("probe('vote-lost')\nprobe('vote-won')")])) == []
