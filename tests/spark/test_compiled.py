"""The compiled walk never leaves its arrays, whatever the bytes say, and is found and cached where
it should be.

Machine code checks no index. So the same functions run here as Python, on arrays that refuse every
index outside of them, negative ones included, and every number that a column cannot hold; and what
they find has to be what the machine code finds.
"""

import importlib.util
import struct
import subprocess
import sys
import textwrap

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from raftlog.spark.connector import reading
from raftlog.spark.decoding import compiled, kernel, plain, vectors
from raftlog.spark.decoding.columns import COLUMNS, ColumnsWanted
from tests.spark.batches import COUNT_AT, LAST_DELTA_AT, built, by_hand, record
from tests.spark.test_vectors import ALL, EVERYTHING, logs


@pytest.fixture(scope="module")
def in_python():
    """The kernel's module once more, not compiled."""
    spec = importlib.util.spec_from_file_location("kernel_in_python", kernel.__file__)
    module = importlib.util.module_from_spec(spec)
    numba.config.DISABLE_JIT = True
    try:
        spec.loader.exec_module(module)
    finally:
        numba.config.DISABLE_JIT = False
    assert not hasattr(module.walk, "py_func")
    assert hasattr(kernel.walk, "py_func")
    return module


class Guarded:
    """An array that knows its borders."""

    def __init__(self, array):
        self.array = array

    def __len__(self):
        return len(self.array)

    def __getitem__(self, at):
        assert 0 <= at < len(self.array), (at, len(self.array))
        return int(self.array[int(at)])

    def __setitem__(self, at, value):
        assert 0 <= at < len(self.array), (at, len(self.array))
        limits = np.iinfo(self.array.dtype)
        assert limits.min <= value <= limits.max, (value, limits)
        self.array[int(at)] = value


def columns(rows, size):
    """Returns the buffers that `compiled.decode` hands over for all columns."""
    fields = [compiled._Field.of(True, rows, size) for _ in range(2)]
    for field in fields:
        field.borders[1:] = field.bytes[:] = 0
    numbers = [np.zeros(rows, dtype=kind) for kind in (np.int64, np.int64, np.int32)]
    return [*numbers, *fields[0], *fields[1]]


def both_walk(in_python, parts, *, first=0, stop=2**62, headers=False):
    """The walk as Python in guarded arrays, and compiled; the same result and the same bytes."""
    whole = b"".join(parts)
    body = np.frombuffer(whole, dtype=np.uint8)
    borders = np.cumsum([0, *map(len, parts)], dtype=np.int64)
    rows = in_python.rows_at_most(Guarded(body), Guarded(borders))
    assert rows == kernel.rows_at_most(body, borders)
    if rows < 0:
        return rows
    assert rows * 7 <= len(whole)
    slow, fast = columns(rows, len(whole)), columns(rows, len(whole))
    found = in_python.walk(
        Guarded(body), Guarded(borders), first, stop, headers, *map(Guarded, slow)
    )
    assert found == kernel.walk(body, borders, first, stop, headers, *fast)
    for mine, theirs in zip(slow, fast, strict=True):
        assert np.array_equal(mine, theirs)
    return found


hostile = st.sampled_from([0, 1, 2, 3, 13, 14, 0x7E, 0x7F, 0x80, 0x81, 0xC8, 0xFE, 0xFF])


@given(st.data(), logs(), st.booleans())
def test_spoilt_batches_do_not_lead_it_astray(in_python, data, batches, headers):
    """Any byte of any batch may lie, those of the header too, and a batch may be cut short."""
    parts = [bytearray(_uncompressed(batch)) for batch in batches]
    for _ in range(data.draw(st.integers(0, 4))):
        part = data.draw(st.sampled_from(parts))
        if part:
            part[data.draw(st.integers(0, len(part) - 1))] = data.draw(hostile)
    if data.draw(st.booleans()):
        part = data.draw(st.sampled_from(parts))
        del part[data.draw(st.integers(0, len(part))) :]
    first = data.draw(st.integers(0, 2**41))
    stop = first + data.draw(st.integers(0, 2**41))
    both_walk(in_python, parts, first=first, stop=stop, headers=headers)


def _uncompressed(batch):
    (part, *inside), _ = compiled._expanded([batch], "t")
    return bytes(part) + b"".join(map(bytes, inside))


@given(st.lists(hostile, min_size=0, max_size=90), st.integers(-1, 40), st.integers(-1, 60))
def test_any_bytes_for_records(in_python, body, count, last_delta):
    batch = bytearray(by_hand(bytes(body), count=0, last_delta=0))
    struct.pack_into(">i", batch, COUNT_AT, count)
    struct.pack_into(">i", batch, LAST_DELTA_AT, last_delta)
    both_walk(in_python, [batch])


@given(st.lists(st.binary(max_size=80), max_size=4))
def test_any_bytes_at_all(in_python, parts):
    both_walk(in_python, parts)


LIES = (
    b"\x80" * 9 + b"\x01",  # ten bytes: -2**63 or so
    b"\xff" * 9 + b"\x01",
    b"\xff" * 8 + b"\x7f",  # the largest of nine
    b"\xfe" * 8 + b"\x7f",
    b"\x80" * 8 + b"\x00",  # nothing, at length
    b"\xff" * 4 + b"\x0f",
    b"\x80",
    b"\x04",
    b"\x02",
    b"\x01",
    b"\xff" * 20,
    b"",
)


@pytest.mark.parametrize("place", range(6))
@pytest.mark.parametrize("lie", LIES)
def test_lying_varints_in_every_place_of_a_record(in_python, place, lie):
    """Time, offset, key, value, header count and what is behind it: larger than it can be, larger
    by one, or cut short, as the last bytes of all and with another batch behind them."""
    fields = [b"\x00", b"\x00", b"\x01", b"\x01", b"\x00", b""]
    fields[place] = lie
    inside = b"\x00" + b"".join(fields)
    for length in (bytes([2 * len(inside)]), bytes([2 * len(inside) + 2]), *LIES):
        batch = by_hand(length + inside, count=1, last_delta=0)
        both_walk(in_python, [batch])
        both_walk(in_python, [batch, built([(1, b"k", b"v", ())])])


@pytest.mark.parametrize("cut", range(1, 30))
def test_a_last_record_that_is_cut_short(in_python, cut):
    """Its length is made to fit, so that a field, a varint or a header runs into the end."""
    whole = record(0, key=b"key", value=b"value", headers=[(b"name", b"text")])[1:]
    for inside in (whole[:-cut], whole[: -cut - 1] + b"\x80", whole[: -cut - 1] + b"\x02"):
        batch = by_hand(bytes([2 * len(inside)]) + inside, count=1, last_delta=0)
        assert both_walk(in_python, [batch]) == kernel.ODD


@pytest.mark.parametrize("at", [0, 27, 35])
@pytest.mark.parametrize("number", [-(2**63), -(2**62), -1, 2**62 - 1, 2**62, 2**63 - 1])
def test_numbers_of_the_header_near_the_end_of_64_bits(in_python, at, number):
    batch = bytearray(by_hand(record(0, timestamp_delta=2**61), count=1, last_delta=0))
    struct.pack_into(">q", batch, at, number)
    both_walk(in_python, [batch])
    wanted = EVERYTHING._replace(columns=("timestamp", "offset"))
    slow, fast = (_outcome(module, bytes(batch), wanted) for module in (plain, compiled))
    assert slow == fast


def _outcome(module, batch, wanted):
    try:
        return module.decode([batch], wanted).to_pydict()
    except Exception as error:
        return type(error), str(error)


def test_the_compiled_walk_is_taken_for_what_producers_write(monkeypatch):
    """Also for compressed batches, compacted ones, and headers that no query asked for."""
    rows = [(5, b"k", b"v" * 99, [("h", b"x")]), (6, None, None, ())]
    batches = [built(rows, base=10 * codec, codec=codec) for codec in range(5)]
    batches.append(by_hand(record(3) + record(8), count=2, last_delta=9, base=60))
    monkeypatch.setattr(plain, "decode", None)
    monkeypatch.setattr(vectors, "decode", None)
    assert compiled.decode(batches, ColumnsWanted("t", 0, COLUMNS, 0, 99)).num_rows == 12
    without = [built([(5, b"k", b"v", ())])]
    assert compiled.decode(without, EVERYTHING).column("headers").null_count == 1


def test_offsets_around_the_kernels_bound():
    """A batch that begins just below 2**62 reaches beyond it: the walk left those records out."""
    batch = built([(5, b"k", b"v", ())] * 6, base=2**62 - 3)
    wanted = EVERYTHING._replace(first=0, stop=2**63 - 1)
    found = compiled.decode([batch], wanted)
    assert found.num_rows == 6
    assert found.equals(plain.decode([batch], wanted))


def test_a_batch_that_says_another_size_is_not_believed():
    batch = bytearray(built([(5, b"k", b"v", ())]))
    struct.pack_into(">i", batch, 8, len(batch) + 100)
    assert kernel.rows_at_most(np.frombuffer(batch, np.uint8).copy(), _ends(batch)) == kernel.ODD


def _ends(batch):
    return np.array([0, len(batch)], dtype=np.int64)


def test_nothing_and_columns_of_nothing():
    assert compiled.decode([], EVERYTHING).num_rows == 0
    batch = built([(5, b"k", b"v", ())])
    for name in ALL:
        found = compiled.decode([batch], EVERYTHING._replace(columns=(name,)))
        assert found.equals(plain.decode([batch], EVERYTHING._replace(columns=(name,))))


# --- which decoder a task takes -------------------------------------------------------------------


def test_names_of_decoders():
    assert reading.decoder_of("plain", 10**9) is plain.decode
    assert reading.decoder_of("numpy", 10**9) is vectors.decode
    assert reading.decoder_of("numba", 1) is compiled.decode
    assert reading.decoder_of("auto", reading.COMPILED_RECORDS_MIN) is compiled.decode


def test_few_records_are_not_worth_loading_it(monkeypatch):
    """Until the tasks of one worker have been asked for many together."""
    monkeypatch.delitem(sys.modules, "raftlog.spark.decoding.kernel")
    monkeypatch.setattr(reading._WORKER, "records", 0)
    assert reading.decoder_of("auto", reading.COMPILED_RECORDS_MIN - 2) is vectors.decode
    assert reading.decoder_of("auto", 1) is vectors.decode
    assert reading.decoder_of("auto", 1) is compiled.decode
    monkeypatch.setattr(reading._WORKER, "records", 0)
    monkeypatch.setitem(sys.modules, "raftlog.spark.decoding.kernel", kernel)
    assert reading.decoder_of("auto", 1) is compiled.decode


@pytest.mark.parametrize(
    ("absent", "auto"), [("numba", "vectors"), ("numba numpy", "plain"), ("", "compiled")]
)
def test_what_is_not_installed_is_done_without(absent, auto):
    """In a process of its own, where these modules cannot be imported."""
    code = f"""
        import sys
        for name in {absent.split()}:
            sys.modules[name] = None
        from raftlog.spark.connector import reading
        assert reading.decoder_of("auto", 10**7).__module__ == "raftlog.spark.decoding.{auto}"
        for name in {absent.split()}:
            try:
                reading.decoder_of(name, 1)
            except ImportError:
                continue
            raise SystemExit(name)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


# --- where compiled code is kept ------------------------------------------------------------------


def doubled(number: int) -> int:
    return 2 * number


def test_a_cache_that_fails_is_done_without(monkeypatch):
    """No folder can be written, the disk is full, a cached file is damaged: compiled anyway."""
    real, seen = numba.njit, []

    def failing(signature, **options):
        seen.append(options)
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return real(signature, **options)

    monkeypatch.setattr(numba, "njit", failing)
    made = kernel.compiled(numba.int64(numba.int64))(doubled)
    assert (made(21), len(seen)) == (42, 2)


def test_a_fault_of_the_compiler_is_not_hidden():
    with pytest.raises(numba.core.errors.TypingError):
        kernel.compiled(numba.int64(numba.types.none))(doubled)


def test_compiled_code_is_kept_and_loaded(tmp_path):
    """A first process compiles into NUMBA_CACHE_DIR, a second one loads what the first has made."""
    code = """
        from raftlog.spark.decoding import kernel
        print(sum(kernel.copied.stats.cache_hits.values()))
    """
    hits = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)],
            capture_output=True,
            text=True,
            check=True,
            env={"NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_OPT": "0"},
        )
        hits.append(int(done.stdout))
    assert hits == [0, 1]
