"""One table of versions: what the packages ask for, the tests install and the guides tell."""

import importlib
import re
import subprocess
import sys
import tomllib

import pyspark
import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from raftlog.base.errors import OperatingError
from raftlog.spark import requirements
from raftlog.spark.versions import OLDEST, TESTED, is_too_old, minor_of
from tests.tidy.tree import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRA = {
    wanted.name: wanted for wanted in map(Requirement, PROJECT["optional-dependencies"]["spark"])
}


def test_the_extra_asks_for_the_oldest_of_the_table_or_a_newer_one():
    assert str(EXTRA["pyspark"].specifier) == f">={OLDEST}"
    assert min(TESTED, key=Version) == OLDEST
    assert all(Version(each.pyspark) in EXTRA["pyspark"].specifier for each in TESTED.values())
    assert "3.0.0" not in EXTRA["pandas"].specifier  # Spark warns of it in every session


def test_these_tests_run_on_a_release_of_the_table():
    installed = pyspark.__version__
    assert TESTED[minor_of(installed)].pyspark == installed
    pinned = (ROOT / "scripts" / "constraints.txt").read_text()
    assert f"pyspark=={next(iter(TESTED.values())).pyspark}\n" in pinned


def test_the_guides_tell_the_table():
    guide = (ROOT / "docs" / "guides" / "spark.md").read_text()
    rows = re.findall(r"^\| (\d[.\d]*) \| pyspark ([.\d]+) \| (\S+) \|$", guide, re.MULTILINE)
    assert rows == [
        (minor, each.pyspark, each.connector[0].removeprefix("org.apache.spark:"))
        for minor, each in TESTED.items()
    ]


@pytest.mark.parametrize(
    ("version", "old"),
    [
        ("3.5.9", True),
        ("4.1.4", True),
        ("4.2.0", False),
        ("4.10.0", False),
        ("5.0.0.dev1", False),
        ("", False),
    ],
)
def test_an_older_spark_is_known_by_its_number(version, old):
    assert is_too_old(version) == old


def test_an_old_spark_is_refused_in_one_line(monkeypatch, spark):
    monkeypatch.setattr("pyspark.version.__version__", "4.1.4")
    error = requirements.missing()
    said = "Spark 4.1.4 is too old, raftlog needs 4.2 (pyspark)"
    assert str(error) == f"{said}: pip install --upgrade 'raftlog[spark]'"
    with pytest.raises(OperatingError, match="too old"):
        importlib.import_module("raftlog.spark").register  # noqa: B018


def test_a_spark_without_what_we_need_keeps_its_other_sources(monkeypatch):
    """Spark gives up every Python source of a session when one module called pyspark_* cannot be
    imported: with pyspark 4.1, or without pyarrow, that was ours."""
    monkeypatch.syspath_prepend(str(ROOT / "raftlog" / "spark" / "entry"))
    monkeypatch.setattr("pyspark.version.__version__", "4.1.4")
    monkeypatch.delitem(sys.modules, "pyspark_raftlog", raising=False)
    found = importlib.import_module("pyspark_raftlog").DefaultSource
    monkeypatch.delitem(sys.modules, "pyspark_raftlog")
    assert found.name() == "raftlog"
    source = found({})
    for ask in (
        source.schema,
        lambda: source.reader(None),
        lambda: source.streamReader(None),
        lambda: source.writer(None, False),
        lambda: source.streamWriter(None, False),
    ):
        with pytest.raises(OperatingError, match=r"Spark 4\.1\.4 is too old"):
            ask()


def test_without_the_extra_each_door_says_one_line():
    """No trace, and the command that helps: the library, and the command line."""
    library = (
        "import sys; sys.modules['pyspark'] = None\n"
        "import raftlog.spark\n"
        "for name in ('register', 'local_session', 'RaftlogDataSource'):\n"
        "    try: getattr(raftlog.spark, name)()\n"
        "    except Exception as error: print(error)\n"
    )
    line = "pyspark is not installed (Spark): pip install 'raftlog[spark]'\n"
    done = subprocess.run(
        [sys.executable, "-c", library], check=True, capture_output=True, text=True, timeout=100
    )
    assert done.stdout == 3 * line
