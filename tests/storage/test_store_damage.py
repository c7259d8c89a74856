"""Damage of the store and the format file: one bad sector loses nothing, more is named."""

import copy

import attrs
import pytest
from raftlog_sim.world.disk import Keep

from raftlog.base.entries import HardState
from raftlog.base.errors import CorruptData
from raftlog.base.ids import DirectoryId
from raftlog.storage.directories.data_dir import (
    FORMAT_FILE,
    format_directory,
    open_directory,
    peek_directory,
    read_identity,
)
from raftlog.storage.directories.store_file import SECTOR, STORE_FILES, _used
from raftlog.storage.replica import Registration
from tests.storage import stranger
from tests.storage.making import IDENTITY, ME, SPEC, Driver, new_disk

BLOCK = 4096
BAD = {
    "junk": lambda size: bytes(range(1, 256)) * (size // 255) + bytes(size % 255),
    "zeros": bytes,
}


def vote(driver, term):
    driver.round([driver.store.set_hard_state(SPEC.group, HardState(term, ME))])


def newest_file(disk):
    generations = [disk.content(name)[40:48] for name in STORE_FILES]
    return STORE_FILES[generations[1] > generations[0]]


def frames(content, generation):
    """Places and numbers of the frames of a generation, both copies."""
    return [
        (at, int.from_bytes(content[at + 16 : at + 24], "big"))
        for at in range(0, len(content), SECTOR)
        if content[at : at + 4] == b"RLFR" and content[at + 8 : at + 16] == generation
    ]


@pytest.fixture(scope="module")
def prepared():
    driver = Driver(new_disk())
    driver.lead(1)
    driver.append(3)
    driver.settle()
    return driver


@pytest.fixture
def driver(prepared):
    return copy.deepcopy(prepared)


@pytest.mark.slow
def test_any_one_bad_sector_of_the_store_loses_nothing(prepared):
    """Either the same state is read, or the damage is named; an older vote is never taken."""
    driver = copy.deepcopy(prepared)
    for term in range(3, 6):
        driver.round([driver.store.set_hard_state(SPEC.group, HardState(term, ME))])
    truth = peek_directory(driver.disk)
    used = {name: len(driver.disk.content(name).rstrip(b"\x00")) for name in STORE_FILES}
    for name in STORE_FILES:
        for sector in range(used[name] // 512 + 1):
            disk = copy.deepcopy(driver.disk)
            disk.overwrite(name, sector * 512, bytes(range(256)) * 2)
            assert peek_directory(disk) == truth, (name, sector)


@pytest.mark.slow
def test_any_one_old_sector_of_the_store_loses_nothing(prepared):
    """Seed 830084: one copy of the header became what it was two generations ago, as on a disk that
    lost one write. It was the first copy, and was believed; the votes since then were forgotten."""
    driver = copy.deepcopy(prepared)
    old = {name: driver.disk.content(name) for name in STORE_FILES}
    for term in range(3, 6):
        driver.reopen()
        driver.round([driver.store.set_hard_state(SPEC.group, HardState(term, ME))])
    truth = peek_directory(driver.disk)
    changed = 0
    for name in STORE_FILES:
        now = driver.disk.content(name)
        for start in range(0, min(len(now), len(old[name])), SECTOR):
            sector = old[name][start : start + SECTOR]
            if sector != now[start : start + SECTOR]:
                changed += 1
                disk = copy.deepcopy(driver.disk)
                disk.overwrite(name, start, sector)
                assert peek_directory(disk) == truth, (name, start)
    assert changed > 4


def test_one_header_of_another_directory_loses_nothing(driver):
    """A write that went astray put it there."""
    truth = peek_directory(driver.disk)
    other = new_disk()
    format_directory(other, attrs.evolve(IDENTITY, directory=DirectoryId(77)))
    alien = other.content(STORE_FILES[0])[:SECTOR]
    for name in STORE_FILES:
        for copy_at in (0, SECTOR):
            disk = copy.deepcopy(driver.disk)
            disk.overwrite(name, copy_at, alien)
            assert peek_directory(disk) == truth, (name, copy_at)
    for name in STORE_FILES:
        driver.disk.overwrite(name, 0, alien * 2)
    with pytest.raises(CorruptData, match=f"directory {77:016x}"):
        peek_directory(driver.disk)


def test_two_bad_copies_with_a_frame_behind_them_are_damage(driver):
    for term in range(3, 6):
        driver.round([driver.store.set_hard_state(SPEC.group, HardState(term, ME))])
    newest = max(STORE_FILES, key=lambda name: len(driver.disk.content(name).rstrip(b"\x00")))
    content = driver.disk.content(newest)
    frames = [at for at in range(0, len(content), 512) if content[at : at + 4] == b"RLFR"]
    for at in frames[-4:-2]:
        driver.disk.flip_bit(newest, at + 40)
    with pytest.raises(CorruptData, match="follows it"):
        peek_directory(driver.disk)


def test_both_store_files_gone(driver):
    for name in STORE_FILES:
        driver.disk.shorten(name, 0)
    with pytest.raises(CorruptData, match="damaged"):
        peek_directory(driver.disk)


def test_the_format_file_survives_one_bad_copy(driver):
    identity = read_identity(driver.disk)
    driver.disk.flip_bit(FORMAT_FILE, 40)
    assert read_identity(driver.disk) == identity
    driver.disk.flip_bit(FORMAT_FILE, 2048 + 40)
    with pytest.raises(CorruptData, match="both copies"):
        read_identity(driver.disk)


@pytest.mark.parametrize("size", [0, 1, 511, 512, 65_535, 65_536, 65_537, 200_000])
@pytest.mark.parametrize("last", [None, 0, 1, 600, 65_535, 65_536, 131_071, 199_999])
def test_zeros_at_the_end_do_not_count(size, last):
    """As bytes.rstrip said it, up to whole sectors."""
    data = bytearray(size)
    if last is not None and last < size:
        data[last] = 7
    found, kept = _used(bytes(data)), len(data.rstrip(b"\x00"))
    assert found == bytes(data[: len(found)])
    assert kept <= len(found) < kept + SECTOR


def booted(driver):
    driver.reopen()


def some_frames(driver):
    for term in range(3, 6):
        vote(driver, term)


def many_frames(driver):
    for term in range(3, 60):
        vote(driver, term)


def a_large_image(driver):
    records = []
    for group in range(10, 110):
        records += driver.store.register(group, Registration(ME, SPEC.path))
    driver.round(records)
    driver.reopen()
    some_frames(driver)


def generations_by_rounds(driver):
    """The file has become full a few times."""
    for term in range(3, 3000):
        vote(driver, term)


STATES = [booted, some_frames, many_frames, a_large_image, generations_by_rounds]


@pytest.mark.parametrize("state", STATES)
def test_what_lies_over_the_header_takes_no_vote_back(driver, state):
    """A write of one block that went astray, or one bad block, took both copies of the header; that
    counted as a torn attempt at a generation, and the votes since the one before were forgotten."""
    older = {name: driver.disk.content(name) for name in STORE_FILES}
    state(driver)
    truth = peek_directory(driver.disk)
    for name in STORE_FILES:
        for size in (2 * SECTOR, BLOCK):
            for content in (*(bad(size) for bad in BAD.values()), older[name][:size]):
                disk = copy.deepcopy(driver.disk)
                disk.overwrite(name, 0, content)
                assert peek_directory(disk) == truth, (name, size)
                boot = disk_opened(disk)
                assert (boot.hard_states, boot.boot) == (truth.hard_states, truth.boot + 1)


def disk_opened(disk):
    opened = open_directory(disk)
    assert peek_directory(disk) == opened
    return opened


def test_the_header_of_a_store_with_a_promise_is_told_from_its_image(driver):
    """Such a generation is of version 2."""
    driver.disk.crash(Keep.ALL)
    promised_ns = 450_000_000
    open_directory(driver.disk, promised_ns)
    assert peek_directory(driver.disk).promised_ns == promised_ns
    truth = peek_directory(driver.disk)
    for name in STORE_FILES:
        disk = copy.deepcopy(driver.disk)
        disk.overwrite(name, 0, bytes(2 * SECTOR))
        assert peek_directory(disk) == truth


def test_a_segment_header_that_went_astray_takes_no_vote_back(driver):
    """As a drive may do it: 4 KiB that were meant for a new segment land on the store."""
    vote(driver, 5)
    truth = peek_directory(driver.disk)
    driver.log.truncate_from(3)
    temporary = f"{SPEC.path}/00000000000000000003-0000000002.log.tmp"
    driver.disk.misdirect_next_write(temporary, newest_file(driver.disk), 0)
    driver.round()
    driver.disk.crash(Keep.ALL)
    found = peek_directory(driver.disk)
    assert found.hard_states == truth.hard_states == {SPEC.group: HardState(5, ME)}
    assert (found.registrations, found.boot) == (truth.registrations, truth.boot)


def state_or_damage(disk):
    try:
        return peek_directory(disk)
    except CorruptData:
        return "damage"


@pytest.mark.slow
@pytest.mark.parametrize("state", STATES[:-1])
@pytest.mark.parametrize("bad", BAD)
def test_any_one_bad_block_of_the_store_is_survived_or_named(driver, state, bad):
    """But for the block that holds the last frame, where no later frame can vouch for it: there the
    frames of that block are taken for a torn write (decision 0022)."""
    state(driver)
    truth = peek_directory(driver.disk)
    newest = newest_file(driver.disk)
    content = driver.disk.content(newest)
    last = max(at for at, _ in frames(content, content[40:48])) // BLOCK
    for name in STORE_FILES:
        for block in range(len(driver.disk.content(name).rstrip(b"\0")) // BLOCK + 1):
            disk = copy.deepcopy(driver.disk)
            disk.overwrite(name, block * BLOCK, BAD[bad](BLOCK))
            if (name, block) == (newest, last):
                continue
            assert state_or_damage(disk) in (truth, "damage"), (name, block)


@pytest.mark.parametrize("header", ["whole", "lost", "old"])
def test_frames_without_their_image_are_damage(driver, header):
    """Neither copy of the image is whole; frames behind it were written when it was synced. The
    state of an older generation must not count."""
    driver.reopen()
    old = {name: driver.disk.content(name) for name in STORE_FILES}
    driver.reopen()
    some_frames(driver)
    name = newest_file(driver.disk)
    content = driver.disk.content(name)
    found = frames(content, content[40:48])
    image = min(number for _, number in found)
    for at, number in found:
        if number == image:
            driver.disk.overwrite(name, at, old[name][at : at + SECTOR])
            driver.disk.flip_bit(name, at + 8)
    if header != "whole":
        lost = b"x" * 2 * SECTOR if header == "lost" else old[name][: 2 * SECTOR]
        driver.disk.overwrite(name, 0, lost)
    with pytest.raises(CorruptData, match="follows it"):
        peek_directory(driver.disk)


def test_a_torn_attempt_without_a_header_is_no_damage(driver):
    """Power fails in the image of a generation: whatever is left of it, nothing was promised."""
    some_frames(driver)
    truth = peek_directory(driver.disk)
    other = STORE_FILES[1 - STORE_FILES.index(newest_file(driver.disk))]
    before = driver.disk.content(other)
    driver.writer._store.begin_generation()
    after = driver.disk.content(other)
    changed = [at for at in range(0, 8192, SECTOR) if before[at:][:SECTOR] != after[at:][:SECTOR]]
    for kept in range(2 ** len(changed)):
        disk = copy.deepcopy(driver.disk)
        disk.overwrite(other, 0, before)
        for bit, at in enumerate(changed):
            if kept >> bit & 1:
                disk.overwrite(other, at, after[at : at + SECTOR])
        assert peek_directory(disk) == truth, kept


@pytest.mark.parametrize("state", STATES[:-1])
def test_a_file_of_the_release_before_is_read(driver, state):
    """There the second copy of the image lies right behind the first one. That release in its turn
    finds its way as the stranger does: on from where it is, to the next frame it expects."""
    state(driver)
    truth = peek_directory(driver.disk)
    name = newest_file(driver.disk)
    content = driver.disk.content(name)
    (first, number), (second, again) = frames(content, content[40:48])[:2]
    assert (first, number) == (2 * SECTOR, again)
    assert second % BLOCK == 0
    size = -(-(32 + int.from_bytes(content[first + 4 : first + 8], "big")) // SECTOR) * SECTOR
    before = content[: first + size] + content[second:]
    for place in (0, first, first + size, first + size + size):
        driver.disk.overwrite(name, 0, before)
        driver.disk.shorten(name, len(before))
        if place:
            driver.disk.flip_bit(name, place + 40)
        assert peek_directory(driver.disk) == truth, place
    told = stranger.read_store(*(driver.disk.content(name) for name in STORE_FILES))
    assert told["boot"] == truth.boot
    assert told["hard"] == {group: tuple(state) for group, state in truth.hard_states.items()}
