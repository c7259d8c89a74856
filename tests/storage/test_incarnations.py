"""The list of a directory's lives: synced before anything is said, and never without one that a
peer may hold."""

import copy

import pytest

from raftlog.base.binary import Reader
from raftlog.base.errors import CorruptData, FutureFormat
from raftlog.storage.directories import store_file
from raftlog.storage.directories.data_dir import open_directory, peek_directory
from raftlog.storage.directories.incarnations import (
    NONE,
    OWN_KEPT,
    PEERS_KEPT,
    IncarnationBook,
    Known,
)
from raftlog.storage.directories.store_file import StoreFiles
from tests.storage.making import Driver

PEER = 0xB0B


def again(book):
    """The same book, as a later boot reads it from a full image."""
    found = IncarnationBook()
    for record in book.records():
        reader = Reader(record, CorruptData, "test")
        found.read(reader.u8(), reader)
        reader.end()
    return found


def same(one, other):
    assert list(one.own) == list(other.own)
    assert one.held == other.held
    assert one.known == other.known


def test_a_book_is_read_back():
    book = IncarnationBook()
    assert book.empty
    for life in range(1, 1_234):
        book.begin(life)
    book.know(PEER, Known(2, 99))
    book.hold(PEER, (3, 1_233))
    assert not book.empty
    same(again(book), book)


def test_five_thousand_lives_while_a_peer_is_away():
    """The one that it held when it went stays on the list, and so does the one it could take."""
    book = IncarnationBook()
    for life in (1, 2, 3):
        book.begin(life)
    book.hold(PEER, (1, 3))
    for life in range(4, 5_004):
        book.begin(life)
    assert book.has(1)
    assert book.has(3)
    assert not book.has(2)
    assert len(book.own) == OWN_KEPT + 2
    assert not book.has(5_003 - OWN_KEPT)
    assert book.has(5_003 - OWN_KEPT + 1)
    same(again(book), book)


def test_what_a_peer_held_before_may_go_once_it_named_another():
    book = IncarnationBook()
    book.begin(1)
    book.hold(PEER, (1, 1))
    book.begin(2)
    book.hold(PEER, (2, 2))
    for life in range(3, 3 + OWN_KEPT):
        book.begin(life)
    assert not book.has(1)
    assert book.has(2)


def test_of_too_many_directories_the_one_that_changed_first_is_dropped():
    book = IncarnationBook()
    for directory in range(1, PEERS_KEPT + 2):
        book.know(directory, Known(2, 1))
        book.hold(directory, (NONE, 1))
    assert len(book.known) == len(book.held) == PEERS_KEPT
    assert 1 not in book.known
    assert 1 not in book.held


def test_a_boot_syncs_its_life_before_it_returns():
    driver = Driver()
    first = open_directory(driver.disk, incarnation=11)
    assert (first.incarnation, list(first.incarnations.own)) == (11, [11])
    durable = peek_directory(driver.disk.durable_copy())
    assert durable.incarnations.has(11)
    second = open_directory(driver.disk, incarnation=12)
    assert list(second.incarnations.own) == [11, 12]
    assert peek_directory(driver.disk.durable_copy()).incarnations.has(12)


def test_an_old_copy_has_lost_the_later_lives():
    driver = Driver()
    open_directory(driver.disk, incarnation=11)
    old = copy.deepcopy(driver.disk)
    open_directory(driver.disk, incarnation=12)
    for life in (21, 22, 23):
        image = open_directory(old, incarnation=life)
    assert not image.incarnations.has(12)
    assert image.boot > peek_directory(driver.disk).boot, "its number alone does not tell"


def test_an_older_release_refuses_the_store_and_takes_it_for_no_damage(monkeypatch):
    driver = Driver()
    open_directory(driver.disk, incarnation=11)
    monkeypatch.setattr(store_file, "VERSION", 2)
    with pytest.raises(FutureFormat):
        open_directory(driver.disk)


def test_a_directory_without_lives_stays_readable_for_it(monkeypatch):
    driver = Driver()
    open_directory(driver.disk)
    monkeypatch.setattr(store_file, "VERSION", 2)
    assert open_directory(driver.disk).incarnation == NONE


def test_records_of_rounds_are_read_back():
    driver = Driver()
    image = open_directory(driver.disk, incarnation=11)
    book = image.incarnations
    store = StoreFiles(driver.disk, image.identity.owner)
    store.append([book.know(PEER, Known(2, 77)), book.hold(PEER, (NONE, 11))])
    store.sync()
    store.close()
    same(open_directory(driver.disk).incarnations, book)
