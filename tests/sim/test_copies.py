"""Copies on the simulated device: exact, or found out. A page that is overwritten while it is
copied, and a copy that fails."""

from __future__ import annotations

from functools import partial

import numpy as np

from hicache.core.types import Pages, Tier
from hicache.devices.base import CopyJob, Direction, Mark, Touch
from sim.clock import Clock
from sim.device.hazards import HazardDevice, Hazards
from sim.device.link import Link
from sim.device.memory import Memory
from sim.device.simulated import SimDevice, SimDeviceOptions, no_faults
from sim.errors import HazardError, WrongBytesError

from .clocks import run
from .found_out import found_out, raised
from .test_bytes import ALL, CAPACITIES, D2H, DEVICE, H2D, HOST, LAYERS, pages


class Bench:
    """A simulated device with bytes; `seen` is it with a detector in front."""

    def __init__(self, chunks: int = 4, scribble: bool = True) -> None:
        self.clock = Clock()
        self.memory = Memory(CAPACITIES, LAYERS)
        link = Link(self.clock, 10**9, 10**9, 100)
        options = SimDeviceOptions({"full": (1000, 1000)}, chunks=chunks, scribble=scribble)
        self.sim = SimDevice(self.clock, link, options, self.memory)
        self.hazards = Hazards(CAPACITIES, LAYERS)
        self.seen = HazardDevice(self.sim, self.hazards)
        self.compute, self.write, self.load = map(self.seen.stream, ("compute", "write", "load"))

    def fill(self, device: SimDevice | HazardDevice[SimDevice], on: Pages, first: int) -> Mark:
        """The model writes pages with these tags."""
        touch = Touch("full", on, "w", ALL, f"prefill of {first}")
        device.touch(self.compute, touch)
        self.sim.publish(self.compute, touch, np.arange(first, first + len(on), dtype=np.uint64))
        return device.record(self.compute)

    def backup(
        self, device: SimDevice | HazardDevice[SimDevice], source: Pages, target: Pages
    ) -> None:
        device.copy(self.write, CopyJob(D2H, "full", source, target, ALL, "backup 1"))


def test_copies_are_exact_or_found_out() -> None:
    ended = []
    for chunks in range(1, 9):
        bench = Bench(chunks)
        bench.sim.wait(bench.write, bench.fill(bench.sim, pages(0, 1, 2, 3), 20))
        bench.backup(bench.sim, pages(0, 1, 2, 3), pages(4, 5, 6, 7))
        bench.clock.after(4000, partial(_overwrite, bench))
        error = raised(partial(run, bench.clock), WrongBytesError)
        ended.append("" if error is None else str(error))
    assert ended[0] == "", "a copy in one part read everything before the overwrite"
    assert any("backup 1, copy 0: host page" in one for one in ended)
    for chunks in (1, 4):
        bench = Bench(chunks)
        bench.seen.wait(bench.write, bench.fill(bench.seen, pages(0, 1), 7))
        bench.backup(bench.seen, pages(0, 1), pages(6, 5))
        mark = bench.seen.record(bench.write)
        run(bench.clock)
        assert bench.seen.query(mark)
        assert not bench.seen.failed(mark)
        assert bench.hazards.checked == 3
        assert bench.memory.checked == 3, "two writes and a copy"
        assert bench.seen.digest(Tier.HOST, "full", 6) == bench.sim.digest(Tier.DEVICE, "full", 0)
        touch = Touch("full", pages(1), "r", ALL, "look")
        bench.sim.verify(bench.compute, touch, np.array([8], dtype=np.uint64))
        wrong = partial(bench.sim.verify, bench.compute, touch, np.array([9], dtype=np.uint64))
        found_out(wrong, WrongBytesError, "look: device page 1")
    _unordered()
    _failed()


def _unordered() -> None:
    bench = Bench()
    bench.seen.wait(bench.write, bench.fill(bench.seen, pages(0, 1, 2, 3), 20))
    bench.backup(bench.seen, pages(0, 1, 2, 3), pages(4, 5, 6, 7))
    found_out(
        lambda: bench.fill(bench.seen, pages(2, 3), 60), HazardError, "device pages [2, 3]", "WAR"
    )
    bench = Bench()
    bench.fill(bench.seen, pages(0), 20)
    found_out(lambda: bench.backup(bench.seen, pages(0), pages(4)), HazardError, "RAW"[:0], "RAW")
    bench = Bench()
    bench.fill(bench.sim, pages(0), 20)
    bench.backup(bench.seen, pages(1), pages(4))
    early = bench.seen.record(bench.write)
    assert not bench.seen.query(early)
    target = CopyJob(H2D, "full", pages(3), pages(4), ALL, "load")
    bench.seen.copy(bench.load, target)
    found_out(
        lambda: bench.seen.copy(bench.load, CopyJob(H2D, "full", pages(4), pages(6), ALL, "load")),
        HazardError,
        "host pages [4]",
        "RAW",
    )


def _always(_: int, __: Direction) -> bool:
    return True


def _failed() -> None:
    """A copy that fails moves nothing, and a read that depended on it is not compared."""
    for fails in (False, True):
        clock, memory = Clock(), Memory(CAPACITIES, LAYERS)
        rule = _always if fails else no_faults
        options = SimDeviceOptions({"full": (1000, 1000)}, faults=rule)
        device = SimDevice(clock, Link(clock, 10**9, 10**9, 0), options, memory)
        stream = device.stream("load")
        touch = Touch("full", pages(1), "w", ALL, "w")
        memory.write(HOST, pages(2), np.array([5], dtype=np.uint64), ALL, "w")
        memory.claim(HOST, pages(2), np.array([5], dtype=np.uint64), ALL)
        device.copy(stream, CopyJob(H2D, "full", pages(2), pages(1), ALL, "load"))
        mark = device.record(stream)
        read = Touch("full", pages(1), "r", ALL, "read")
        device.verify(stream, read, np.array([5], dtype=np.uint64), (mark,))
        run(clock)
        assert device.failed(mark) == fails
        held = memory.block(DEVICE, pages(1), ALL)[:, 0]
        assert (held == memory.block(HOST, pages(2), ALL)[:, 0]).all() != fails
        device.publish(stream, touch, np.array([6], dtype=np.uint64))

        def compare(device: SimDevice = device, read: Touch = read, mark: Mark = mark) -> None:
            device.verify(device.stream("load"), read, np.array([7], dtype=np.uint64), (mark,))

        if fails:
            compare()
        else:
            found_out(compare, WrongBytesError, "read: device page 1")


def _overwrite(bench: Bench) -> None:
    bench.fill(bench.sim, pages(0, 1, 2, 3), 40)
