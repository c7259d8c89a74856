"""An oracle that never failed proves nothing: broken cores must be caught by the walks of `chaos`.

Each mutant breaks one rule by a patch from outside and must fail an invariant within a few seeds;
the unbroken core passes the same seeds.
"""

import pytest

from raftlog.base.ids import RaftIndex
from raftlog.raft import election, following, reads, replication
from raftlog.raft.quorum import joint_vote, majority_committed, majority_vote
from raftlog.raft.rounds import RaftRounds
from tests.raft.test_chaos import walk

SEEDS = range(150)
STEPS = 600


def vote_without_the_up_to_date_check(patch):
    patch.setattr(election, "_is_up_to_date", lambda state, term, index: True)


def vote_twice_in_a_term(patch):
    honest = election.on_vote_request

    def forgetful(state, message):
        if message.term == state.term:
            state.vote = None
        honest(state, message)

    patch.setitem(node_handlers(), election.VoteRequest, forgetful)


def ack_before_the_own_sync(patch):
    honest = following.acknowledge

    def hasty(state):
        durable, state.rounds.durable = state.rounds.durable, state.log.last_index
        honest(state)
        state.rounds.durable = durable

    patch.setattr(following, "acknowledge", hasty)


def promises_before_the_hard_state_is_synced(patch):
    honest = RaftRounds.begin

    def careless(self, io_id, last_index, *, hard_state, now):
        honest(self, io_id, last_index, hard_state=False, now=now)

    patch.setattr(RaftRounds, "begin", careless)


def commit_by_counting_an_earlier_term(patch):
    honest = replication.maybe_commit

    def counting(state):
        state.term_start = RaftIndex(0)
        honest(state)

    patch.setattr(replication, "maybe_commit", counting)


def commit_past_what_was_verified(patch):
    honest = following.on_append

    def trusting(state, message):
        honest(state, message)
        if message.term == state.term:
            state.commit = max(state.commit, min(message.commit, state.log.last_index))

    patch.setitem(node_handlers(), following.Append, trusting)


def truncate_on_every_append(patch):
    honest = following._skip_known

    def cutting(state, message, entries):
        first = RaftIndex(message.prev_index + 1)
        if state.commit < first <= state.log.last_index:
            following.truncate(state, first)
        return honest(state, message, entries)

    patch.setattr(following, "_skip_known", cutting)


def completions_of_cut_rounds_count(patch):
    patch.setattr(RaftRounds, "cut", lambda self, last_index: None)


def seam_not_checked(patch):
    patch.setattr(following, "_seam_holds", lambda state, message: True)


def joint_elections_by_the_incoming_half(patch):
    patch.setattr(election, "joint_vote", lambda m, votes: majority_vote(m.voters, votes))


def joint_commits_by_the_incoming_half(patch):
    patch.setattr(
        replication, "joint_committed", lambda m, match: majority_committed(m.voters, match)
    )


def learners_count(patch):
    def counting(membership, match):
        return majority_committed(sorted(match), match)

    patch.setattr(replication, "joint_committed", counting)


def reads_without_a_quorum(patch):
    patch.setattr(reads, "_is_echoed", lambda state, context: True)


def an_even_majority_is_half(patch):
    def half(membership, match):
        matches = sorted((match.get(v, 0) for v in membership.voters), reverse=True)
        return RaftIndex(matches[max(0, len(matches) // 2 - 1)])

    patch.setattr(replication, "joint_committed", half)


def node_handlers():
    from raftlog.raft import node

    return node._HANDLERS


MUTANTS = [
    vote_without_the_up_to_date_check,
    vote_twice_in_a_term,
    ack_before_the_own_sync,
    promises_before_the_hard_state_is_synced,
    commit_by_counting_an_earlier_term,
    commit_past_what_was_verified,
    truncate_on_every_append,
    completions_of_cut_rounds_count,
    seam_not_checked,
    joint_elections_by_the_incoming_half,
    joint_commits_by_the_incoming_half,
    learners_count,
    reads_without_a_quorum,
    an_even_majority_is_half,
]


@pytest.mark.slow
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_it_is_caught(mutant, monkeypatch):
    mutant(monkeypatch)
    for seed in SEEDS:
        try:
            walk(seed, STEPS)
        except (AssertionError, IndexError, KeyError, TypeError):
            return
    pytest.fail(f"{mutant.__name__} survived {len(SEEDS)} seeds")


def test_the_names_that_are_patched_are_the_ones_used():
    assert election.joint_vote is joint_vote
    assert replication.joint_committed.__name__ == "joint_committed"
