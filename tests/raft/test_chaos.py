"""Random walks through `chaos`, by Hypothesis (which shrinks) and by plain seeds (which go deep).

A failing seed is replayed with `walk(seed, steps)`; `--hypothesis-profile=soak` explores.
"""

import random

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from raftlog.base.units import millis
from tests.raft.chaos import Chaos

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


def walk(seed: int, steps: int) -> Chaos:
    """A walk that a seed fixes: bursts of ordinary turns with misfortunes between them."""
    dice = random.Random(seed)
    chaos = Chaos(pre_vote=dice.random() < 0.8, check_quorum=dice.random() < 0.8)
    lossy, crashy = dice.choice([0.0, 0.05, 0.3]), dice.choice([0.0, 0.01, 0.05])
    changes = dice.choice([0.0, 0.02, 0.1])
    for _ in range(steps):
        n, other = dice.randint(1, 5), dice.randint(1, 5)
        luck = dice.random()
        if luck < crashy:
            chaos.crash(n)
        elif luck < crashy + changes:
            chaos.change(n, dice.randint(1, 31), dice.randint(0, 31))
        elif dice.random() < lossy:
            dice.choice([chaos.lose, lambda p: chaos.deliver(p, again=True)])(dice.randint(0, 99))
        elif dice.random() < 0.04:
            _misfortune(chaos, dice, n, other)
        else:
            _ordinary(chaos, dice, n)
        chaos.check()
    return chaos


def _ordinary(chaos: Chaos, dice: random.Random, n: int) -> None:
    step = dice.randint(0, 13)
    if step <= 3:
        chaos.deliver(dice.randint(0, 99) if dice.random() < 0.3 else 0)
    elif step <= 6:
        chaos.flush(n)
    elif step <= 8:
        chaos.persist(n)
    elif step == 9:
        chaos.read_disk(n)
        chaos.propose(n, dice.randint(1, 3))
    elif step == 10 and dice.random() < 0.3:
        chaos.tick(n)
    elif step == 11:
        chaos.read(n)
    else:
        chaos.turn(n)


def _misfortune(chaos: Chaos, dice: random.Random, n: int, other: int) -> None:
    which = dice.randint(0, 8)
    if which == 0:
        chaos.reset_links(n)
    elif which == 1:
        chaos.forget(n, dice.randint(1, 9))
    elif which == 2:
        chaos.transfer(n, other)
    elif which == 3:
        chaos.pass_time(millis(dice.randint(1, 3000)))
    elif which == 4:
        chaos.window(n, dice.randint(0, 4))
    elif which == 5:
        chaos.uncover(n, other)
    elif which == 6:
        chaos.c.heal()
    else:
        chaos.c.isolate(n)


@pytest.mark.parametrize("seed", range(24))
def test_walks(seed):
    walk(seed, 500).heal_and_finish()
