"""Whether Spark can run here, and what a session needs before the source works in it."""

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from raftlog.base.errors import OperatingError
from raftlog.spark.versions import OLDEST, is_too_old

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA_MIN: Final = 17
INSTALL_SPARK: Final = "pip install 'raftlog[spark]'"
UPGRADE_SPARK: Final = "pip install --upgrade 'raftlog[spark]'"
INSTALL_JAVA: Final = "scripts/system_packages, or: apt-get install default-jre-headless"
SPARKS_PYTHON: Final = "python3"
"""The workers' Python when none was chosen; `pyspark` exports it as PYSPARK_PYTHON."""
NEEDED: Final = ("pyspark", "pyarrow", "numpy")
HAS_RAFTLOG: Final = f"""
from importlib.util import find_spec
raise SystemExit(not all(find_spec(name) for name in {("raftlog", *NEEDED[1:])}))
"""
"""A program for another Python: it exits with 0 if that Python has all that workers need. Spark
provides its own pyspark to them."""


def missing() -> OperatingError | None:
    """The error that keeps Spark from starting here, with the command that helps; None without
    one."""
    error = missing_packages()
    if error is not None:
        return error
    java = java_version()
    if java is None:
        return OperatingError("there is no Java", on="Spark", do=INSTALL_JAVA)
    if java < JAVA_MIN:
        return OperatingError(
            f"Java {java} is too old, Spark needs {JAVA_MIN}", on="Spark", do=INSTALL_JAVA
        )
    return None


def missing_packages() -> OperatingError | None:
    """The error for a package of `raftlog[spark]` that is missing or too old; None when all are
    there."""
    for module in NEEDED:
        if find_spec(module) is None:
            return OperatingError(f"{module} is not installed", on="Spark", do=INSTALL_SPARK)
    # Not from the metadata of pip: Spark's scripts put their own pyspark before the installed one.
    from pyspark.version import __version__

    return too_old(__version__, "pyspark")


def too_old(found: str, on: str) -> OperatingError | None:
    """The error for a Spark that is too old; None for one that is not."""
    if not is_too_old(found):
        return None
    return OperatingError(
        f"Spark {found} is too old, raftlog needs {OLDEST}", on=on, do=UPGRADE_SPARK
    )


def java_version() -> int | None:
    """The major version of the Java that Spark would start; None without one."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    if program is None:
        return None
    try:
        done = subprocess.run(
            [program, "-version"], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found is not None else None


def settle_python(spark: "SparkSession") -> None:
    """Let the workers of a session run a Python that has raftlog. `OperatingError`, which names
    PYSPARK_PYTHON, if the user chose a Python without raftlog."""
    context = spark.sparkContext
    if context.pythonExec == sys.executable:
        return
    if context.pythonExec == SPARKS_PYTHON and context.master.startswith("local"):
        # The user chose no Python, and the workers are on this machine. Spark sends this program's
        # name with all functions and sources that the session uses from now on.
        context.pythonExec = sys.executable
    elif not _has_raftlog(context.pythonExec):
        raise OperatingError(
            f"Spark's workers run {context.pythonExec}, which has no raftlog[spark]",
            on="PYSPARK_PYTHON",
            do=f"export PYSPARK_PYTHON={sys.executable} before the session starts, or install it "
            "there",
        )


def _has_raftlog(program: str) -> bool:
    """Whether a Python has raftlog. The driver plans queries with the same program."""
    try:
        done = subprocess.run([program, "-c", HAS_RAFTLOG], check=False, timeout=60)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0
