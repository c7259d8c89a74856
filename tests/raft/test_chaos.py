"""Random walks through `chaos`, by Hypothesis (which shrinks) and by plain seeds (which go deep).

A failing seed is replayed with `walk(seed, steps)`; `--hypothesis-profile=soak` explores.
"""

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from raftlog.base.entries import Membership
from raftlog.base.units import millis
from raftlog.raft.node import Role
from tests.raft.chaos import Chaos
from tests.raft.cluster import voters

JOINT = Membership(voters(3, 4, 5).voters, outgoing=voters(1, 2, 3).voters)
NUMBERS = st.integers(1, 5)
SMALL = st.integers(0, 40)


class RaftMachine(RuleBasedStateMachine):
    @initialize(pre_vote=st.booleans(), check_quorum=st.booleans())
    def begin(self, pre_vote, check_quorum):
        self.chaos = Chaos(pre_vote=pre_vote, check_quorum=check_quorum)

    @rule(n=NUMBERS)
    def flush(self, n):
        self.chaos.flush(n)

    @rule(n=NUMBERS)
    def persist(self, n):
        self.chaos.persist(n)

    @rule(n=NUMBERS)
    def read_disk(self, n):
        self.chaos.read_disk(n)

    @rule(position=SMALL, again=st.booleans())
    def deliver(self, position, again):
        self.chaos.deliver(position, again=again)

    @rule(position=SMALL)
    def lose(self, position):
        self.chaos.lose(position)

    @rule(n=NUMBERS)
    def turn(self, n):
        self.chaos.turn(n)

    @rule(n=NUMBERS)
    def crash(self, n):
        self.chaos.crash(n)

    @rule(n=NUMBERS, count=st.integers(1, 6))
    def damage(self, n, count):
        self.chaos.damage(n, count)

    @rule(n=NUMBERS)
    def reset_links(self, n):
        self.chaos.reset_links(n)

    @rule(n=NUMBERS)
    def tick(self, n):
        self.chaos.tick(n)

    @rule(n=NUMBERS, count=st.integers(1, 4))
    def propose(self, n, count):
        self.chaos.propose(n, count)

    @rule(n=NUMBERS)
    def read(self, n):
        self.chaos.read(n)

    @rule(n=NUMBERS, to=NUMBERS)
    def transfer(self, n, to):
        self.chaos.transfer(n, to)

    @rule(n=NUMBERS, voters=st.integers(1, 31), learners=st.integers(0, 31))
    def change(self, n, voters, learners):
        self.chaos.change(n, voters, learners)

    @rule(n=NUMBERS, count=st.integers(1, 5))
    def forget(self, n, count):
        self.chaos.forget(n, count)

    @invariant()
    def safe(self):
        if hasattr(self, "chaos"):
            self.chaos.check()

    def teardown(self):
        if hasattr(self, "chaos"):
            self.chaos.heal_and_finish()


TestRaftMachine = RaftMachine.TestCase
TestRaftMachine.settings = settings(stateful_step_count=60)


class Walk:
    """A walk that a seed fixes: episodes of ordinary steps under one partition and one slow disk,
    with misfortunes between and within them. Faults prefer the leader."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        dice = self.dice
        founding = dice.choice([voters(1, 2, 3), voters(1, 2, 3, 4, 5), JOINT, voters(1, 2, 3, 4)])
        self.chaos = Chaos(
            pre_vote=dice.random() < 0.8, check_quorum=dice.random() < 0.8, membership=founding
        )
        self.lossy = dice.choice([0.0, 0.05, 0.3])
        self.crashy = dice.choice([0.0, 0.01, 0.03])
        self.changes = dice.choice([0.0, 0.02, 0.1])
        self.quiet = dice.random() < 0.3
        self.rotten = dice.random() < 0.4
        self.slow = 0
        self.paused: list[int] = []

    def anyone(self) -> int:
        return self.dice.randint(1, 5)

    def leader(self) -> int:
        """A peer that believes to lead, if there is one."""
        leading = [n for n, p in self.chaos.c.peers.items() if p.role is Role.LEADER]
        return self.dice.choice(leading) if leading else self.anyone()

    def episode(self) -> int:
        """One partition, one slow disk, some steps. How many were made."""
        dice, chaos = self.dice, self.chaos
        self.slow = dice.choice([0, self.leader(), self.anyone()])
        chaos.c.heal()
        self.paused = []
        which = dice.randint(0, 4)
        if which <= 3:
            apart = [[], [self.leader()], [self.leader(), self.anyone()]][min(which, 2)]
            apart = [self.anyone(), self.anyone()] if which == 3 else apart
            chaos.c.isolate(*apart)
            self.paused = apart if dice.random() < 0.7 else []
        if dice.random() < 0.3:
            self.misfortune()
        steps = dice.randint(5, 60)
        for _ in range(steps):
            self.step()
            chaos.check()
        return steps

    def step(self) -> None:
        dice, chaos = self.dice, self.chaos
        luck = dice.random()
        if luck < self.crashy:
            chaos.crash(dice.choice([self.leader(), self.anyone()]))
        elif luck < self.crashy + self.changes:
            chaos.change(self.leader(), dice.randint(1, 31), dice.randint(0, 31))
        elif dice.random() < self.lossy:
            if dice.random() < 0.5:
                chaos.lose(dice.randint(0, 99))
            else:
                chaos.deliver(dice.randint(0, 99), again=True)
        elif dice.random() < 0.02:
            self.misfortune()
        else:
            self.ordinary()

    def ordinary(self) -> None:
        dice, chaos = self.dice, self.chaos
        step = dice.randint(0, 15)
        if step <= 3:
            chaos.deliver(dice.randint(0, 99) if dice.random() < 0.3 else 0)
        elif step <= 5:
            chaos.flush(self.anyone())
        elif step == 6:
            chaos.persist(self.anyone())
        elif step <= 9:
            chaos.propose(self.leader(), dice.randint(1, 3))
        elif step == 10:
            self.let_time_pass()
        elif step == 11:
            chaos.read(self.leader())
            chaos.read_disk(self.anyone())
        else:
            chaos.turn(self.slow)

    def let_time_pass(self) -> None:
        """Nobody's turn comes while a majority is led, or a new leader would come each second
        step."""
        n = self.anyone()
        if n in self.paused:
            return
        if self.chaos.c[n].role is Role.LEADER or self.dice.random() < (0.1 if self.quiet else 0.5):
            self.chaos.tick(n)

    def misfortune(self) -> None:
        dice, chaos = self.dice, self.chaos
        which, n, other = dice.randint(0, 7), self.anyone(), self.anyone()
        if which == 0:
            chaos.reset_links(n)
        elif which == 1:
            chaos.forget(n, dice.randint(1, 9))
        elif which == 2:
            chaos.transfer(self.leader(), other)
        elif which == 3:
            chaos.pass_time(millis(dice.randint(1, 3000)))
        elif which == 4:
            chaos.window(n, dice.randint(0, 4))
        elif which == 5:
            chaos.uncover(n, other)
        elif which == 6 and self.rotten:
            chaos.damage(n, dice.randint(1, 6))
        elif dice.random() < self.crashy * 10:
            for number in chaos.c.peers:
                chaos.crash(number)


def walk(seed: int, steps: int) -> Chaos:
    """Episodes until `steps` were made."""
    walking = Walk(seed)
    while steps > 0:
        steps -= walking.episode()
    return walking.chaos


@pytest.mark.parametrize("seed", range(24))
def test_walks(seed):
    walk(seed, 500).heal_and_finish()
