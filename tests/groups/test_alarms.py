from hypothesis import given
from hypothesis import strategies as st

from raftlog.base.units import NEVER
from raftlog.groups.alarms import Alarm, Alarms


def key(name):
    return (Alarm.SESSION, "g", name)


def fired(alarms, now):
    out = []
    while (due := alarms.pop_due(now)) is not None:
        out.append(due[2])
    return out


def test_alarms_fire_once_in_the_order_of_their_deadlines():
    alarms = Alarms()
    for name, deadline in {"c": 30, "a": 10, "b": 20}.items():
        alarms.set(key(name), deadline)
    assert alarms.next_deadline() == 10
    assert fired(alarms, 9) == []
    assert fired(alarms, 20) == ["a", "b"]
    assert fired(alarms, 20) == []
    assert fired(alarms, 30) == ["c"]
    assert alarms.next_deadline() == NEVER


def test_a_moved_alarm_fires_at_its_last_deadline_only():
    alarms = Alarms()
    alarms.set(key("later"), 10)
    alarms.set(key("later"), 50)
    alarms.set(key("sooner"), 50)
    alarms.set(key("sooner"), 20)
    assert fired(alarms, 49) == ["sooner"]
    assert fired(alarms, 50) == ["later"]


def test_alarms_that_come_and_go_leave_no_memory_behind():
    alarms = Alarms()
    for number in range(10_000):
        alarms.set(key(str(number)), 10**9 + number)
        alarms.clear(key(str(number)))
    assert len(alarms) == 0
    assert len(alarms._heap) < 1_000


names = st.sampled_from("abc")
steps = st.one_of(
    st.tuples(st.just("set"), names, st.integers(0, 50)),
    st.tuples(st.just("clear"), names, st.just(0)),
    st.tuples(st.just("pass"), st.just(""), st.integers(0, 20)),
)


@given(st.lists(steps, max_size=40))
def test_alarms_agree_with_a_plain_dictionary(done):
    alarms, plain, now = Alarms(), {}, 0
    for what, name, number in done:
        if what == "set":
            alarms.set(key(name), now + number)
            plain[name] = now + number
        elif what == "clear":
            alarms.clear(key(name))
            plain.pop(name, None)
        else:
            now += number
            due = {name for name, deadline in plain.items() if deadline <= now}
            assert set(fired(alarms, now)) == due
            plain = {name: at for name, at in plain.items() if name not in due}
        assert alarms.next_deadline() <= min(plain.values(), default=NEVER)
        assert len(alarms) == len(plain)
        assert all(alarms.is_set(key(name)) for name in plain)
