"""One word, one meaning: a public class name stands once in raftlog, sim and the black-box tests.

Generated Kafka messages, private names and the programs of the black-box tests are exempt.
`JUSTIFIED` has the names that stand for several things, each with its reason.
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


def test_no_name_stands_for_two_things():
    found = twice(files_below(*PRODUCT, *BESIDE))
    grown = {name: count for name, count in found.items() if name not in JUSTIFIED}
    assert grown == {}, "a public class name is taken: choose a word of its own"
    assert [name for name in JUSTIFIED if name not in found] == []


def test_a_double_name_is_found_and_private_ones_are_not():
    one = planted("class Round: pass\nclass _Own: pass", "raftlog/raft/rounds.py")
    two = planted("class Round: pass\nclass _Own: pass", "raftlog/storage/rounds.py")
    message = planted("class Round: pass", "raftlog/kafka/messages/round.py")
    assert twice([one, two, message]) == {"Round": 2}
    assert twice([one, message]) == {}
