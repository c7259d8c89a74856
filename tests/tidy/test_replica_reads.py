"""The broker reads of a replica's node and log what stands here; what changes them is the
replica's own.

Each read on behalf of a client is bounded by the high watermark, which only the replica's own
methods see to.
"""

import ast

from tests.tidy import tree

READ_OF_NODE = {"awaits_answers", "names", "progress", "term_durable", "transferring"}
READ_OF_LOG = {
    "durable_end", "entries", "first_index", "gaps", "last_chain", "last_index", "last_term",
    "log_start", "mark", "next_offset", "plan_entries", "segments", "term_at", "term_end_offset",
    "terms", "times", "written_index",
}  # fmt: skip
CHANGES = {
    "cold_done": "what a look-up learned goes back to the log that planned it; nothing is promised",
    "defer": "campaigns of many groups share a window that only the broker knows",
    "hasten": "campaigns of many groups share a window that only the broker knows",
    "persisted": "with strict marks a round is durable before it counts; the replica hears later",
    "put_off": "campaigns of many groups share a window that only the broker knows",
}
"""Calls that change a replica's node or log from outside it -> the reason."""

ALLOWED = READ_OF_NODE | READ_OF_LOG | set(CHANGES)


def reached(source: tree.SourceFile) -> dict[str, ast.AST]:
    """Returns each attribute that a file takes of `replica.node` or `replica.log`, also by way of
    a local name."""
    found: dict[str, ast.AST] = {}
    for scope in (node for node in source.nodes if isinstance(node, ast.FunctionDef | ast.Lambda)):
        inside = list(ast.walk(scope))
        aliases = {
            target.id
            for node in inside
            if isinstance(node, ast.Assign) and is_part(node.value)
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for node in inside:
            if isinstance(node, ast.Attribute) and (
                is_part(node.value)
                or (isinstance(node.value, ast.Name) and node.value.id in aliases)
            ):
                found[node.attr] = node
    return found


def is_part(node: ast.AST) -> bool:
    """Whether an expression is `replica.node` or `replica.log`, of any replica."""
    if not isinstance(node, ast.Attribute) or node.attr not in ("node", "log"):
        return False
    owner = node.value
    name = owner.id if isinstance(owner, ast.Name) else getattr(owner, "attr", "")
    return name.endswith("replica")


def problems(source: tree.SourceFile) -> list[str]:
    return [
        source.at(node, f"the broker takes {name} of a replica's node or log")
        for name, node in reached(source).items()
        if name not in ALLOWED
    ]


def test_the_broker_reads_of_replicas_what_is_listed():
    assert [
        line for source in tree.files_below("raftlog/broker/") for line in problems(source)
    ] == []


def test_the_lists_hold_nothing_that_nobody_takes():
    assert {
        name for source in tree.files_below("raftlog/broker/") for name in reached(source)
    } == ALLOWED


def test_a_call_that_changes_the_log_is_told():
    text = (
        "def f(replica):\n    log = replica.log\n    log.append([])\n    replica.node.campaign()\n"
    )
    assert len(problems(tree.planted(text, "raftlog/broker/planted.py"))) == 2
