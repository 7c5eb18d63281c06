"""Marks over events: what they keep alive, and how many stay open."""

import weakref

from hicache.devices._issuing import DeviceEvents, Issued, Line


class Switch(Issued):
    """An event that is reached when told so."""

    def __init__(self) -> None:
        self.on = False

    def query(self) -> bool:
        return self.on

    def synchronize(self) -> None:
        self.on = True


class Thing:
    """Something to be kept alive."""


def test_memory_of_work_lives_until_the_host_sees_the_next_mark() -> None:
    device_events, line, seen = DeviceEvents(), Line(), []
    thing = Thing()
    gone = weakref.ref(thing)
    line.kept.append(thing)
    line.after.append(lambda: seen.append(1))
    del thing
    event = Switch()
    device_event = device_events.record(line, event)
    assert not device_events.reached(device_event)
    assert gone() is not None
    assert not seen
    event.on = True
    assert device_events.reached(device_event)
    assert gone() is None
    assert seen == [1]
    assert device_events.event(device_event) is None


def test_recording_a_mark_forgets_reached_marks() -> None:
    device_events, line = DeviceEvents(), Line()
    for _ in range(1000):
        event = Switch()
        device_events.record(line, event)
        event.on = True
    assert len(device_events) == 1
