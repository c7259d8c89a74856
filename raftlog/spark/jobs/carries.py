"""Combines the verdicts of blocks (`blocks.VERDICTS`) on the driver: few rows, in order.

Each block is judged as if it stood alone. Here the driver computes the running maximum that reaches
each block from those before it, and the holes inside of blocks and between them.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from raftlog.spark.jobs.blocks import NO_CARRY, BlockCarry
from raftlog.verify.histories.interval import OPEN
from raftlog.verify.judging import holes


def carried(ordered: Iterable[Mapping[str, Any]]) -> list[BlockCarry]:
    """For each block, the maximum of the blocks before it in its chain. The first of equal maxima
    counts."""
    found = []
    number, carry = None, NO_CARRY
    for block in ordered:
        if block["number"] != number:
            number, carry = block["number"], NO_CARRY
        found.append(carry)
        if block["latest"] > carry.at:
            carry = BlockCarry(block["latest"], block["latest_op"])
    return found


def by_number(found: Iterable[dict[str, Any]]) -> Iterable[tuple[int, list[dict[str, Any]]]]:
    """The blocks of each chain, in its order."""
    found_by: dict[int, list[dict[str, Any]]] = {}
    for block in found:
        found_by.setdefault(block["number"], []).append(block)
    return found_by.items()


def segments_of(chain: list[dict[str, Any]], first_end: int) -> list[holes.HoleSegment]:
    """The holes of a chain: inside of its blocks and in front of each."""
    found: list[holes.HoleSegment] = []
    behind = [OPEN]
    for block in reversed(chain):
        behind.append(min(behind[-1], block["earliest"]))
    behind.reverse()
    expected = 0
    for block, earliest, later in zip(chain, behind, behind[1:], strict=False):
        start = max(first_end, expected)
        if start < block["first"]:
            found.append(holes.HoleSegment(start, block["first"], earliest, None, block["cut"]))
        listed = (block[f"hole_{name}"] or () for name in ("starts", "stops", "ends", "cuts"))
        for hole_start, stop, end, cut in zip(*listed, strict=True):
            found.append(holes.HoleSegment(hole_start, stop, min(end, later), None, cut))
        expected = max(expected, block["behind"])
    return found
