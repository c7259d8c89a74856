"""The write-back disk under two threads, as a broker's log and job thread use it.

A power-loss test once ended with "write failed" in every group of a broker: while one thread made
the names of its directory durable, the other created a file, and that name was forgotten. The
rename that followed found no file, which poisons a data directory.
"""

import threading

import pytest

from raftlog.runtime.real_ports import PosixDisk
from raftlog.testing.faulty_disk import WriteBackDisk

FILES = 150


@pytest.fixture
def pair(tmp_path):
    real = PosixDisk(tmp_path)
    for name in ("log", "job"):
        real.make_dir(name)
    return real, WriteBackDisk(real, "")


def make_files(disk, directory, failures):
    try:
        for number in range(FILES):
            temporary, path = f"{directory}/{number}.new", f"{directory}/{number}"
            file = disk.open(temporary, create=True)
            file.write_at(0, [b"%d" % number])
            file.sync()
            disk.rename(temporary, path)
            disk.sync_dir(directory)
            if number % 3 == 0:
                disk.remove(path)
                disk.sync_dir(directory)
    except Exception as error:
        failures.append(error)


def test_two_threads_keep_their_names(pair):
    real, disk = pair
    failures = []
    threads = [
        threading.Thread(target=make_files, args=(disk, directory, failures))
        for directory in ("log", "job")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert failures == []
    kept = sorted(str(number) for number in range(FILES) if number % 3)
    for directory in ("log", "job"):
        assert real.list(directory) == kept
        assert real.open(f"{directory}/149").read_at(0, 10) == b"149"
