"""In every seed of trio mode a relay strikes links and peers lie in handshakes, and in no other."""

from collections import Counter

import attrs
from raftlog_sim.schedules.drawing import draw_fault_steps, draw_schedule
from raftlog_sim.schedules.options import draw_options
from raftlog_sim.schedules.step_kinds import OF_LINKS

SEEDS = range(1, 121)


def kinds(options) -> Counter:
    return Counter(each.kind for each in draw_schedule(options).steps if each.kind in OF_LINKS)


def test_each_kind_and_each_way_is_drawn_in_trio_mode():
    drawn = [draw_options(seed, "trio") for seed in SEEDS]
    several = [options for options in drawn if options.brokers > 1]
    found = [kinds(options) for options in several]
    assert all(each["relay"] for each in found)
    assert sum(each["lie"] > 0 for each in found) > len(found) * 3 // 4
    assert sum(each["divert"] > 0 for each in found) > len(found) // 2
    assert all(not kinds(options) for options in drawn if options.brokers == 1)
    steps = [each for options in several for each in draw_schedule(options).steps]
    relays = Counter(each.argument("what") for each in steps if each.kind == "relay")
    lies = Counter(each.argument("what") for each in steps if each.kind == "lie")
    assert len(relays) == 10
    assert len(lies) == 4
    assert min((*relays.values(), *lies.values())) > 20


def test_they_end_soon():
    lasting = [
        each.for_ms
        for seed in SEEDS
        for each in draw_schedule(draw_options(seed, "trio")).steps
        if each.kind in OF_LINKS
    ]
    assert 20 <= min(lasting) <= max(lasting) <= 600


def test_other_seeds_are_what_they_were():
    """All that a heap of events draws of a seed, trio mode draws too, and links besides."""
    for seed in SEEDS:
        trio = attrs.evolve(draw_options(seed, "trio"), trio=True)
        heap = attrs.evolve(trio, trio=False)
        assert not kinds(heap)
        with_links = [each for each in draw_fault_steps(trio) if each.kind not in OF_LINKS]
        assert with_links == list(draw_fault_steps(heap))
    for profile in ("calm", "groups"):
        assert not any(kinds(draw_options(seed, profile)) for seed in SEEDS)
