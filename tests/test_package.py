"""The package as a whole: public names come lazily, and assertions cannot be switched off."""

import subprocess
import sys

import pytest

import raftlog


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A fresh interpreter: what this one has imported already proves nothing."""
    return subprocess.run(
        [sys.executable, *arguments], check=False, capture_output=True, text=True, timeout=60
    )


def loaded_by(statement: str) -> set[str]:
    """The modules that a statement brings in."""
    script = f"import sys; {statement}; print(' '.join(sys.modules))"
    done = run("-c", script)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_importing_the_package_imports_no_floor():
    assert {name for name in loaded_by("import raftlog") if name.startswith("raftlog.")} == set()


@pytest.mark.parametrize("floor", ["base", "records", "raft", "kafka", "storage", "client.core"])
def test_importing_a_deciding_floor_imports_no_shell(floor: str):
    loaded = loaded_by(f"import raftlog.{floor}")
    assert loaded & {"trio", "raftlog.runtime", "raftlog.cli", "raftlog.embed"} == set()


def test_a_broker_that_is_not_under_test_loads_no_faults():
    loaded = loaded_by("import raftlog.cli.serve, raftlog.runtime.server, raftlog.cli.up")
    assert {name for name in loaded if name.startswith("raftlog.testing")} == set()


def test_a_cluster_of_processes_loads_no_broker_and_no_client():
    """It would take as long as the start of a broker, before the brokers start."""
    loaded = loaded_by("import raftlog; raftlog.Cluster(processes=True)")
    floors = tuple(f"raftlog.{each}." for each in ("broker", "partition", "raft", "groups"))
    assert {name for name in loaded if name.startswith(floors)} == set()
    shells = {"raftlog.runtime.server", "raftlog.client.core.client", "raftlog.client.blocking"}
    assert loaded & shells == set()


def test_the_garbage_collector_waits_while_a_public_name_is_loaded():
    """It would look through the new classes and functions again and again."""
    script = (
        "import gc, raftlog, raftlog.base.imports; seen = []\n"
        "gc.callbacks.append(lambda phase, told: seen.append(phase))\n"
        "raftlog.Cluster; print(seen.count('start') <= 1, gc.isenabled())"
    )
    assert run("-c", script).stdout == "True True\n"


def test_an_unknown_name_is_refused_as_python_does():
    with pytest.raises(AttributeError, match="no attribute 'Clutser'"):
        _ = raftlog.Clutser


def test_public_names_are_listed():
    assert dir(raftlog) == sorted(raftlog.__all__)


@pytest.mark.parametrize("option", ["-O", "-OO"])
def test_optimised_python_is_refused(option: str):
    done = run(option, "-c", "import raftlog")
    assert done.returncode == 1
    assert "raftlog does not run under python -O" in done.stderr


def test_optimised_python_is_refused_for_a_single_floor_too():
    done = run("-O", "-c", "import raftlog.base.ids")
    assert "raftlog does not run under python -O" in done.stderr
