"""A register's fault is told as what was read, and what had been overwritten when."""

import random

import attrs
import pytest

from raftlog.verify import Header, judge
from raftlog.verify.judging.models import CAS_REGISTER, Call
from raftlog.verify.judging.register_story import core_of, story_of
from raftlog.verify.judging.search import search
from raftlog.verify.judging.verdict import INVALID
from tests.verify.writing import op, written


def witness(*operations, model="cas-register"):
    text = written(*operations, header=Header(source="import", model=model))
    return judge(text.splitlines(keepends=True)).verdict.classes["model"].witness


def write(process, times, value, key="x", kind="ok"):
    return op(process, "write", times, value, value, key=key, kind=kind)


def read(process, times, value, key="x"):
    return op(process, "read", times, None, value, key=key)


def test_a_stale_read_with_what_had_overwritten_it():
    found = witness(
        write(0, (0, 10), 1), write(1, (20, 30), 2), read(3, (35, 55), 2), read(2, (40, 50), 1)
    )
    assert found.text == (
        "Process 2 read 1 from x (operation 6 of process 2, called at 40 ns, answered at 50 ns). "
        "1 was written by operation 0 of process 0, which returned at 10 ns, and then overwritten: "
        "operation 2 of process 1 wrote 2 between 20 ns and 30 ns, which ended 10 ns before the "
        "read was called."
    ).replace("operation 6", f"operation {found.operations[2].index}")
    assert [(o.f, o.process) for o in found.operations] == [("write", 0), ("write", 1), ("read", 2)]
    assert found.key == "x"


def test_a_read_of_what_nobody_wrote():
    found = witness(write(0, (0, 10), 1), read(1, (20, 30), 7))
    assert found.text.endswith("No operation wrote 7.")
    assert [o.f for o in found.operations] == ["read"]


def test_a_read_of_what_was_written_later():
    found = witness(write(0, (50, 60), 7), read(1, (20, 30), 7))
    assert (
        "7 was first written by operation 2 of process 0, which was called 20 ns after"
        in found.text
    )


def test_a_read_of_nothing_after_a_write():
    found = witness(write(0, (0, 10), 7), read(1, (20, 30), None))
    assert "read nothing (nil) from x" in found.text
    assert "But operation 0 of process 0 wrote 7 between 0 ns and 10 ns" in found.text


def test_a_compare_and_set_overwrites_too():
    cas = op(1, "cas", (20, 30), [1, 2], [1, 2], key="x")
    found = witness(write(0, (0, 10), 1), cas, read(2, (40, 50), 1))
    assert "operation 2 of process 1 set 1 to 2 between 20 ns and 30 ns" in found.text


@pytest.mark.parametrize("kind", ["info", "fail"])
def test_a_write_that_may_have_come_later_is_no_proof(kind):
    maybe = write(3, 5, 1) if kind == "info" else op(3, "cas", (5, 6), [9, 1], False, key="x")
    text = written(
        write(0, (0, 10), 1), write(1, (20, 30), 2), maybe, read(2, (40, 50), 1),
        header=Header(source="import", model="cas-register"),
    )  # fmt: skip
    verdict = judge(text.splitlines(keepends=True)).verdict
    assert verdict.verdict == ("valid" if kind == "info" else "invalid")


def test_a_register_without_a_name_is_told_without_one():
    found = witness(write(0, (0, 10), 1, key=None), read(1, (20, 30), 7, key=None))
    assert "read 7 from the cas-register (" in found.text


def test_without_a_named_fault_the_fewest_operations_are_told():
    """Two readers see two writes in opposite orders: no read alone is stale."""
    noise = [read(10 + n, (200 + n, 300 + n), 2) for n in range(20)]
    found = witness(
        write(0, (0, 100), 1), write(1, (0, 100), 2),
        read(2, (10, 20), 1), read(2, (30, 40), 2), read(3, (50, 60), 1), *noise,
    )  # fmt: skip
    assert "cannot all be true, whatever the others did" in found.text
    assert sorted((o.f, o.process) for o in found.operations) == [
        ("read", 2), ("read", 2), ("read", 3)
    ] or len(found.operations) <= 5  # fmt: skip
    assert all(o.process < 10 for o in found.operations)


def drawn(seed):
    """A small random history of one register, mostly without a legal order."""
    rng = random.Random(seed)
    calls = []
    for _ in range(rng.randint(3, 9)):
        start = rng.randrange(60)
        end = start + rng.randrange(30)
        if rng.random() < 0.5:
            calls.append(Call(start, end, ("read",), rng.choice([None, 1, 2, 3])))
        elif rng.random() < 0.7:
            calls.append(Call(start, end, ("write", rng.choice([1, 2, 3])), None))
        else:
            pair = rng.sample([1, 2, 3], 2)
            calls.append(Call(start, end, ("cas", *pair), rng.choice([True, False])))
    return calls


def is_invalid(calls):
    return search(CAS_REGISTER, calls, 1_000_000).verdict == INVALID


@pytest.mark.parametrize("seed", range(300))
def test_what_is_told_is_a_fault_by_itself(seed):
    """A story is sound: its calls, with every other call of the history free to happen at any time
    or not, have no legal order. And there is none of a history that has one."""
    calls = drawn(seed)
    broken = is_invalid(calls)
    story = story_of("x", calls, calls[-1])
    if not broken:
        assert story is None, (seed, story)
        return
    if story is not None:
        needed = [id(call) for call in story.calls]
        # Writers of the value read, all of them, are part of what a stale read says.
        value = next(c.answer for c in story.calls if c.asked[0] == "read")
        needed += [id(c) for c in calls if c.asked[0] != "read" and c.asked[-1] == value]
        free = [c if id(c) in needed else attrs.evolve(c, end_ns=1 << 62) for c in calls]
        assert is_invalid(free), (seed, story)
    stuck = max(calls, key=lambda call: call.end_ns)
    core = core_of(calls, stuck, is_invalid)
    assert core, seed
    loose = [c if c in core else attrs.evolve(c, end_ns=1 << 62) for c in calls]
    assert is_invalid(loose), seed
    for one in core:
        assert not is_invalid([attrs.evolve(c, end_ns=1 << 62) if c is one else c for c in loose])
