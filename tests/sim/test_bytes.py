"""The simulated bytes: the detector of hazards; copies, which are exact or found out; and tags,
which name a prefix."""

from functools import partial
from itertools import product
from typing import Literal

import numpy as np

from hicache.core.errors import About
from hicache.core.types import Key, Pages, Tier
from hicache.devices.base import Access, Area, CopyJob, DeviceEvent, Direction, Stream
from sim import content
from sim.clock import Clock
from sim.content import draw
from sim.device.hazards import HazardDevice, Hazards
from sim.device.link import Link
from sim.device.memory import Memory
from sim.device.simulated import SimDevice, SimDeviceOptions, no_faults
from sim.errors import HazardError, WrongBytesError
from tests.tiny import pages

from .clocks import run
from .found_out import found_out, raised

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
