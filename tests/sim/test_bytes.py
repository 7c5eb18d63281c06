"""The simulated bytes: the detector of hazards; copies, which are exact or found out; tags, which
name a prefix; the poison of free pages and the spoiled targets of loads (sim/device/guard)."""

from functools import partial
from itertools import product
from typing import Literal

import numpy as np
import pytest

from hicache.core.errors import About
from hicache.core.types import Key, Pages, Tier
from hicache.devices.base import Access, Area, CopyJob, DeviceEvent, Direction, Stream
from sim import content
from sim.clock import Clock
from sim.content import draw
from sim.device.guard import Guard
from sim.device.hazards import HazardDevice, Hazards
from sim.device.link import Link
from sim.device.memory import Memory
from sim.device.simulated import SimDevice, SimDeviceOptions, no_faults
from sim.errors import HazardError, WrongBytesError
from tests.tiny import pages

from .found_out import found_out, raised, run

LAYERS = 2
ALL = (0, LAYERS)
DEVICE, HOST = (Tier.DEVICE, "full"), (Tier.HOST, "full")
CAPACITIES = {DEVICE: 8, HOST: 8}
D2H, H2D = Direction.DEVICE_TO_HOST, Direction.HOST_TO_DEVICE


def test_conflicts_are_found() -> None:
    """A conflict is raised exactly where no path orders it, by sets of what a stream saw."""
    for seed in range(150):
        hazards, requested = Hazards(CAPACITIES, LAYERS), 0
        for stream in range(3):
            hazards.stream(Stream(stream), f"s{stream}")
        known: list[set[int]] = [set(), set(), set()]
        host, device_events = set[int](), list[set[int]]()
        done: list[tuple[int, set[tuple[int, int]], str, int]] = []
        for step in range(14):
            kind, stream = draw(6, seed, step, "kind"), draw(3, seed, step, "stream")
            if kind == 0:
                hazards.record(Stream(stream), DeviceEvent(len(device_events)))
                device_events.append(set(known[stream]))
            elif kind in (1, 2) and device_events:
                device_event = draw(len(device_events), seed, step, "mark")
                if kind == 1:
                    hazards.wait(Stream(stream), DeviceEvent(device_event))
                    known[stream] |= device_events[device_event]
                else:
                    hazards.observed(DeviceEvent(device_event))
                    host |= device_events[device_event]
            elif kind > 2:
                numbers = sorted(
                    {draw(4, seed, step, at) for at in range(draw(3, seed, step, "n"))}
                )
                mode: Literal["r", "w"] = "w" if draw(2, seed, step, "mode") else "r"
                layers = ((0, 1), (1, 2), (0, 2))[draw(3, seed, step, "layers")]
                cells = {(page, layer) for page in numbers for layer in range(*layers)}
                before = known[stream] | host
                clash = [
                    (how, mode)
                    for number, other, how, by in done
                    if cells & other
                    and "w" in (mode, how)
                    and number not in before
                    and by != stream
                ]
                area = Area(*DEVICE, pages(*numbers), layers)
                requested += 1
                error = raised(
                    partial(hazards.access, Stream(stream), area, mode, "new"), HazardError
                )
                if error is not None:
                    assert clash, f"program {seed}: no conflict, but {error}"
                    rules = {("w", "r"): "RAW", ("r", "w"): "WAR", ("w", "w"): "WAW"}
                    assert error.rule in {rules[pair] for pair in clash}
                    break
                assert not clash, f"program {seed}: a conflict that was not found"
                known[stream] = before | {step}
                done.append((step, cells, mode, stream))
        assert hazards.checked == requested


def test_a_missing_wait_is_told_with_both_accesses() -> None:
    hazards = Hazards(CAPACITIES, LAYERS)
    for stream in range(2):
        hazards.stream(Stream(stream), f"s{stream}")
    hazards.access(Stream(0), Area(*DEVICE, pages(3), ALL), "w", "load of transfers 24..25")
    hazards.access(Stream(0), Area(*DEVICE, pages(5), (1, 2)), "w", "backup of transfer 9")
    error = found_out(
        lambda: hazards.access(Stream(1), Area(*DEVICE, pages(3, 5, 6), ALL), "r", "prefill"),
        HazardError,
        "read by 'prefill' on stream s1 is not ordered after the write by 'backup of transfer 9' "
        "on stream s0: device pages [3, 5] of full (2 in all), layer groups 0..1",
        "RAW",
    )
    assert (error.about, error.exit_code) == (
        (About("page", 3, 0, "full"), About("transfer", 9)),
        13,
    )


class Bench:
    """A simulated device with bytes; `seen` is it with a detector in front."""

    def __init__(self, chunks: int = 4, write_pattern: bool = True) -> None:
        self.clock = Clock()
        self.memory = Memory(CAPACITIES, LAYERS)
        link = Link(self.clock, 10**9, 10**9, 100)
        options = SimDeviceOptions(
            {"full": (1000, 1000)}, chunks=chunks, write_pattern=write_pattern
        )
        self.sim = SimDevice(self.clock, link, options, self.memory)
        self.hazards = Hazards(CAPACITIES, LAYERS)
        self.seen = HazardDevice(self.sim, self.hazards)
        self.compute, self.write, self.load = map(self.seen.stream, ("compute", "write", "load"))

    def fill(
        self, device: SimDevice | HazardDevice[SimDevice], on: Pages, first: int
    ) -> DeviceEvent:
        """The model writes pages with these tags."""
        access = Access("full", on, "w", ALL, f"prefill of {first}")
        device.access(self.compute, access)
        self.sim.publish(self.compute, access, np.arange(first, first + len(on), dtype=np.uint64))
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
    assert any("backup 1, copy 0: host page" in text for text in ended)
    for chunks in (1, 4):
        bench = Bench(chunks)
        bench.seen.wait(bench.write, bench.fill(bench.seen, pages(0, 1), 7))
        bench.backup(bench.seen, pages(0, 1), pages(6, 5))
        device_event = bench.seen.record(bench.write)
        run(bench.clock)
        assert bench.seen.query(device_event)
        assert not bench.seen.failed(device_event)
        assert bench.hazards.checked == 3
        assert bench.memory.checked == 3, "two writes and a copy"
        assert bench.seen.digest(Tier.HOST, "full", 6) == bench.sim.digest(Tier.DEVICE, "full", 0)
        access = Access("full", pages(1), "r", ALL, "look")
        bench.sim.verify(bench.compute, access, np.array([8], dtype=np.uint64))
        wrong = partial(bench.sim.verify, bench.compute, access, np.array([9], dtype=np.uint64))
        found_out(wrong, WrongBytesError, "look: device page 1")
    _failed()


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
        access = Access("full", pages(1), "w", ALL, "w")
        memory.write(HOST, pages(2), np.array([5], dtype=np.uint64), ALL, "w")
        memory.claim(HOST, pages(2), np.array([5], dtype=np.uint64), ALL)
        device.copy(stream, CopyJob(H2D, "full", pages(2), pages(1), ALL, "load"))
        device_event = device.record(stream)
        read = Access("full", pages(1), "r", ALL, "read")
        device.verify(stream, read, np.array([5], dtype=np.uint64), (device_event,))
        run(clock)
        assert device.failed(device_event) == fails
        array = memory.block(DEVICE, pages(1), ALL)[:, 0]
        assert (array == memory.block(HOST, pages(2), ALL)[:, 0]).all() != fails
        device.publish(stream, access, np.array([6], dtype=np.uint64))

        def compare(
            device: SimDevice = device, read: Access = read, event: DeviceEvent = device_event
        ) -> None:
            device.verify(device.stream("load"), read, np.array([7], dtype=np.uint64), (event,))

        if fails:
            compare()
        else:
            found_out(compare, WrongBytesError, "read: device page 1")


def _overwrite(bench: Bench) -> None:
    bench.fill(bench.sim, pages(0, 1, 2, 3), 40)


def test_tags_name_a_prefix() -> None:
    """Equal prefixes of a namespace have equal tags, and nothing else has."""
    seen: dict[tuple[int, int], tuple[str, bytes]] = {}
    for stride, space in product((8, 32, 3, 5), ("", "a", "tenant")):
        for text in (bytes(4 * stride), bytes(range(4 * stride)), bytes(range(stride)) * 4):
            key = Key(text, stride, space)
            tags = content.prefix_tags(key).tolist()
            for count in range(5):
                assert content.prefix_tags(key.first(count)).tolist() == tags[:count]
            for page, tag in enumerate(tags, 1):
                name = space, text[: page * stride]
                assert seen.setdefault((stride, tag), name) == name
    assert len(seen) == 12 * (4 + 4 + 3)
    assert content.partial_tag(7, 12) != content.partial_tag(7, 13)


FREE = "expected pages that somebody has, found free device pages"


class Poisoned(Bench):
    """A guard in front of a simulated device."""

    def __init__(self) -> None:
        super().__init__()
        self.guard = Guard(self.sim, self.hazards)

    def done(self) -> bool:
        run(self.clock)
        return self.guard.check()


def test_a_free_page_is_not_read_and_is_compared_when_it_is_used_or_swept() -> None:
    item = Poisoned()
    item.guard.freed(Tier.DEVICE, "full", pages(2, 3))
    item.guard.freed(Tier.HOST, "full", pages(5))
    touched = item.memory.claimed(DEVICE, pages(2, 3), ALL)
    assert len({*touched.ravel().tolist()}) == 2, "each page has a poison of its own"
    read = Access("full", pages(1, 3, 2), "r", ALL, "prefill")
    backup = CopyJob(D2H, "full", pages(2), pages(1), ALL, "backup")
    for work, numbers in (
        (lambda: item.guard.access(item.compute, read), "[3, 2]"),
        (lambda: item.guard.copy(item.write, backup), "[2]"),
    ):
        found_out(work, HazardError, f"{FREE} {numbers} of full", "READ OF FREE")
    item.sim.compute(item.compute, 50)
    item.guard.access(item.compute, Access("full", pages(2), "w", ALL, "prefill of request 1"))
    assert not item.guard.check(), "not run yet"
    assert item.done()
    assert (item.guard.intact, item.guard.spoiled) == (1, 0)
    item.guard.access(item.compute, Access("full", pages(2), "r", ALL, "it is in use now"))
    item.guard.copy(item.write, CopyJob(D2H, "full", pages(1), pages(5), ALL, "backup"))
    assert item.done()
    assert item.guard.intact == 2
    item.guard.sweep()
    assert item.done()
    assert item.guard.intact == 3, "what was compared is not compared again"


def test_the_target_of_a_load_is_spoiled_before() -> None:
    item = Poisoned()
    item.sim.compute(item.load, 9)
    item.guard.copy(item.load, CopyJob(H2D, "full", pages(1), pages(2), ALL, "load"))
    run(item.clock)
    assert item.memory.checked == 2, "the target was spoiled, and then copied"


@pytest.mark.parametrize(("sweeps", "tier"), [(True, Tier.HOST), (False, Tier.DEVICE)])
def test_a_write_to_a_free_page_is_found(sweeps: bool, tier: Tier) -> None:
    """When it is used next, or by the sweep."""
    item = Poisoned()
    item.guard.freed(tier, "full", pages(1, 4))
    run(item.clock)
    area = Area(tier, "full", pages(4), (1, 2))
    item.sim.write_pattern(item.compute, area, np.array([3], dtype=np.uint64))
    run(item.clock)
    if sweeps:
        item.guard.sweep()
    else:
        item.guard.access(item.compute, Access("full", pages(4), "w", ALL, "prefill"))
    words = f"{tier.name.lower()} page 4 of full was written while it was free"
    error = found_out(item.done, WrongBytesError, words, "POISON")
    assert error.about == (About("page", 4, int(tier), "full"),)


def test_a_page_that_is_freed_while_an_unordered_access_uses_it_is_found() -> None:
    item = Poisoned()
    item.hazards.access(item.load, Area(*DEVICE, pages(6), ALL), "w", "load of transfer 3")
    words = "write by 'poison of freed pages' on stream compute"
    found_out(lambda: item.guard.freed(Tier.DEVICE, "full", pages(6)), HazardError, words, "WAW")
