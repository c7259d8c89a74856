"""The ground of every test: hypothesis profiles, needed programs, and the count of probes.

* Hypothesis runs few, derandomised examples by default: CI repeats itself exactly. Exploring is
  `--hypothesis-profile=soak`.
* A test marked `needs_command("kcat")` fails with advice when the program is missing; under
  `--no-system` it is skipped instead, and counted at the end.
* A test marked `soak` takes minutes: it runs under `--soak`, as `scripts/soak` does.
* The probes passed by all tests together are counted across processes; `--require-probes` fails a
  run that left one of the tree's probes unreached.
"""

import faulthandler
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from raftlog.base import probes
from scripts import _system
from tests.tidy.probes import probe_names
from tests.tidy.tree import product_files

ROOT = Path(__file__).resolve().parent.parent
NOT_INSTALLED = " is not installed"
REACHED = pytest.StashKey[set[str]]()

settings.register_profile(
    "ci",
    max_examples=50,
    stateful_step_count=30,
    derandomize=True,
    deadline=None,
    database=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "soak",
    max_examples=5_000,
    stateful_step_count=100,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ci")


def pytest_addoption(parser):
    group = parser.getgroup("raftlog")
    group.addoption(
        "--no-system", action="store_true", help="skip tests whose program is not installed"
    )
    group.addoption("--soak", action="store_true", help="also run what takes minutes")
    group.addoption(
        "--require-probes", action="store_true", help="fail when a probe was reached by no test"
    )


def pytest_configure(config):
    config.stash[REACHED] = set()


def pytest_collection_modifyitems(config, items):
    """Leave out what only a soak has time for."""
    if config.getoption("--soak"):
        return
    long = [item for item in items if item.get_closest_marker("soak")]
    if long:
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if not item.get_closest_marker("soak")]


def pytest_runtest_setup(item):
    if item.get_closest_marker("timeout"):
        # The stacks of who takes long by intention are of no use, and they are read while it runs:
        # a busy test died of that.
        faulthandler.cancel_dump_traceback_later()
    for marker in item.iter_markers("needs_command"):
        (name,) = marker.args
        if _is_here(name):
            continue
        if item.config.getoption("--no-system"):
            pytest.skip(f"{name}{NOT_INSTALLED}")
        pytest.fail(f"{name}{NOT_INSTALLED}: run scripts/system_packages", pytrace=False)


def _is_here(name: str) -> bool:
    """Whether the machine has what `scripts/_system.py` lists, or else a program of that name."""
    for need in _system.NEEDS:
        if need.name == name:
            return need.is_here()
    return shutil.which(name) is not None


@pytest.fixture(autouse=True)
def _count_probes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Add the probes that a test passed to those of the run; tests may reset them."""
    yield
    request.config.stash[REACHED].update(probes.fired())


def pytest_sessionfinish(session):
    """A worker hands its probes to the process that started it."""
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["probes"] = sorted(session.config.stash[REACHED])
    elif session.config.getoption("--require-probes") and _unreached(session.config):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node):
    node.config.stash[REACHED].update(getattr(node, "workeroutput", {}).get("probes", []))


def pytest_terminal_summary(terminalreporter, config):
    for why, count in _left_out(terminalreporter.stats.get("skipped", [])):
        name = why.removesuffix(NOT_INSTALLED)
        needs = [need for need in _system.NEEDS if need.name == name]
        advice = f"; as root run: {' '.join(_system.command_for(needs))}" if needs else ""
        terminalreporter.write_line(f"left out: {count}, for {why}{advice}")
    if config.getoption("--require-probes"):
        for name in _unreached(config):
            terminalreporter.write_line(f"probe reached by no test: {name}", red=True)


def _left_out(skipped) -> list[tuple[str, int]]:
    """Reason -> how many tests were skipped for it."""
    return sorted(
        Counter(report.longrepr[2].removeprefix("Skipped: ") for report in skipped).items()
    )


def named_probes() -> set[str]:
    """Every probe of the product."""
    return {name for file in product_files() for name, _ in probe_names(file)}


def _unreached(config) -> list[str]:
    return sorted(named_probes() - config.stash[REACHED])
