"""etcd-io/raft's 127 quorum cases, each with the extra checks that its own harness makes, and a
dumb second way of counting that must agree."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.entries import Membership
from raftlog.raft.quorum import (
    EVERYTHING,
    VoteResult,
    joint_committed,
    joint_vote,
    majority,
    majority_committed,
    majority_vote,
)
from tests.raft.cluster import rid
from tests.raft.etcd.reading import case_lines, ids

CASES = list(case_lines("quorum_cases.txt"))
ANSWERS = {"y": True, "n": False}


def answers_of(line: str) -> tuple[tuple, tuple, dict]:
    """Both halves and what each voter answered; a voter in both is named once."""
    _, incoming, outgoing, answers, _ = line.split()
    named = [
        rid(int(n)) for half in (incoming, outgoing) if half not in ".-" for n in half.split(",")
    ]
    voters = list(dict.fromkeys(named))
    values = [] if answers == "." else answers.split(",")
    assert len(values) == len(voters), line
    given_answers = {
        voter: ANSWERS[value] if value in ANSWERS else int(value)
        for voter, value in zip(voters, values, strict=True)
        if value != "_"
    }
    return ids(incoming, ","), ids(outgoing, ","), given_answers


def test_all_of_them_are_here():
    assert len(CASES) == 127


@pytest.mark.parametrize("line", [line for _, line in CASES], ids=[f"line {n}" for n, _ in CASES])
def test_case(line):
    what, _, second, _, expected = line.split()
    incoming, outgoing, answers = answers_of(line)
    decide = joint_committed if what == "committed" else joint_vote
    if expected == "everything":
        expected = EVERYTHING
    elif what == "committed":
        expected = int(expected)
    else:
        expected = VoteResult(expected)
    assert decide(Membership(incoming, outgoing), answers) == expected
    assert decide(Membership(outgoing, incoming), answers) == expected, "symmetry"
    if second == "-":
        alone = majority_committed if what == "committed" else majority_vote
        assert alone(incoming, answers) == expected
        assert decide(Membership(incoming, incoming), answers) == expected, "joint with itself"


@pytest.mark.parametrize(("count", "needed"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (7, 4)])
def test_a_majority_is_more_than_half(count, needed):
    assert majority(count) == needed


MATCHES = st.dictionaries(st.integers(1, 7).map(rid), st.integers(0, 5), max_size=7)


@given(st.sets(st.integers(1, 7), min_size=1), MATCHES)
def test_committed_agrees_with_counting_every_index(numbers, match):
    voters = tuple(sorted(rid(n) for n in numbers))
    counted = max(
        index
        for index in range(7)
        if sum(match.get(v, 0) >= index for v in voters) >= majority(len(voters))
    )
    assert majority_committed(voters, match) == counted


@given(
    st.sets(st.integers(1, 7), min_size=1),
    st.dictionaries(st.integers(1, 7).map(rid), st.booleans()),
)
def test_votes_agree_with_trying_every_completion(numbers, votes):
    voters = tuple(sorted(rid(n) for n in numbers))
    best = sum(votes.get(v, True) for v in voters) >= majority(len(voters))
    worst = sum(votes.get(v, False) for v in voters) >= majority(len(voters))
    expected = VoteResult.WON if worst else VoteResult.PENDING if best else VoteResult.LOST
    assert majority_vote(voters, votes) is expected
