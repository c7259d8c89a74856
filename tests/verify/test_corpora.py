"""`scripts/corpora` reads the public formats and notices a verdict that differs.

The files here are our own, in the formats of the public ones; the names say what their owners would
have published.
"""

import importlib.util

import pytest

from tests.tidy.tree import ROOT

ETCD = """INFO  jepsen.util - 0	:invoke	:write	3
INFO  jepsen.util - 0	:ok	:write	3
INFO  jepsen.core - Something else
INFO  jepsen.util - 1	:invoke	:cas	[3 4]
INFO  jepsen.util - 2	:invoke	:cas	[1 4]
INFO  jepsen.util - 2	:fail	:cas	[1 4]
INFO  jepsen.util - 1	:info	:cas	:timed-out
INFO  jepsen.util - 3	:invoke	:read	nil
INFO  jepsen.util - 3	:fail	:read	:timed-out
INFO  jepsen.util - 3	:invoke	:read	nil
INFO  jepsen.util - 3	:ok	:read	{read}
"""
KV = """{{:process 0, :type :invoke, :f :put, :key "a", :value "x"}}
{{:process 0, :type :ok, :f :put, :key "a", :value "x"}}
{{:process 1, :type :invoke, :f :append, :key "a", :value "yz"}}
{{:process 1, :type :ok, :f :append, :key "a", :value "yz"}}
{{:process 0, :type :invoke, :f :get, :key "a", :value nil}}
{{:process 0, :type :ok, :f :get, :key "a", :value "{get}"}}
"""
KNOSSOS = """[{{:process 0, :type :invoke, :f :write, :value 1}} ; a comment
 {{:process 0, :type :ok, :f :write, :value 1}}
 {{:process 1, :type :invoke, :f :read, :value nil}}
 {{:process 1, :type :ok, :f :read, :value {read}}}]
"""


@pytest.fixture
def corpora(monkeypatch):
    spec = importlib.util.spec_from_file_location("corpora", ROOT / "scripts" / "_corpora.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["corpora", *map(str, arguments)])
        return module.main()

    return run


def write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


AGREEING = {
    "test_data/jepsen/etcd_002.log": ETCD.format(read=4),
    "test_data/jepsen/etcd_005.log": ETCD.format(read=3),
    "test_data/jepsen/etcd_000.log": ETCD.format(read=1),
    "test_data/jepsen/etcd_095.log": "never judged",
    "test_data/kv/c01-ok.txt": KV.format(get="xyz"),
    "test_data/kv/c01-bad.txt": KV.format(get="xy"),
    "data/cas-register/good/one.edn": KNOSSOS.format(read=1),
    "data/cas-register/bad/one.edn": KNOSSOS.format(read=2),
    "data/cas-register/bad/one.html": "no history",
}


def test_verdicts_that_agree(corpora, tmp_path, capsys):
    write(tmp_path, AGREEING)
    assert corpora(tmp_path) == 0
    out = capsys.readouterr().out
    assert "etcd: 3 of 3" in out
    assert "kv: 2 of 2" in out
    assert "knossos: 2 of 2" in out


@pytest.mark.parametrize(
    "name", [name for name in AGREEING if "095" not in name and not name.endswith("html")]
)
def test_a_verdict_that_differs(name, corpora, tmp_path, capsys):
    swapped = {
        "etcd_002": ETCD.format(read=1),
        "etcd_005": ETCD.format(read=2),
        "etcd_000": ETCD.format(read=4),
        "c01-ok": KV.format(get="x"),
        "c01-bad": KV.format(get="xyz"),
        "good/one": KNOSSOS.format(read=2),
        "bad/one": KNOSSOS.format(read=1),
    }
    text = next(text for part, text in swapped.items() if part in name)
    write(tmp_path, AGREEING | {name: text})
    assert corpora(tmp_path) == 1
    assert "DIFFERS" in capsys.readouterr().out


def test_a_spent_budget_is_said(corpora, tmp_path, capsys):
    write(tmp_path, {"kv/c01-ok.txt": KV.format(get="xyz")})
    assert corpora(tmp_path, "--steps", "1") == 2
    assert "UNKNOWN" in capsys.readouterr().out


def test_a_folder_without_histories(corpora, tmp_path):
    assert corpora(tmp_path) == 64
