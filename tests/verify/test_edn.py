"""EDN and Jepsen's histories: what is read, what is refused, and the way back."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.verify import BadHistory, Header, intervals, judge_operations
from raftlog.verify.imports.edn import Keyword, read_all, write
from raftlog.verify.imports.jepsen_edn import header_for, read_ops, write_op
from tests.verify.writing import invalid


def one(text):
    (element,) = read_all(text)
    return element


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("nil", None),
        ("true", True),
        ("-12", -12),
        ("7N", 7),
        ("1.5e3", 1500.0),
        ("2.5M", 2.5),
        (":a/b", "a/b"),
        ("sym", "sym"),
        ('"a\\n\\"b\\u00e9"', 'a\n"bé'),
        ("\\newline", "\n"),
        ("\\x", "x"),
        ("[1 (2, 3) #{4}]", [1, [2, 3], [4]]),
        ('{:a 1 "b" [2]}', {"a": 1, "b": [2]}),
        ("{[1 2] 3}", {(1, 2): 3}),
        ('#inst "2026-01-01"', "2026-01-01"),
        ("#jepsen.history.Op{:index 0}", {"index": 0}),
        ("[1 #_ [9 9] 2] ; the end", [1, 2]),
    ],
)
def test_elements(text, value):
    assert one(text) == value


@pytest.mark.parametrize(
    "text",
    ["[1", "]", "[1)", "{:a}", '"open', "#_", "#tag", "[" * 100 + "]" * 100, "#", "{1 2", '"\\q"'],
)
def test_what_is_no_edn(text):
    with pytest.raises(BadHistory):
        list(read_all(text))


def test_the_line_is_named():
    with pytest.raises(BadHistory, match="line 3"):
        list(read_all("{:a 1}\n{:b 2}\n{:c ]"))


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused(text):
    with contextlib.suppress(BadHistory):
        list(read_all(text))


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.builds(Keyword, st.just("k")),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(values)
def test_what_is_written_is_read_again(value):
    assert one(write(value)) == value


KAFKA = """
{:index 0 :time 10 :process 0 :type :invoke :f :send :value [[:send 5 17]]}
{:index 1 :time 20 :process 0 :type :ok :f :send :value [[:send 5 [3 17]]]}
{:index 2 :time 29 :process 3 :type :invoke :f :send :value [[:send 5 18]]}
{:index 3 :time 30 :process 1 :type :invoke :f :poll :value [[:poll]]}
{:index 4 :time 40 :process 1 :type :ok :f :poll :value [[:poll {5 [[3 17]]}]]}
{:index 5 :time 50 :process 1 :type :invoke :f :txn :value [[:poll] [:send 6 1]]}
{:index 6 :time 60 :process 1 :type :ok :f :txn :value [[:poll {5 [[4 18]]}] [:send 6 [0 1]]]}
{:index 7 :time 61 :process :nemesis :type :info :f :kill :value {"n1" :killed}}
{:index 8 :time 62 :process 2 :type :invoke :f :assign :value [5 6]}
{:index 9 :time 63 :process 2 :type :ok :f :assign :value [5 6]}
{:index 10 :time 65 :process 3 :type :info :f :send :value [[:send 5 [4 18]]] :error :timeout}
"""


def test_the_kafka_workload_is_understood():
    ops = list(read_ops(KAFKA))
    assert (ops[0].f, ops[0].key, ops[0].value) == ("send", "5", 17)
    assert ops[1].value == [3, 17]
    assert ops[4].value == {"5": [[3, 17]]}
    assert ops[6].value == [["poll", {"5": [[4, 18]]}], ["send", "6", [0, 1]]]
    assert ops[7].process == "nemesis"
    assert ops[8].value == ["5", "6"]
    header = header_for(ops)
    assert header.options["transactions"]
    operations, nemesis = intervals(ops)
    verdict = judge_operations(header, operations, nemesis).verdict
    assert invalid(verdict) == []
    assert verdict.classes["G1c"].allowed
    assert len(nemesis) == 1


def test_a_list_of_operations_is_read_too():
    assert len(list(read_ops(f"[{KAFKA}]"))) == 11


def test_there_and_back():
    ops = list(read_ops(KAFKA))
    again = list(read_ops("\n".join(write_op(op) for op in ops)))
    assert [op.document() for op in again] == [op.document() for op in ops]


BATCH = """
{:index 0 :time 1 :process 0 :type :invoke :f :send :value [[:send 5 [1 2]]]}
{:index 1 :time 2 :process 0 :type :ok :f :send :value [[:send 5 [0 [1 2]]]]}
{:index 2 :time 3 :process 0 :type :invoke :f :send :value [[:send 5 [3 4]]]}
{:index 3 :time 4 :process 0 :type :info :f :send :value [[:send 5 [3 4]]]}
{:index 4 :time 5 :process 1 :type :invoke :f :send :value [[:send 5 [6 7]]]}
{:index 5 :time 6 :process 1 :type :fail :f :send :value [[:send 5 [nil [6 7]]]]}
"""


def test_a_batch_is_not_taken_for_an_offset_and_a_value():
    """Its last value was, so that a history with batches could not be written and read again."""
    ops = list(read_ops(BATCH))
    named = [None, [6, 7]]
    assert [op.value for op in ops] == [[1, 2], [0, [1, 2]], [3, 4], [3, 4], [6, 7], named]
    again = list(read_ops("\n".join(write_op(op) for op in ops)))
    assert [op.document() for op in again] == [op.document() for op in ops]
    operations, _ = intervals(ops)
    assert [op.asked for op in operations] == [[1, 2], [3, 4], [6, 7]]


MOVED = """
{:index 0 :time 1 :process 0 :type :invoke :f :send :value [[:send 5 1]]}
{:index 1 :time 2 :process 0 :type :ok :f :send :value [[:send 5 [0 1]]]}
{:index 2 :time 3 :process 0 :type :invoke :f :send :value [[:send 5 2]]}
{:index 3 :time 4 :process 0 :type :ok :f :send :value [[:send 5 [1 2]]]}
{:index 4 :time 5 :process 1 :type :invoke :f :poll :value [[:poll]]}
{:index 5 :time 6 :process 1 :type :ok :f :poll :value [[:poll {5 [[1 2] [0 1]]}]] LOG}
"""


@pytest.mark.parametrize(
    ("log", "keys", "count"),
    [
        ("", None, 1),
        (":rebalance-log [{:keys #{5 6}}, {:keys [7 5]}]", ["5", "6", "7"], 0),
        (":rebalance-log [{:keys [6]}]", ["6"], 1),
        (":rebalance-log []", [], 1),
    ],
)
def test_keys_that_were_rebalanced_meanwhile_are_exempt(log, keys, count):
    """The log was written and never read, so that an import was accused of what Jepsen allows."""
    ops = list(read_ops(MOVED.replace("LOG", log)))
    assert ops[-1].rebalance == keys
    again = list(read_ops("\n".join(write_op(op) for op in ops)))
    assert [op.document() for op in again] == [op.document() for op in ops]
    operations, nemesis = intervals(ops)
    verdict = judge_operations(header_for(ops), operations, nemesis).verdict
    assert verdict.classes["int-nonmonotonic-poll"].count == count


ABORTED = """
{:index 0 :time 1 :process 0 :type :invoke :f :send :value [[:send 5 1]]}
{:index 1 :time 2 :process 0 :type :ok :f :send :value [[:send 5 [0 1]]]}
{:index 2 :time 3 :process 0 :type :invoke :f :send :value [[:send 5 2]]}
{:index 3 :time 4 :process 0 :type :ok :f :send :value [[:send 5 [1 2]]]}
{:index 4 :time 5 :process 1 :type :invoke :f :txn :value [[:poll] [:send 6 9]]}
{:index 5 :time 6 :process 1 :type TYPE :f :txn :value [[:poll {5 [[1 1]]}] [:send 6 [0 9]]]}
{:index 6 :time 7 :process 2 :type :invoke :f :poll :value [[:poll]]}
{:index 7 :time 8 :process 2 :type TYPE :f :poll :value [[:poll {5 [[0 2]]}]]}
{:index 8 :time 9 :process 3 :type :invoke :f :poll :value [[:poll]]}
{:index 9 :time 9 :process 3 :type TYPE :f :poll :value [[:poll]]}
"""


@pytest.mark.parametrize("kind", [":info", ":fail"])
def test_what_came_to_nothing_has_read_all_the_same(kind):
    """Reads of transactions that were aborted were left out, and with them what they accuse."""
    ops = list(read_ops(ABORTED.replace("TYPE", kind)))
    assert ops[5].value == [["poll", {"5": [[1, 1]]}], ["send", "6", [0, 9]]]
    assert (ops[7].value, ops[9].value) == ({"5": [[0, 2]]}, None)
    again = list(read_ops("\n".join(write_op(op) for op in ops)))
    assert [op.document() for op in again] == [op.document() for op in ops]
    operations, nemesis = intervals(ops)
    verdict = judge_operations(header_for(ops), operations, nemesis).verdict
    assert verdict.classes["inconsistent-offsets"].count == 2
    assert verdict.classes["G1a"].count == 0, "nobody read what the aborted one sent"
    assert not any(result.witness.key == "6" for result in verdict.failures())


@pytest.mark.parametrize("steps", ["[[:send 6 9]]", "[[:send 6 9] [:poll {5 [[1 1]]}]]"])
def test_an_end_with_other_steps_than_its_call(steps):
    text = ABORTED.replace("TYPE", ":info")
    wrong = text.replace("[[:poll {5 [[1 1]]}] [:send 6 [0 9]]]", steps)
    with pytest.raises(BadHistory):
        intervals(list(read_ops(wrong)))


@pytest.mark.parametrize("log", ["5", "[5]", "{:keys [5]}", "[{:keys 5}]"])
def test_a_strange_rebalance_log_is_refused(log):
    with pytest.raises(BadHistory, match="rebalance-log"):
        list(read_ops(MOVED.replace("LOG", f":rebalance-log {log}")))


@pytest.mark.parametrize("text", ["", " ; nothing", "[]"])
def test_a_file_without_operations_is_no_history(text):
    with pytest.raises(BadHistory, match="empty"):
        list(read_ops(text))


def test_missing_times_are_places_in_the_file():
    text = "{:process 0 :type :invoke :f :read :value nil} {:process 0 :type :ok :f :read :value 3}"
    ops = list(read_ops(text))
    assert [(op.index, op.time_ns) for op in ops] == [(0, 0), (1, 1)]
    header = header_for(ops)
    assert (header.model, header.options) == ("cas-register", {})
    operations, _ = intervals(ops)
    assert invalid(
        judge_operations(Header(source="import"), operations, model=header.model).verdict
    )


@pytest.mark.parametrize(
    "text",
    [
        "[1 2]",
        "{:process 0 :type :invoke}",
        "{:process 0 :type :later :f :read}",
        "{:process 0 :type :invoke :f :send :value [[:send]]}",
        "{:process 0 :type :invoke :f :txn :value [[:append 1 2]]}",
        "{:process 0 :type :ok :f :poll :value [3]}",
        "{:process 0 :type :invoke :f :read :time 1.5}",
        "{:process 0 :type :info :f :txn :value [{5 [[0 1]]}]}",
        "{:process 0 :type :invoke :f :assign :value 5}",
        "{:process 0 :type :ok :f :poll :value [[:poll {1 [3]}]]}",
    ],
)
def test_what_is_no_jepsen_history(text):
    with pytest.raises(BadHistory):
        list(read_ops(text))
