"""A broker does not ask the kernel again for memory that it freed a moment before."""

import os
import subprocess
import sys

import pytest

from raftlog.runtime import freed_memory

PROGRAM = """
import resource
import sys
from raftlog.runtime.freed_memory import keep_freed_memory

def faults(rounds):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(rounds):
        whole = b"".join([b"head", part])
        frame = bytearray(len(whole) + 100)
        del whole, frame
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

part = bytes(1 << 20)
if sys.argv[1] == "kept":
    assert keep_freed_memory()
faults(10)
print(faults(100))
"""


def faults(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


@pytest.mark.skipif(not freed_memory._is_glibc(), reason="sets glibc's rules")
def test_buffers_of_a_megabyte_cost_no_faults():
    """To seal a large frame took six times as long as its cipher: each of two buffers came from the
    kernel as zeros, page by page."""
    assert faults("as it is") > 100 * 100, "the C library gives memory back: what is kept, then?"
    assert faults("kept") < 1000


def test_another_c_library_is_left_alone(monkeypatch):
    monkeypatch.setattr(os, "confstr", lambda name: None)
    assert not freed_memory.keep_freed_memory()

    def refuse(name):
        raise ValueError(name)

    monkeypatch.setattr(os, "confstr", refuse)
    assert not freed_memory.keep_freed_memory()
