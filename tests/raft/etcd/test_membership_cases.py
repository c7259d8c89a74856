"""etcd-io/raft's 58 membership cases, on the pure part of `membership` and on the leader's
Progress."""

from itertools import groupby
from types import SimpleNamespace

import pytest

from raftlog.base.entries import Membership
from raftlog.base.errors import LocalMisuse
from raftlog.raft.membership import enter_joint, follow_everyone, leave_joint, simple_change
from tests.raft.cluster import rid
from tests.raft.etcd.reading import case_lines, ids

REFUSALS = {
    "no-voters": "0 voters",
    "too-many": "more than one voter",
    "already-joint": "is joint already",
    "not-joint": "is not joint",
    "joint": "is joint",
}
LINES = list(case_lines("membership_cases.txt"))


def groups() -> list[tuple[str, list[str]]]:
    found: list[tuple[str, list[str]]] = []
    for starts, lines in groupby(LINES, key=lambda pair: pair[1].startswith("begin ")):
        texts = [line for _, line in lines]
        if starts:
            found.append((texts[-1].removeprefix("begin "), []))
        else:
            found[-1][1].extend(texts)
    return found


def target_of(current: Membership, operations: list[str]) -> Membership:
    """Where the operations lead, one after another."""
    voters = set(current.voters)
    learners = set(current.learners) | set(current.learners_next)
    for operation in operations:
        kind, replica = operation[0], rid(int(operation[1:]))
        if replica == rid(0) or kind == "u":
            continue
        voters.discard(replica)
        learners.discard(replica)
        if kind != "r":
            (voters if kind == "v" else learners).add(replica)
    return Membership(tuple(sorted(voters)), learners=tuple(sorted(learners)))


def change(current: Membership, command: str, operations: list[str]) -> Membership:
    if command == "leave-joint":
        return leave_joint(current)
    step = enter_joint if command == "enter-joint" else simple_change
    return step(current, target_of(current, operations))


def test_all_of_them_are_here():
    assert sum(len(lines) for _, lines in groups()) == 58


@pytest.mark.parametrize(("name", "lines"), groups(), ids=[name for name, _ in groups()])
def test_group(name, lines):
    log = SimpleNamespace(last_index=0)
    state = SimpleNamespace(membership=Membership(()), me=None, progress={}, now=0, log=log)
    for last_index, line in enumerate(lines):
        wanted, _, result = line.partition(" -> ")
        command, *operations = wanted.split()
        if result.startswith("refused"):
            with pytest.raises(LocalMisuse) as error:
                change(state.membership, command, operations)
            assert REFUSALS[result.split()[1]] in error.value.what, line
            continue
        state.membership = change(state.membership, command, operations)
        follow_everyone(state, max(last_index, 1))
        *lists, followed = [part.strip() for part in result.split("|")]
        assert state.membership == Membership(*[ids(part) for part in lists]), line
        nexts = {r.node: p.next for r, p in sorted(state.progress.items())}
        expected = [part.split("@") for part in followed.split()]
        assert nexts == {int(node): int(following) for node, following in expected}, line
