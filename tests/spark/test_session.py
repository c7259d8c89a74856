"""Spark's needs are looked for before it is started, and the advice is a command to run."""

import tomllib
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

from raftlog.cli.demo import spark_ending
from raftlog.spark import requirements, session
from tests.tidy.tree import ROOT


def java(folder: Path, prints: str) -> Path:
    """A JAVA_HOME whose java says this."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\nprintf '%s' '{prints}' >&2\n")
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize(
    ("prints", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21" 2023-09-19', 21),
        ("nonsense", None),
    ],
)
def test_the_version_of_java_is_read(tmp_path, monkeypatch, prints, version):
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path, prints)))
    assert requirements.java_version() == version


def test_no_java_at_all(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert requirements.java_version() is None
    error = requirements.missing()
    assert error is not None
    assert "there is no Java" in error.what
    assert "scripts/system_packages" in error.do
    with pytest.raises(type(error), match="no Java"):
        session.local_session()


def test_an_old_java_and_no_pyspark(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path, 'version "11.0.2"')))
    error = requirements.missing()
    assert error is not None
    assert "Java 11 is too old" in error.what
    monkeypatch.setattr(requirements, "find_spec", lambda name: None)
    error = requirements.missing()
    assert error is not None
    assert (error.what, error.do) == ("pyspark is not installed", "pip install 'raftlog[spark]'")


def test_the_demo_goes_on_without_spark(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    found = spark_ending.run("127.0.0.1:1", "flights", tmp_path, 5)
    assert found.claims == ()
    assert found.skipped.startswith("there is no Java: scripts/system_packages")
    assert found.document() == {"skipped": found.skipped}


def test_spark_finds_the_source_by_itself(monkeypatch):
    """Spark loads top-level modules called pyspark_* and registers their DefaultSource."""
    monkeypatch.syspath_prepend(str(ROOT / "raftlog" / "spark" / "entry"))
    assert any(each.name == "pyspark_raftlog" for each in iter_modules())
    found = import_module("pyspark_raftlog")
    assert found.DefaultSource.name() == "raftlog"
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    entry = "raftlog/spark/entry"
    assert entry in wheel["dev-mode-dirs"]
    assert wheel["targets"]["wheel"]["force-include"] == {
        f"{entry}/pyspark_raftlog.py": "pyspark_raftlog.py"
    }


def test_javas_options_are_added_to_those_of_arrow():
    found = session.settings_of(
        "local[3]", "2g", {"spark_driver_extraJavaOptions": "-Xss4m", "spark_ui_enabled": "true"}
    )
    assert found["spark.driver.extraJavaOptions"] == f"{session.ARROW_OPTIONS} -Xss4m"
    assert found["spark.executor.extraJavaOptions"] == session.ARROW_OPTIONS
    assert (found["spark.ui.enabled"], found["spark.driver.memory"]) == ("true", "2g")
    assert found["spark.sql.shuffle.partitions"] == "3"


@pytest.mark.needs_command("java")
@pytest.mark.filterwarnings("ignore")
def test_the_session_reads_arrow_without_checks(spark):
    """The property's name is Arrow's: if Arrow renamed it, `count` would only get slower."""
    checking = spark.sparkContext._jvm.org.apache.arrow.memory.BoundsChecking
    assert checking.BOUNDS_CHECKING_ENABLED is False
