"""Judges of one forward pass: what it reports and waits for, call by call, in order.

The device and the model are stand-ins that note each call. The pages of an access are judged in
judged_content, times in judged_link.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hicache.core.actions import Prefill, StateSlots
from hicache.core.components import mamba, swa
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.devices.base import Mark, Stream
from sim import content
from sim.engine.accesses import Access, Accesses
from sim.engine.forward import Forward
from sim.engine.sequence import Sequence
from sim.keyed_draw import draw
from sim.workload import Job

from .workloads import PAGE

_GROUPS = 3
_LAYERS = 8
Call = tuple[Any, ...]


class _Noted:
    """Device, model, controller and costs at once: every call that matters is noted."""

    layers = _LAYERS

    def __init__(self, loads: dict[int, tuple[Mark, ...]]) -> None:
        self.calls: list[Call] = []
        self.loads = loads
        self.sync_action: Callable[[], None] = lambda: None

    def wait(self, stream: Stream, mark: Mark) -> None:
        self.calls.append(("wait", stream, mark))

    def touch(self, stream: Stream, touch: Any) -> None:
        self.calls.append(("touch", stream, *_plain(touch)))

    def compute(self, stream: Stream, duration_ns: int) -> None:
        self.calls.append(("compute", stream, duration_ns))

    def publish(self, stream: Stream, touch: Any, tags: Any) -> None:
        self.calls.append(("publish", stream, *_plain(touch), tags.tolist()))

    def verify(self, stream: Stream, touch: Any, tags: Any, unless: Any = ()) -> None:
        self.calls.append(("verify", stream, *_plain(touch), tags.tolist(), tuple(unless)))

    def record(self, stream: Stream) -> Mark:
        self.calls.append(("record", stream))
        return Mark(99)

    def sync(self, mark: Mark, action: Callable[[], None]) -> None:
        self.calls.append(("sync", mark))
        self.sync_action = action

    def query(self, mark: Mark) -> bool:
        return True

    def load_marks(self, flight: int) -> tuple[Mark, ...]:
        return self.loads.get(flight, ())

    def layer_ns(self, chunks: Any, decoding: int, context: int) -> int:
        self.calls.append(("layer", tuple(chunks), decoding, context))
        return 100

    def overhead_ns(self, chunks: Any, decoding: int) -> int:
        self.calls.append(("overhead", tuple(chunks), decoding))
        return 7


class _Device:
    """The same as a device, whose layers are groups."""

    layers = _GROUPS

    def __init__(self, noted: _Noted) -> None:
        self._noted = noted

    def stream(self, name: str) -> Stream:
        assert name == "compute"
        return Stream(5)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._noted, name)


def _plain(touch: Any) -> Call:
    return (touch.component, touch.pages.tolist(), touch.mode, touch.layers, touch.why)


def _made(loads: dict[int, tuple[Mark, ...]], checked: bool = True) -> tuple[Any, _Noted, Accesses]:
    config = Config(
        page_size=PAGE,
        device_pages=(60, 60, 60),
        host_pages=(0, 0, 0),
        components=("full", "swa", "mamba"),
        settings=(swa.Settings(6), mamba.Settings(PAGE, 0)),
    )
    noted, accesses = _Noted(loads), Accesses(config, Core(config).view.components)
    device: Any = _Device(noted)
    stand_in: Any = noted
    forward = Forward(stand_in, device, stand_in, stand_in, accesses, checked)
    return forward, noted, accesses


def _request(index: int) -> Sequence:
    sequence = Sequence(Job(index, 0, 30, 9), 9, 30, 0)
    sequence.tags = np.arange(100 * index, 100 * index + 12, dtype=np.uint64)
    sequence.tables = tuple(np.arange(first, first + 12, dtype=np.int64) for first in (0, 30))
    sequence.states = (StateSlots("mamba", -1, 9, (3, 4), PAGE, ()),)
    return sequence


def _prefill(sequence: Sequence, seed: int, after: tuple[int, ...]) -> Prefill:
    start = draw(14, seed, sequence.job.index, "start")
    end = start + 1 + draw(12, seed, sequence.job.index, "tokens")
    source = draw(2, seed, sequence.job.index, "source") * 8 - 1
    states = (StateSlots("mamba", source, 9, (3, 4), PAGE, ()),)
    return Prefill(1, sequence.job.index, start, end, sequence.tables, after, True, states)


def _tags(sequence: Sequence, access: Access) -> list[int]:
    """The prefix that ends at each depth; a page that is not full has a tag of its request."""
    found = []
    for depth in access.depths.tolist():
        partial = content.partial_tag(sequence.job.index, depth)
        whole = depth % PAGE == 0
        found.append(int(sequence.tags[depth // PAGE - 1] if whole else partial[0]))
    return found


def _performed(
    sequence: Sequence, access: Access, layers: tuple[int, int], why: str, unless: Call = ()
) -> list[Call]:
    told = (access.component, access.pages.tolist(), access.mode, layers, why)
    touched: Call = ("touch", 5, *told)
    if access.mode == "r":
        return [touched, ("verify", 5, *told, _tags(sequence, access), unless)]
    return [touched, ("publish", 5, *told, _tags(sequence, access))]


def _group(
    batch: list[tuple[Sequence, Prefill]],
    accesses: Accesses,
    loads: dict[int, tuple[Mark, ...]],
    layers: tuple[int, int],
    duration: int,
) -> list[Call]:
    calls: list[Call] = []
    for sequence, prefill in batch:
        why = f"prefill of request {sequence.job.index} at token {prefill.start_token}"
        unless = tuple(mark for one in prefill.after for mark in loads.get(one, ())[: layers[1]])
        for access in accesses.first(prefill):
            calls += _performed(sequence, access, layers, why, unless)
    calls.append(("compute", 5, duration))
    for sequence, prefill in batch:
        why = f"prefill of request {sequence.job.index} to token {prefill.end_token}"
        for access in accesses.last(prefill):
            calls += _performed(sequence, access, layers, why)
    return calls


def test_passes_are_reported() -> None:
    """With loads a pass goes layer group by layer group; without, at once."""
    marks: dict[int, tuple[Mark, ...]] = {
        flight: tuple(Mark(10 * flight + group) for group in range(_GROUPS)) for flight in (1, 2)
    }
    marks[3] = marks[2]  # one batch of copies for two flights
    for seed in range(20):
        after = [(), (1,), (2, 3), (1, 7), (7,)][draw(5, seed, "after")]
        forward, noted, accesses = _made(marks)
        batch = [
            (one, _prefill(one, seed, after if one.job.index else ()))
            for one in map(_request, range(2))
        ]
        ended: list[int] = []
        total = forward.launch(batch, 4, 77, lambda ended=ended: ended.append(1))
        chunks = tuple((prefill.start_token, prefill.end_token) for _, prefill in batch)
        expected: list[Call] = [("layer", chunks, 4, 77), ("overhead", chunks, 4)]
        waits = [marks[flight] for flight in after if flight in marks and flight != 3]
        if waits:
            for group, size in enumerate((2, 3, 3)):
                expected += [("wait", 5, one[group]) for one in waits]
                expected += _group(batch, accesses, marks, (group, group + 1), size * 100)
            expected.append(("compute", 5, 7))
        else:
            expected += _group(batch, accesses, marks, (0, _GROUPS), 807)
        assert total == 807
        assert noted.calls == [*expected, ("record", 5), ("sync", 99)], f"pass {seed}"
        assert not ended
        noted.sync_action()
        assert ended == [1]
    bare, silent, _ = _made(marks, checked=False)
    one = _request(0)
    assert bare.launch([(one, _prefill(one, 1, (1,)))], 0, 0, lambda: None) == 807
    kinds = [call[0] for call in silent.calls]
    assert kinds == ["layer", "overhead", *["wait", "compute"] * 3, "compute", "record", "sync"]


def test_decoding_is_reported() -> None:
    """Reads are told each time; content is compared for states, and for all when it leaves."""
    for seed in range(20):
        forward, noted, accesses = _made({})
        one = _request(seed % 3)
        since = one.reported = draw(20, seed, "since")
        one.held = since + draw(9, seed, "more")
        leaving = bool(draw(2, seed, "leaving"))
        forward.report_decoded(one, leaving)
        why = f"decode of request {one.job.index} at token {one.held}"
        expected: list[Call] = []
        if one.held != since:
            for access in accesses.decoded(one.tables, one.states, since, one.held, why):
                calls = _performed(one, access, (0, _GROUPS), why)
                plain_read = access.mode == "r" and not access.state
                expected += calls[:1] if plain_read else calls
        if leaving:
            for access in accesses.held(one.tables, one.states, one.held, why):
                expected += _performed(one, access, (0, _GROUPS), why)
        assert noted.calls == expected, f"decode {seed}"
        assert one.reported == one.held
    bare, silent, _ = _made({}, checked=False)
    bare.report_decoded(_request(1), True)
    bare.launch_decode(55, lambda: None)
    assert silent.calls == [("compute", 5, 55), ("record", 5), ("sync", 99)]
