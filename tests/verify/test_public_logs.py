"""`raftlog verify` reads what Jepsen, Knossos and Porcupine publish, by what is in the file."""

import json

import pytest

from raftlog.cli.main import run
from raftlog.verify import MODELS, BadHistory, intervals, judge_operations
from raftlog.verify.imports.jepsen_edn import header_for, read_ops, write_op
from raftlog.verify.imports.public_logs import is_public, read_public
from tests.verify.test_corpora import ETCD, KNOSSOS, KV

MUTEX = """[{{:process 0, :type :invoke, :f :acquire}} {{:process 0, :type :ok, :f :acquire}}
 {{:process 1, :type :invoke, :f :release}} {{:process 1, :type :fail, :f :release}}
 {{:process 0, :type :invoke, :f :release}} {{:process 0, :type :{released}, :f :release}}
 {{:process 2, :type :invoke, :f :acquire}} {{:process 2, :type :ok, :f :acquire}}]
"""
TRANSACTIONS = """; x and y hold 0
{{:process 0, :type :invoke, :f :txn, :value [[:read :x nil] [:write :y 2]]}}
{{:process 0, :type :ok, :f :txn, :value [[:read :x 0] [:write :y 2]]}}
{{:process 1, :type :invoke, :f :txn, :value [[:read :x nil] [:read :y nil]]}}
{{:process 1, :type :ok, :f :txn, :value [[:read :x 0] [:read :y {y}]]}}
"""


@pytest.mark.parametrize(
    ("name", "good", "bad", "model"),
    [
        ("etcd_002.log", ETCD.format(read=4), ETCD.format(read=1), "cas-register"),
        ("c01.txt", KV.format(get="xyz"), KV.format(get="xy"), "key-value"),
        ("one.edn", KNOSSOS.format(read=1), KNOSSOS.format(read=2), "cas-register"),
        ("etcd.edn", MUTEX.format(released="ok"), MUTEX.format(released="fail"), "mutex"),
        ("multi.txt", TRANSACTIONS.format(y=2), TRANSACTIONS.format(y=0), "multi-register"),
    ],
)
def test_each_format_by_what_is_in_the_file(name, good, bad, model, tmp_path, capsys):
    for text, code in ((good, 0), (bad, 1)):
        path = tmp_path / name
        path.write_text(text)
        assert run(["verify", str(path), "--format", "json"]) == code
        document = json.loads(capsys.readouterr().out)
        assert document["model"] == model
        assert document["operations"] == len(list(read_public(text))) // 2


def test_a_history_of_ours_is_none_of_them():
    assert not is_public(json.dumps({"format": 1, "source": "import"}))
    assert not is_public("")


def test_a_console_log_may_begin_with_other_lines():
    begin = "INFO jepsen.core - Setting up\n" * 20
    assert len(list(read_public(begin + ETCD.format(read=4)))) == 10


def test_a_cas_without_two_values_is_refused():
    with pytest.raises(BadHistory, match="old new"):
        list(read_public("INFO  jepsen.util - 1\t:invoke\t:cas\t3\n"))


@pytest.mark.parametrize("text", [MUTEX.format(released="ok"), TRANSACTIONS.format(y=2)])
def test_there_and_back(text):
    ops = list(read_ops(text))
    again = list(read_ops("\n".join(write_op(op) for op in ops)))
    assert [op.document() for op in again] == [op.document() for op in ops]


def calls(model, *lines):
    """Each line: process, f, times, asked, kind, value."""
    ops = []
    for process, f, (start, end), asked, kind, value in lines:
        at = {"process": process, "f": f}
        ops += [(start, 0, {**at, "type": "invoke", "value": asked})]
        ops += [(end, 1, {**at, "type": kind, "value": value})]
    rows = sorted(ops, key=lambda row: row[:2])
    text = "".join(
        f'{{:process {d["process"]} :type :{d["type"]} :f :{d["f"]} :key "k" :value {d["value"]}}}'
        for _, _, d in rows
    )
    found = list(read_ops(text))
    operations, _ = intervals(found)
    return judge_operations(header_for(found), operations, model=MODELS[model]).verdict


def test_an_append_that_may_have_happened():
    put = (0, "put", (0, 1), '"a"', "ok", '"a"')
    lost = (1, "append", (2, 3), '"b"', "info", '"b"')
    for text, code in (('"a"', 0), ('"ab"', 0), ('"b"', 1)):
        read = (2, "get", (4, 5), "nil", "ok", text)
        assert calls("key-value", put, lost, read).exit_code == code


def test_a_lock_that_two_may_hold_is_none():
    one = (0, "acquire", (0, 1), "nil", "ok", "nil")
    other = (1, "acquire", (2, 3), "nil", "ok", "nil")
    assert calls("mutex", one, other).verdict == "invalid"
    maybe = (0, "release", (2, 3), "nil", "info", "nil")
    assert calls("mutex", one, maybe, other).verdict == "valid"
