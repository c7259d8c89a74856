"""Consumer groups: a correct coordinator is never accused, whatever its members do and whatever
answers get lost; and each thing that it, or a member, may do wrong is noticed.

The correct group is a small eager one. Members join, poll, commit, are cut off and come back, and
crash; every operation takes effect at one instant inside its interval. Then one thing in its
history is changed.
"""

import random
from collections.abc import Callable

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.verify import BadHistory, Verdict
from raftlog.verify.judging.groups import NO_COMMIT
from tests.verify.writing import (
    Written,
    commit,
    invalid,
    judged,
    op,
    poll,
    send,
    told,
    witness,
)

KEYS = ["t/0", "t/1", "t/2"]
RECORDS = 25
STEPS = 60
OPTIONS = {"consumer": "subscribe", "final_read": False}


@attrs.define
class Member:
    name: str
    generation: int = 0
    free_at: int = 0
    positions: dict = attrs.field(factory=dict)
    cut_off: bool = False

    @property
    def place(self):
        return self.name, self.generation


@attrs.define
class CorrectGroup:
    rng: random.Random
    now: int = 0
    generation: int = 0
    made: int = 0
    members: list = attrs.field(factory=list)
    committed: dict = attrs.field(factory=dict)
    history: list = attrs.field(factory=list)

    def run(self) -> list[Written]:
        for key in KEYS:
            for offset in range(RECORDS):
                self.now += 2
                value = f"{key}#{offset}"
                self.put(send(0, self.around(None), value, offset, key=key))
        for _ in range(STEPS):
            actions = [self.read] * 8 + [self.commit] * 6
            actions += [self.join] * 2 + [self.cut, self.come_back, self.crash]
            self.rng.choice(actions)()
        self.end()
        return self.history

    def put(self, written):
        written.process = len(self.history)
        self.history.append(written)

    def around(self, member):
        """An interval with the instant `now`, which moves on; a member's own do not overlap."""
        self.now += self.rng.randint(1, 4)
        start = self.now - self.rng.randint(0, 3)
        if member is not None:
            start = max(start, member.free_at + 1)
            self.now = max(self.now, start)
        end = self.now + self.rng.randint(0, 3)
        if member is not None:
            member.free_at = end
        return start, end

    def some(self):
        return self.rng.choice(self.members) if self.members else None

    # --- what members do --------------------------------------------------------------------------

    def join(self):
        self.made += 1
        self.members.append(Member(f"m{self.made}"))
        self.rebalance()

    def read(self):
        member = self.some()
        if member is None or not member.positions:
            return
        key = self.rng.choice(list(member.positions))
        first = member.positions[key]
        count = min(self.rng.randint(1, 4), RECORDS - first)
        pairs = [(offset, f"{key}#{offset}") for offset in range(first, first + count)]
        if pairs:
            times = self.around(member)
            self.put(poll(0, times, *pairs, key=key, member=["g", *member.place]))
            member.positions[key] = first + count

    def commit(self, member=None):
        member = member or self.some()
        if member is None or not member.positions:
            return
        key = self.rng.choice(list(member.positions))
        self.commit_key(member, key)

    def commit_key(self, member, key):
        offset, times = member.positions[key], self.around(member)
        accepted = member.generation == self.generation and not member.cut_off
        kind = "ok" if accepted else "fail"
        if self.rng.random() < 0.15:
            kind, accepted = "info", accepted and self.rng.random() < 0.5
        self.put(commit(0, times, offset, member.place, key=key, kind=kind))
        if accepted:
            self.committed[key] = offset

    def cut(self):
        """A member is cut off: the others go on without it, and it knows nothing of that."""
        member = self.some()
        if member is not None and not member.cut_off:
            member.cut_off = True
            self.rebalance()

    def come_back(self):
        member = self.some()
        if member is not None and member.cut_off:
            self.tell(member, "lost")
            member.cut_off = False
            self.rebalance()

    def crash(self):
        member = self.some()
        if member is not None:
            times = self.around(member)
            self.put(op(0, "crash", times, None, key=None, member=["g", *member.place]))
            self.members.remove(member)
            self.rebalance()

    # --- the coordinator --------------------------------------------------------------------------

    def rebalance(self):
        inside = [member for member in self.members if not member.cut_off]
        for member in inside:
            if member.positions:
                if self.rng.random() < 0.7:
                    self.commit(member)
                self.tell(member, "revoked")
        self.now += 4  # all have given up before the next generation begins
        self.generation += 1
        for number, key in enumerate(KEYS):
            if inside:
                inside[number % len(inside)].positions[key] = self.committed.get(key, 0)
        self.rng.shuffle(inside)
        for member in inside:
            self.now += 4  # and the assignment is older than the call that tells of it
            member.generation = self.generation
            keys = list(member.positions)
            times = self.around(member)
            self.put(told(0, times, "assigned", keys, member.place))

    def tell(self, member, what):
        times = self.around(member)
        self.put(told(0, times, what, list(member.positions), member.place))
        member.positions = {}

    def end(self):
        for member in self.members:
            member.cut_off = True
        self.join()
        (last,) = (member for member in self.members if not member.cut_off)
        for key in KEYS:
            while last.positions[key] < RECORDS:
                first, times = last.positions[key], self.around(last)
                pairs = (first, f"{key}#{first}")
                self.put(poll(0, times, pairs, key=key, member=["g", *last.place]))
                last.positions[key] += 1
            times = self.around(last)
            self.put(commit(0, times, RECORDS, last.place, key=key))


def history_of(seed: int) -> list[Written]:
    return CorrectGroup(random.Random(seed)).run()


def verdict_of(history: list[Written]) -> Verdict:
    return judged(*history, **OPTIONS)


@given(st.integers(0, 2**32))
def test_a_correct_group_is_valid(seed):
    verdict = verdict_of(history_of(seed))
    assert invalid(verdict) == []
    for name in ("group-skip", "commit-regression", "commit-after-revoke", "double-owner"):
        assert verdict.classes[name].status == "valid", name
    assert verdict.metrics["groups"]["g"]["records"] == RECORDS * len(KEYS)


def test_correct_groups_show_what_is_only_indicated_and_read_records_twice():
    """Else the generator would not try what is hard to judge."""
    verdicts = [verdict_of(history_of(seed)) for seed in range(20)]
    assert any(verdict.classes["owner-overlap"].count for verdict in verdicts)
    assert any(verdict.metrics["groups"]["g"]["processed_twice"] for verdict in verdicts)
    checked = {name for each in verdicts for name, c in each.classes.items() if c.status == "valid"}
    assert {"group-rewind", "fenced-commit"} <= checked


# --- what may go wrong ----------------------------------------------------------------------------


def of(history, f, kind="ok"):
    return [each for each in history if each.f == f and each.kind == kind]


def plant_a_lower_commit(history, rng):
    """A commit that goes back, with nothing to excuse it."""
    last = max(of(history, "offset_commit"), key=lambda each: each.end)
    (key,) = last.asked[1]
    at = last.end + 10
    place = last.fields["member"][1:]
    history.append(commit(len(history), (at, at + 1), RECORDS - 3, place, key=key))


def plant_a_lost_record(history, rng):
    """A record that nobody's poll returned."""
    key, offset = rng.choice(KEYS), rng.randrange(RECORDS)
    for each in of(history, "poll"):
        for name, pairs in each.value.items():
            if name == key:
                pairs[:] = [pair for pair in pairs if pair[0] != offset]


def plant_a_fenced_commit(history, rng):
    """A cut off member's commit is accepted."""
    late = [
        each
        for each in of(history, "offset_commit", "fail")
        if any(
            other.f == "rebalance"
            and other.start < each.start
            and other.fields["member"][2] > each.fields["member"][2]
            for other in history
        )
    ]
    if late:
        chosen = rng.choice(late)
        chosen.kind, chosen.value = "ok", chosen.asked[1]
    return bool(late)


def plant_two_owners(history, rng):
    """A generation gives a partition to a second member."""
    lines = [each for each in of(history, "rebalance") if each.asked[0] == "assigned"]
    pairs = [
        (one, other)
        for one in lines
        for other in lines
        if one is not other and one.fields["member"][2] == other.fields["member"][2]
    ]
    pairs = [(one, other) for one, other in pairs if one.asked[1]]
    if pairs:
        one, other = rng.choice(pairs)
        other.asked[1].append(one.asked[1][0])
    return bool(pairs)


def plant_a_rewind(history, rng):
    """A new member begins before what was committed."""
    begun = max(each.end for each in history) + 20
    place = ("last", 10_000)
    key = rng.choice(KEYS)
    base = len(history)
    history.append(told(base, (begun, begun + 1), "assigned", [key], place))
    pair = (RECORDS - 1, f"{key}#{RECORDS - 1}")
    member = {"member": ["g", *place]}
    history.append(poll(base + 1, (begun + 2, begun + 3), pair, key=key, **member))


def plant_a_commit_after_revoke(history, rng):
    """A member commits what it gave up, and is heard."""
    lines = [each for each in of(history, "rebalance") if each.asked[0] == "revoked"]
    if not lines:
        return False
    chosen = rng.choice(lines)
    key = chosen.asked[1][0]
    place, at = chosen.fields["member"][1:], chosen.end + 1
    ended = max(each.end for each in history)
    if any(
        each.f == "rebalance" and each.fields["member"][1] == place[0] and each.start >= at
        for each in history
    ):
        at = next(
            each.start - 1
            for each in sorted(history, key=lambda each: each.start)
            if each.f == "rebalance" and each.fields["member"][1] == place[0] and each.start >= at
        )
        if at <= chosen.end:
            return False
        history.append(commit(len(history), (at, at), RECORDS, place, key=key))
    else:
        history.append(commit(len(history), (ended + 5, ended + 6), RECORDS, place, key=key))
    return True


PLANTED: dict[str, tuple[str, Callable]] = {
    "a commit that goes back": ("commit-regression", plant_a_lower_commit),
    "a record that nobody read": ("group-skip", plant_a_lost_record),
    "a commit of an old generation": ("fenced-commit", plant_a_fenced_commit),
    "a partition with two owners": ("double-owner", plant_two_owners),
    "a member that begins too low": ("group-rewind", plant_a_rewind),
    "a commit of what was given up": ("commit-after-revoke", plant_a_commit_after_revoke),
}


@pytest.mark.parametrize("what", PLANTED)
def test_what_is_planted_is_caught(what):
    name, plant = PLANTED[what]
    planted = 0
    for seed in range(12):
        history = history_of(seed)
        if plant(history, random.Random(seed)) is not False:
            planted += 1
            assert name in invalid(verdict_of(history)), seed
    assert planted >= 4


# --- borders --------------------------------------------------------------------------------------

KEY = "t/0"
ONE, TWO = ("one", 1), ("two", 2)
IN_ONE = {"member": ["g", *ONE]}
LOG = [send(0, (1, 2), "a", 0), send(0, (3, 4), "b", 1), send(0, (5, 6), "c", 2)]


def test_members_that_commit_nothing_prove_nothing():
    verdict = judged(*LOG, poll(1, (7, 8), (0, "a"), (1, "b"), (2, "c"), **IN_ONE))
    assert verdict.verdict == "unknown"
    assert verdict.classes["group-skip"].note == NO_COMMIT
    without = judged(*LOG, poll(1, (7, 8), (0, "a"), (1, "b"), (2, "c")))
    assert without.verdict == "valid"


def test_a_commit_that_may_have_happened_excuses_a_member_that_begins_lower():
    operations = [
        *LOG,
        commit(1, (7, 8), 2, ONE),
        commit(2, 9, 1, ONE),
        told(3, (10, 11), "assigned", [KEY], TWO),
        poll(4, (12, 13), (1, "b"), (2, "c"), member=["g", *TWO]),
    ]
    assert judged(*operations, allowed=()).classes["group-rewind"].count == 0
    operations[4] = commit(2, (9, 10), 1, ONE, kind="fail")
    assert witness(judged(*operations, allowed=()), "group-rewind") == (1, [1, 4])


def test_a_commit_without_an_answer_excuses_as_long_as_its_generation_lasts():
    operations = [
        *LOG,
        commit(1, (7, 8), 2, ONE),
        commit(2, (8, 9), 1, ONE, kind="info"),
        told(3, (10, 11), "assigned", [KEY], TWO),
        commit(4, (12, 13), 3, TWO),
        told(3, (14, 15), "lost", [KEY], TWO),
        told(5, (16, 17), "assigned", [KEY], ("three", 3)),
        poll(6, (18, 19), (1, "b"), member=["g", "three", 3]),
    ]
    assert "group-rewind" in invalid(judged(*operations, allowed=()))
    operations[4].fields["member"] = ["g", "one", None]
    assert "group-rewind" not in invalid(judged(*operations, allowed=()))


def test_a_commit_that_failed_is_no_commit():
    operations = [*LOG, poll(1, (7, 8), (0, "a"), **IN_ONE)]
    verdict = judged(*operations, commit(2, (9, 10), 3, ONE, kind="fail"), final_read=False)
    assert verdict.classes["group-skip"].count == 0
    verdict = judged(*operations, commit(2, (9, 10), 3, ONE), final_read=False)
    assert verdict.classes["group-skip"].count == 2


def test_one_offset_beyond_what_was_read_is_a_skip_and_the_end_is_none():
    operations = [*LOG, poll(1, (7, 8), (0, "a"), (1, "b"), **IN_ONE)]
    options = {"final_read": False}
    assert judged(*operations, commit(2, (9, 10), 2, ONE), **options).verdict == "valid"
    verdict = judged(*operations, commit(2, (9, 10), 3, ONE), **options)
    assert witness(verdict, "group-skip") == (2, [0, 2])


def test_a_group_that_begins_at_the_end_has_not_skipped_the_beginning():
    operations = [*LOG, poll(1, (7, 8), (2, "c"), **IN_ONE), commit(2, (9, 10), 3, ONE)]
    verdict = judged(*operations, final_read=False, offset_reset="latest")
    assert verdict.classes["group-skip"].count == 0
    assert judged(*operations, final_read=False).classes["group-skip"].count == 2


def test_what_an_administrator_put_behind_a_group_is_no_skip():
    reset = op(5, "offset_commit", (7, 8), ["g", {KEY: 2}], {KEY: 2}, key=None)
    operations = [*LOG, reset, poll(1, (9, 10), (2, "c"), **IN_ONE), commit(2, (11, 12), 3, ONE)]
    assert judged(*operations, final_read=False).classes["group-skip"].count == 0


def test_equal_times_are_concurrent_and_no_proof():
    told_two = told(1, (5, 6), "assigned", ["t/1"], TWO)
    operations = [told(0, (1, 2), "assigned", [KEY], ONE), told_two]
    at = judged(*operations, commit(2, (5, 7), 1, ONE), allowed=())
    assert at.classes["fenced-commit"].count == 0
    after = judged(*operations, commit(2, (6, 7), 1, ONE), allowed=())
    assert after.classes["fenced-commit"].count == 1


def test_a_late_told_assignment_of_an_older_generation_is_only_indicated():
    """A slow member hears of an assignment that is over; the newer owner commits: all is well."""
    verdict = judged(
        told(0, (1, 2), "assigned", [KEY], ("new", 5)),
        told(1, (3, 4), "assigned", [KEY], ("slow", 4)),
        commit(2, (5, 6), 1, ("new", 5)),
        told(3, (7, 8), "lost", [KEY], ("slow", 4)),
    )
    assert invalid(verdict) == []
    assert verdict.classes["owner-overlap"].count == 1


def test_a_cooperative_member_that_comes_back_keeps_what_another_had():
    """It was paused. Another had its partition for a generation, and the next one gave it back."""
    verdict = judged(
        told(0, (1, 2), "assigned", [KEY], ("paused", 4)),
        told(1, (3, 4), "assigned", [KEY], ("other", 5)),
        told(1, (5, 6), "revoked", [KEY], ("other", 6)),
        told(0, (7, 8), "assigned", [], ("paused", 6)),
        commit(2, (9, 10), 0, ("paused", 6)),
    )
    assert invalid(verdict) == []


def test_a_cooperative_member_keeps_what_is_not_revoked():
    """Both keep: the second generation names only what is new. A third that gives one of them to
    another is a second owner."""
    kept = [
        told(0, (1, 2), "assigned", [KEY, "t/1"], ONE),
        told(0, (3, 4), "assigned", ["t/2"], ("one", 2)),
    ]
    other = told(1, (5, 6), "assigned", [KEY], ("two", 2))
    last = commit(2, (7, 8), 0, ("two", 2))
    assert "double-owner" in invalid(judged(*kept, other, last, allowed=()))
    given_up = told(0, (5, 6), "revoked", [KEY], ("one", 2))
    other = told(1, (7, 8), "assigned", [KEY], ("two", 3))
    last = commit(2, (9, 10), 0, ("two", 3))
    assert invalid(judged(*kept, given_up, other, last, allowed=())) == []


def test_the_next_life_of_a_static_member_gets_the_same_generation():
    first, second = ("worker-1.1", 4), ("worker-1.2", 4)
    operations = [
        told(0, (1, 2), "assigned", [KEY], first),
        op(1, "crash", (3, 4), None, key=None, member=["g", *first]),
        told(2, (5, 6), "assigned", [KEY], second),
        commit(3, (7, 8), 0, second),
    ]
    assert invalid(judged(*operations, allowed=())) == []
    operations[2] = told(2, (4, 6), "assigned", [KEY], second)
    assert "double-owner" in invalid(judged(*operations, allowed=()))


def test_groups_do_not_disturb_each_other():
    operations = [
        commit(1, (1, 2), 5, ONE),
        commit(2, (3, 4), 4, TWO, group="h"),
    ]
    assert invalid(judged(*operations, allowed=())) == []


@pytest.mark.parametrize(
    "member", [["g", "m"], ["g", 1, 1], [1, "m", 1], ["g", "m", "1"], "g", {"g": 1}]
)
def test_a_member_of_another_shape_is_no_history(member):
    with pytest.raises(BadHistory, match="member is"):
        judged(op(1, "crash", (1, 2), None, member=member))


@pytest.mark.parametrize("asked", [["gained", [KEY]], ["assigned", KEY], ["assigned"], None, "x"])
def test_a_rebalance_of_another_shape_is_no_history(asked):
    with pytest.raises(BadHistory, match="rebalance has the wrong shape"):
        judged(op(1, "rebalance", (1, 2), asked, key=None))
