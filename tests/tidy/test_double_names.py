"""One word, one meaning: a public class name stands once in raftlog, sim and the black-box tests.

Generated Kafka messages, private names and the programs of the black-box tests are exempt.
`TWICE_TODAY` has the names that still stand for two things, each with its number of classes. It may
only shrink: take a name out once its classes are told apart. `JUSTIFIED` has those that stay, each
with its reason.
"""

import ast
from collections import Counter
from collections.abc import Iterable

from tests.tidy.tree import BESIDE, PRODUCT, SourceFile, files_below, planted

EXEMPT = ("raftlog/kafka/messages/", "jepsen_style_tests/clients/programs/")
JUSTIFIED = {
    "RecordedConsumer": "one for each Kafka library, under the name that its user knows",
    "RecordedProducer": "one for each Kafka library, under the name that its user knows",
}
TWICE_TODAY: dict[str, int] = {
    "Admin": 2,
    "Answers": 2,
    "Asked": 3,
    "Bounds": 2,
    "Carry": 2,
    "Client": 3,
    "Cluster": 2,
    "Connected": 2,
    "Consumer": 2,
    "Entry": 2,
    "Fault": 2,
    "Faults": 2,
    "Found": 3,
    "FurtherDisk": 2,
    "Group": 2,
    "Hands": 2,
    "Hunt": 2,
    "Kind": 2,
    "Known": 2,
    "Links": 2,
    "Listing": 2,
    "Member": 2,
    "Nemesis": 2,
    "Network": 2,
    "Outcome": 4,
    "Pipe": 2,
    "Place": 3,
    "Plan": 2,
    "Producer": 2,
    "Producers": 2,
    "ProtocolError": 2,
    "RecordedBoot": 2,
    "Recorder": 2,
    "Recordings": 2,
    "Refused": 3,
    "Result": 2,
    "Row": 3,
    "Scenario": 2,
    "Segment": 2,
    "Settings": 5,
    "Stage": 2,
    "Start": 2,
    "Step": 2,
    "Steps": 3,
    "Story": 2,
    "Stream": 2,
    "Tally": 2,
    "Told": 2,
    "Turn": 3,
    "Violation": 2,
    "Wanted": 2,
    "Workers": 2,
    "Workload": 3,
    "World": 2,
    "Written": 2,
}


def twice(files: Iterable[SourceFile]) -> dict[str, int]:
    """The public top-level class names that stand more than once, and how often each does."""
    found = Counter(
        node.name
        for file in files
        if not file.path.startswith(EXEMPT)
        for node in file.tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    return {name: count for name, count in sorted(found.items()) if count > 1}


def test_no_further_name_stands_for_two_things():
    found = twice(files_below(*PRODUCT, *BESIDE))
    grown = {
        name: count
        for name, count in found.items()
        if name not in JUSTIFIED and count > TWICE_TODAY.get(name, 0)
    }
    assert grown == {}, "a public class name is taken: choose a word of its own"


def test_the_list_shrinks_with_the_tree():
    found = twice(files_below(*PRODUCT, *BESIDE))
    gone = {
        name: found.get(name, 0) for name in TWICE_TODAY if found.get(name) != TWICE_TODAY[name]
    }
    assert gone == {}, "correct TWICE_TODAY: these names have fewer classes now"
    assert [name for name in JUSTIFIED if name not in found] == []


def test_a_double_name_is_found_and_private_ones_are_not():
    one = planted("class Round: pass\nclass _Own: pass", "raftlog/raft/rounds.py")
    two = planted("class Round: pass\nclass _Own: pass", "raftlog/storage/rounds.py")
    message = planted("class Round: pass", "raftlog/kafka/messages/round.py")
    assert twice([one, two, message]) == {"Round": 2}
    assert twice([one, message]) == {}
