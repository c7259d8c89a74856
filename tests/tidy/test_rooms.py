"""No file imports itself by way of others, and no folder holds more files than a reader surveys.

Every import counts: those of functions, and those that only types need.
"""

import ast
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from tests.tidy.tree import SourceFile, files_below, planted

SOURCES = ("raftlog/", "sim/raftlog_sim/", "jepsen_style_tests/")
MODULES_MAX = 24
# One module for each API, and one for each generated message.
BY_THE_PROTOCOL = {"raftlog/broker/handlers", "raftlog/kafka/messages"}


def imports(files: Iterable[SourceFile]) -> dict[str, list[str]]:
    """The modules among these files that each of them imports."""
    files = list(files)
    modules = {file.module for file in files}
    return {file.module: sorted({*imported(file, modules)} - {file.module}) for file in files}


def imported(file: SourceFile, modules: Collection[str]) -> Iterator[str]:
    """Modules that a file imports, wherever in it; a package, when it takes a name from that."""
    for node in file.nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                below = f"{node.module}.{alias.name}"
                yield from [each for each in (below, node.module) if each in modules][:1]


def in_circles(graph: Mapping[str, Iterable[str]]) -> set[str]:
    """The modules that import themselves by way of others."""
    left = dict.fromkeys(graph)
    more = True
    while more:  # a module that imports nothing that is left stands in no circle
        ends = [module for module in left if not any(name in left for name in graph[module])]
        more = bool(ends)
        for module in ends:
            del left[module]
    return {module for module in left if module in set(reached(graph, module))}


def reached(graph: Mapping[str, Iterable[str]], module: str) -> Iterator[str]:
    """The modules that a module imports, by way of however many."""
    seen: set[str] = set()
    waiting = list(graph[module])
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            yield name
            waiting += graph[name]


def too_large(files: Iterable[SourceFile]) -> dict[str, int]:
    """Folders with more modules than may be, and how many they have."""
    homes = [PurePosixPath(file.path) for file in files]
    counts = Counter(str(path.parent) for path in homes if path.name != "__init__.py")
    return {
        folder: count
        for folder, count in counts.items()
        if count > MODULES_MAX and folder not in BY_THE_PROTOCOL
    }


def test_files_import_one_another_in_no_circles():
    found = in_circles(imports(files_below(*SOURCES)))
    assert found == set(), "cut the circle: a port, or a third file for both"


def test_folders_are_small():
    found = too_large(files_below(*SOURCES))
    assert found == {}, f"more than {MODULES_MAX} modules: divide the folder by what they are about"


def test_a_circle_is_found():
    one = planted("from raftlog.raft import two", "raftlog/raft/one.py")
    two = planted("def f():\n    import raftlog.raft.three", "raftlog/raft/two.py")
    three = planted(
        "if TYPE_CHECKING:\n    from raftlog.raft.one import X", "raftlog/raft/three.py"
    )
    beside = planted("import raftlog.raft.one", "raftlog/raft/beside.py")
    circle = {"raftlog.raft.one", "raftlog.raft.two", "raftlog.raft.three"}
    assert in_circles(imports([one, two, three, beside])) == circle


def test_a_large_folder_is_found():
    files = [planted("x = 1", f"raftlog/raft/m{n}.py") for n in range(MODULES_MAX)]
    files.append(planted("", "raftlog/raft/__init__.py"))
    assert too_large(files) == {}
    files.append(planted("x = 1", "raftlog/raft/more.py"))
    assert too_large(files) == {"raftlog/raft": MODULES_MAX + 1}
    handlers = [
        file._replace(path=f"raftlog/broker/handlers/{n}.py") for n, file in enumerate(files)
    ]
    assert too_large(handlers) == {}
