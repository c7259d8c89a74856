"""The names of probes in a file: what `probe("name")` marks."""

import ast
from collections.abc import Iterator

from tests.tidy.tree import SourceFile, dotted

NOT_LITERAL = ""


def probe_names(file: SourceFile) -> Iterator[tuple[str, ast.Call]]:
    """Each call of probe() with its name, or with NOT_LITERAL when the name is computed."""
    for node in file.nodes:
        if not isinstance(node, ast.Call) or dotted(node.func).rpartition(".")[2] != "probe":
            continue
        name = node.args[0] if node.args else None
        literal = isinstance(name, ast.Constant) and isinstance(name.value, str)
        yield (name.value if literal else NOT_LITERAL), node
