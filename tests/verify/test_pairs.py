"""A log's memory of its polls: known word for word, shared, and never more than was said."""

import json

import pytest

from raftlog.verify.histories.pairs import KnownLog, Pairs


def told(log, words):
    """The values that the log knows `words` to say, or None."""
    pairs = log.told(words)
    return None if pairs is None else pairs.values


class TestKnownLog:
    def test_what_comes_early_waits(self):
        log = KnownLog("t/0")
        log.put(4, "a")
        log.put(6, "c")
        assert told(log, b'[[4,"a"]]') == ("a",)
        assert told(log, b'[[6,"c"]]') is None
        log.put(5, "b")
        assert told(log, b'[[4,"a"],[5,"b"],[6,"c"]]') == ("a", "b", "c")
        assert told(log, b'[[5,"b"]]') == ("b",)

    @pytest.mark.parametrize(("comma", "other"), [(b", ", b","), (b",", b", ")])
    def test_other_words_are_not_known(self, comma, other):
        log = KnownLog("t/0")
        log.put(0, "a")
        log.put(1, "b")

        def words(text):
            return text.replace(b",", comma)

        assert told(log, words(b'[[0,"a"],[1,"b"]]')) == ("a", "b")
        assert told(log, words(b'[[1,"b"]]')) == ("b",)
        for strange in (b'[[0,"a"],[1,"c"]]', b'[[0,"a"],[1,"b"],[2,"c"]]', b'[[0,"a"],[1,"b"]'):
            assert told(log, words(strange)) is None
        assert told(log, b'[[0,"a"]]'.replace(b",", other)) is None

    @pytest.mark.parametrize(
        "words",
        [
            *(b"", b"[", b"7", b"{}", b"null", b'"[0,7]"', b"[[0,7],]", b"[[0,7], ]", b"[[0]]"),
            *(b"[[]]", b"[[-1,7]]", b"[[0.0,7]]", b"[[00,7]]", b"[ [0,7]]", b"[[0 ,7]]"),
            b"[[1%018d,7]]" % 0,
        ],
    )
    def test_what_is_no_list_of_known_pairs(self, words):
        """`"[0,7]"` is a text, though what its quotes hold is known word for word."""
        log = KnownLog("t/0")
        log.put(0, 7)
        assert told(log, b"[[0,7]]") == (7,)
        assert told(log, words) is None

    def test_nothing_is_known_to_be_nothing(self):
        assert told(KnownLog("t/0"), b"[]") == ()

    def test_brackets_and_commas_in_values(self):
        log, values = KnownLog("t/0"), ['],[1,"x"]', "[[", "]]", ", ", '"', "\\", "", 0, -5]
        for offset, value in enumerate(values):
            log.put(offset, value)
        for separators in [(",", ":"), (", ", ": ")]:
            copy = KnownLog("t/0")
            for offset, value in enumerate(values):
                copy.put(offset, value)
            for first in range(len(values)):
                for end in range(first + 1, len(values) + 1):
                    pairs = [[at, values[at]] for at in range(first, end)]
                    words = json.dumps(pairs, separators=separators).encode()
                    assert told(copy, words) == tuple(values[first:end])

    @pytest.mark.parametrize("ascii_only", [True, False])
    def test_texts_beyond_ascii_in_the_style_of_the_first_poll(self, ascii_only):
        log = KnownLog("t/0")
        for offset in range(4):
            log.put(offset, f"\N{SNOWMAN}#{offset}")
        pairs = [[at, f"\N{SNOWMAN}#{at}"] for at in range(4)]
        words = json.dumps(pairs, ensure_ascii=ascii_only).encode()
        assert told(log, words) == tuple(value for _, value in pairs)
        assert told(log, json.dumps(pairs, ensure_ascii=not ascii_only).encode()) is None

    def test_half_a_surrogate_pair(self):
        """Python reads it, and msgspec refuses to write it."""
        log = KnownLog("t/0")
        for offset, value in enumerate(["a", "\ud800", "b"]):
            log.put(offset, value)
        assert told(log, b'[[0,"a"],[1,"\\ud800"]]') == ("a", "\ud800")
        assert told(log, b'[[2,"b"]]') == ("b",)

    def test_an_offset_that_was_taken_keeps_its_value(self):
        log = KnownLog("t/0")
        log.put(0, "a")
        log.put(0, "b")
        assert told(log, b'[[0,"b"]]') is None

    def test_a_flood_of_far_offsets_takes_no_memory(self):
        log = KnownLog("t/0")
        for at in range(0, 10**6, 1000):
            log.put(at, "x")
        assert len(log._waiting) <= 256

    def test_a_poll_fills_in_what_nobody_acknowledged(self):
        log = KnownLog("t/0")
        log.put(0, "a")
        found = Pairs.of([[0, "a"], [1, 'q"']], log)
        assert told(log, b'[[0,"a"],[1,"q\\""]]') == ("a", 'q"')
        assert found.held is log

    def test_a_poll_against_the_log_keeps_its_own_values(self):
        log = KnownLog("t/0")
        log.put(0, "a")
        log.put(2, "waits")
        for pairs in ([[0, "b"]], [[0, "a"], [1, "b"], [2, "c"]], [[7, "far"]], [[2, "c"]]):
            found = Pairs.of(pairs, log)
            assert [list(pair) for pair in found] == pairs
            assert found.held is not log
        assert log.values == ["a", "b", "waits"]

    def test_what_was_told_stays_when_the_log_grows_and_closes(self):
        log = KnownLog("t/0")
        for offset in range(10):
            log.put(offset, offset)
            found = log.told(b"[[%d,%d]]" % (offset, offset))
            assert (found.values, list(found), found.end) == (
                (offset,),
                [(offset, offset)],
                log.end,
            )
        first = log.told(b"[[3,3],[4,4]]")
        log.put(10, "new")
        log.close()
        assert [list(pair) for pair in first] == [[3, 3], [4, 4]]
