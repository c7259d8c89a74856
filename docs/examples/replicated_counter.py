"""A counter that three replicas agree on, without Kafka: append to a log, fold what it holds.

python docs/examples/replicated_counter.py
"""

import raftlog


def main() -> None:
    """Append three steps, and count what the log holds."""
    with raftlog.ReplicatedLog(replicas=3) as log:
        for step in (1, 2, 39):
            log.append(str(step).encode())
        print(sum(int(entry.data) for entry in log.read()))


if __name__ == "__main__":
    main()
