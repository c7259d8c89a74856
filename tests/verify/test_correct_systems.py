"""A correct system is never accused: whole runs of one, with everything a history may record.

One real log per partition, several nodes of which one leads, idempotent producers, consumers that
assign, seek by crash and commit offsets, retention, batches, answers that get lost, sends that
fail. Every operation takes effect at one instant inside its interval, whatever else happens. Then
one thing is broken, and the judge must notice.
"""

import random

import attrs
import pytest

from raftlog.verify import Header, judge_operations
from raftlog.verify.histories.interval import OPEN, Interval
from raftlog.verify.histories.pairs import Pairs
from raftlog.verify.judging.linearizability import COMMITTED_PREFIX, LINEARIZABLE

KEYS = ["a/0", "a/1", "b/0"]
OPERATIONS = 250
SEEDS = 25


@attrs.define
class Log:
    held: list = attrs.field(factory=list)
    start: int = 0
    term: int = 1
    leader: str = "n1"


@attrs.define
class Client:
    process: int
    busy_until: int = 0
    position: dict = attrs.field(factory=dict)
    assigned: list = attrs.field(factory=lambda: list(KEYS))
    sequence: dict = attrs.field(factory=dict)
    epoch: int = 0


@attrs.define
class System:
    rng: random.Random
    mode: str
    now: int = 0
    logs: dict = attrs.field(factory=lambda: {key: Log() for key in KEYS})
    offsets: dict = attrs.field(factory=dict)
    operations: list = attrs.field(factory=list)
    clients: list = attrs.field(factory=lambda: [Client(process) for process in range(6)])
    processes: int = 6
    values: int = 0

    def run(self):
        for _ in range(OPERATIONS):
            self.now += self.rng.randint(1, 20)
            client = min(self.clients, key=lambda one: (one.busy_until, one.process))
            self.now = max(self.now, client.busy_until)
            self.turn(client)
            if self.rng.random() < 0.02:
                self.elect()
        self.now += 1000
        for client in self.clients:
            client.busy_until = 0
        last = self.clients[0]
        self.add(last, "crash", None, None, None, (self.now, self.now))
        self.now += 10
        reads = {key: self.readable(key, 0, len(log.held)) for key, log in self.logs.items()}
        # With retention, the last reads must say where the log starts: what it passed looks lost.
        starts = {key: log.start for key, log in self.logs.items()}
        self.add(last, "poll", None, None, reads, (self.now, self.now + 5), log_start=starts)
        return self.operations

    def elect(self):
        log = self.rng.choice(list(self.logs.values()))
        log.term += 1
        log.leader = self.rng.choice(["n1", "n2", "n3"])

    def turn(self, client):
        weights = {
            self.send: 10,
            self.poll: 6,
            self.length: 2,
            self.assign: 1,
            self.crash: 0.3,
            self.retain: 0.5,
            self.commit: 1,
            self.fetch: 1,
        }
        action = self.rng.choices(list(weights), list(weights.values()))[0]
        action(client)

    def interval(self, client):
        """(call, instant of effect, return): the effect is now, on a clock that never
        stands still.
        """
        start = max(client.busy_until, self.now - self.rng.randint(0, 15))
        end = self.now + self.rng.randint(0, 15)
        return start, end

    def add(self, client, f, key, asked, value, times, *, kind="ok", node=None, **evidence):
        start, end = times
        op = Interval(
            len(self.operations),
            client.process,
            f,
            key,
            kind,
            start,
            OPEN if kind == "info" else end,
            asked,
            value,
            node,
            {name: one for name, one in evidence.items() if one is not None} or None,
        )
        self.operations.append(op)
        if kind == "info":
            self.processes += 1
            client.process = self.processes
            client.position, client.assigned = {}, list(KEYS)
            client.sequence, client.epoch = {}, client.epoch + 1
        client.busy_until = end + 1

    def send(self, client):
        key = self.rng.choice(KEYS)
        log = self.logs[key]
        size = self.rng.choice([1, 1, 1, 2, 4])
        values = [f"k{self.rng.randint(0, 3)}#{self.values + at}" for at in range(size)]
        self.values += size
        asked = values if size > 1 else values[0]
        fate = self.rng.random()
        sequence = client.sequence.get(key, 0)
        producer = [client.process * 1000 + client.epoch, client.epoch, sequence]
        times = self.interval(client)
        if fate < 0.05:
            self.add(client, "send", key, asked, None, times, kind="fail")
            return
        base = len(log.held)
        happened = fate < 0.9 or self.rng.random() < 0.5
        if happened:
            log.held += values
            client.sequence[key] = sequence + size
        if fate < 0.9:
            known = base if self.rng.random() < 0.95 else None
            more = {"term": log.term, "producer": producer, "hw": len(log.held)}
            self.add(client, "send", key, asked, known, times, node=log.leader, **more)
        else:
            self.add(client, "send", key, asked, None, times, kind="info", producer=producer)

    def readable(self, key, first, last):
        held = self.logs[key].held
        return Pairs.of([[at, held[at]] for at in range(max(first, self.logs[key].start), last)])

    def poll(self, client):
        reads, marks, starts = {}, {}, {}
        for key in client.assigned:
            log = self.logs[key]
            first = client.position.get(key, 0)
            last = min(len(log.held), first + self.rng.randint(0, 12))
            pairs = self.readable(key, first, last)
            if len(pairs):
                reads[key] = pairs
                client.position[key] = pairs.end
            marks[key], starts[key] = len(log.held), log.start
        times = self.interval(client)
        node = self.rng.choice(["n1", "n2", "n3"])
        more = {"hw": marks, "log_start": starts} if self.rng.random() < 0.5 else {}
        self.add(client, "poll", None, None, reads, times, node=node, **more)

    def length(self, client):
        key = self.rng.choice(KEYS)
        log, f = self.logs[key], self.rng.choice(["end", "start", "empty"])
        value = log.start if f == "start" else len(log.held)
        self.add(client, f, key, value if f == "empty" else None, value, self.interval(client))

    def assign(self, client):
        keys = self.rng.sample(KEYS, self.rng.randint(1, len(KEYS)))
        client.position = {key: at for key, at in client.position.items() if key in keys}
        client.assigned = keys
        self.add(client, "assign", None, keys, keys, self.interval(client))

    def crash(self, client):
        client.position, client.sequence = {}, {}
        client.epoch += 1
        self.add(client, "crash", None, None, None, self.interval(client))

    def retain(self, _):
        log = self.logs[self.rng.choice(KEYS)]
        log.start = self.rng.randint(log.start, len(log.held))

    def commit(self, client):
        key = self.rng.choice(KEYS)
        offset = self.rng.randint(0, len(self.logs[key].held))
        kind = "info" if self.rng.random() < 0.1 else "ok"
        if kind == "ok" or self.rng.random() < 0.5:
            self.offsets[key] = offset
        value = {key: offset} if kind == "ok" else None
        asked = ["g", {key: offset}]
        times = self.interval(client)
        self.add(client, "offset_commit", None, asked, value, times, kind=kind)

    def fetch(self, client):
        value = {key: self.offsets.get(key) for key in KEYS}
        self.add(client, "offset_fetch", None, ["g", KEYS], value, self.interval(client))


def system(seed, mode):
    made = System(random.Random(f"system-{mode}-{seed}"), mode)
    return made, made.run()


def judged(operations, mode):
    header = Header(source="sim", options={"read_consistency": mode, "consumer": "assign"})
    return judge_operations(header, operations).verdict


@pytest.mark.parametrize("mode", [LINEARIZABLE, COMMITTED_PREFIX])
def test_nothing_is_found_in_a_correct_system(mode):
    for seed in range(SEEDS):
        _, operations = system(seed, mode)
        verdict = judged(operations, mode)
        found = {name: result for name, result in verdict.classes.items() if result.count}
        assert found == {}, (seed, {name: one.witness.text for name, one in found.items()})
        checked = [name for name, one in verdict.classes.items() if one.status == "valid"]
        assert len(checked) > 20, checked


def lose(_, operations):
    acked = {
        value
        for op in operations
        if op.f == "send" and op.value is not None
        for value in ([op.asked] if isinstance(op.asked, str) else op.asked)
    }
    final = operations[-1].value
    gone = next(v for key in KEYS for v in final[key].values[:-1] if v in acked)
    for op in operations:
        for name, pairs in op.reads().items():
            op.value[name] = Pairs.of([list(pair) for pair in pairs if pair[1] != gone])


def double(_, operations):
    poll = next(
        op for op in operations if op.f == "poll" and any(len(p) > 2 for p in op.value.values())
    )
    key, pairs = next((key, pairs) for key, pairs in poll.value.items() if len(pairs) > 2)
    changed = [list(pair) for pair in pairs]
    changed[1][1] = changed[0][1]
    poll.value[key] = Pairs.of(changed)


def reorder(_, operations):
    sends = [op for op in operations if op.f == "send" and op.value is not None and op.key == "a/0"]
    early, late = next((a, b) for a in sends for b in sends if a.end_ns + 5 < b.start_ns)
    early.start_ns = late.end_ns + 5
    early.end_ns = early.start_ns + 1


def invent(_, operations):
    poll = next(
        op for op in operations if op.f == "poll" and any(len(p) for p in op.value.values())
    )
    key, pairs = next((key, pairs) for key, pairs in poll.value.items() if len(pairs))
    poll.value[key] = Pairs.of([*map(list, pairs), [pairs.end, "k#never"]])


def usurp(_, operations):
    seen = {}
    for op in operations:
        term = (op.evidence or {}).get("term")
        if op.f == "send" and term and seen.setdefault((op.key, term), op) is not op:
            op.node = "n9"
            return


@pytest.mark.parametrize(
    ("fault", "names"),
    [
        (lose, {"lost-write"}),
        (double, {"duplicate", "inconsistent-offsets"}),
        (reorder, {"linearizability"}),
        (invent, {"phantom", "inconsistent-offsets"}),
        (usurp, {"two-leaders-one-term"}),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_one_fault_in_a_whole_run_is_found(fault, names):
    for seed in range(SEEDS // 2):
        made, operations = system(seed, LINEARIZABLE)
        fault(made, operations)
        found = {result.name for result in judged(operations, LINEARIZABLE).failures()}
        assert found & names, (seed, found)
