"""Marks over events: order, failures, lifetimes, and how many stay open."""

from __future__ import annotations

import weakref
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache.core.errors import CallerError
from hicache.devices._issuing import Issued, Line, Marks
from hicache.devices.base import Mark


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


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 30)), max_size=30))
def test_marks_agree_with_a_list_of_them(program: list[tuple[int, int]]) -> None:
    """Each step records on one of three streams, then lets the oldest events of one happen; every
    mark then says what the list of all events says."""
    told: list[Mark] = []

    def note(mark: Mark, event: Any) -> None:
        assert event.query()
        told.append(mark)

    marks, lines = Marks(note), [Line() for _ in range(3)]
    made: list[tuple[int, Switch]] = []
    for stream, happen in program:
        event = Switch()
        assert marks.record(lines[stream], event) == len(made)
        made.append((stream, event))
        for _, other in [entry for entry in made if entry[0] == happen % 3][: happen // 3]:
            other.on = True
        for number, (_, other) in enumerate(made):
            assert marks.reached(Mark(number)) == other.on
    for stream in range(3):
        own = [mark for mark in told if made[mark][0] == stream]
        assert own == sorted(own), "in order of the stream, each once"
        assert len(own) == len(set(own))
    with pytest.raises(CallerError, match="recorded"):
        marks.reached(Mark(len(made)))
