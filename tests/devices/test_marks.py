"""Marks over events: what they keep alive, and how many stay open."""

from __future__ import annotations

import weakref

from hicache.devices._issuing import Issued, Line, Marks


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
    marks, line, seen = Marks(), Line(), []
    thing = Thing()
    gone = weakref.ref(thing)
    line.kept.append(thing)
    line.after.append(lambda: seen.append(1))
    del thing
    event = Switch()
    mark = marks.record(line, event)
    assert not marks.reached(mark)
    assert gone() is not None
    assert not seen
    event.on = True
    assert marks.reached(mark)
    assert gone() is None
    assert seen == [1]
    assert marks.event(mark) is None


def test_recording_a_mark_forgets_reached_marks() -> None:
    marks, line = Marks(), Line()
    for _ in range(1000):
        event = Switch()
        marks.record(line, event)
        event.on = True
    assert len(marks) == 1
