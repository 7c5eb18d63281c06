"""The detector against sets of ancestors, and against races planted on a simulated device."""

from __future__ import annotations

import numpy as np
import pytest

from hicache.core.types import Key, Pages, Tier
from hicache.devices.base import CopyJob, Direction, Mark, Touch
from sim.clock import Clock
from sim.content import prefix_tags
from sim.device.hazards import HazardDevice, Hazards
from sim.device.link import Link
from sim.device.memory import Memory
from sim.device.simulated import SimDevice, SimDeviceOptions
from sim.errors import HazardError, WrongBytesError
from tests.sim.clocks import run
from tests.sim.judged.workloads import PAGE
from tests.sim.rig import tokens

LAYERS = 2
ALL = (0, LAYERS)
DEVICE, HOST = (Tier.DEVICE, "full"), (Tier.HOST, "full")
CAPACITIES = {DEVICE: 8, HOST: 8}
D2H, H2D = Direction.DEVICE_TO_HOST, Direction.HOST_TO_DEVICE


class Bench:
    """A simulated device with bytes; `seen` is it with the detector in front."""

    def __init__(self, chunks: int = 4) -> None:
        self.clock = Clock()
        self.memory = Memory(CAPACITIES, LAYERS)
        link = Link(self.clock, 10**9, 10**9, 100)
        options = SimDeviceOptions({"full": (1000, 1000)}, chunks=chunks)
        self.sim = SimDevice(self.clock, link, options, self.memory)
        self.seen = HazardDevice(self.sim, Hazards(CAPACITIES, LAYERS))
        self.compute, self.write, self.load = map(self.seen.stream, ("compute", "write", "load"))

    def fill(self, device: SimDevice | HazardDevice, pages: Pages, text: str) -> Mark:
        """The model writes the pages of a prompt, one letter each."""
        job_tags = prefix_tags(Key.from_tokens(tokens(text), PAGE))
        touch = Touch("full", pages, "w", ALL, f"prefill of {text}")
        device.touch(self.compute, touch)
        self.sim.publish(self.compute, touch, job_tags)
        return device.record(self.compute)

    def finish(self) -> None:
        run(self.clock)


def pages(*numbers: int) -> Pages:
    return np.array(numbers, dtype=np.int64)


def test_a_page_reused_while_it_is_copied_is_a_hazard_and_mixed_bytes() -> None:
    """The backup of pages 0..3 runs while the next prompt's prefill writes them."""
    bench = Bench()
    bench.seen.wait(bench.write, bench.fill(bench.seen, pages(0, 1, 2, 3), "abcd"))
    bench.seen.copy(
        bench.write, CopyJob(D2H, "full", pages(0, 1, 2, 3), pages(4, 5, 6, 7), ALL, "backup 1")
    )
    with pytest.raises(HazardError) as caught:
        bench.fill(bench.seen, pages(2, 3), "xy")
    assert caught.value.exit_code == 13
    assert str(caught.value) == (
        "write by 'prefill of xy' on stream compute is not ordered after the read by 'backup 1' on "
        "stream write: device pages [2, 3] of full (2 in all), layer groups 0..1"
    )

    outcomes = [_overwritten_midway(chunks) for chunks in range(1, 9)]
    assert outcomes[0] == "", "a copy in one part read everything before the overwrite"
    assert any("b, copy 0: host page" in outcome for outcome in outcomes)


def _overwritten_midway(chunks: int) -> str:
    """What the bytes say, without the detector, of a page reused in the middle of its backup."""
    bench = Bench(chunks)
    bench.sim.wait(bench.write, bench.fill(bench.sim, pages(0, 1, 2, 3), "abcd"))
    bench.sim.copy(
        bench.write, CopyJob(D2H, "full", pages(0, 1, 2, 3), pages(4, 5, 6, 7), ALL, "b")
    )

    def reuse() -> None:
        bench.fill(bench.sim, pages(0, 1, 2, 3), "wxyz")

    bench.clock.after(4000, reuse)
    try:
        bench.finish()
    except WrongBytesError as error:
        return str(error)
    return ""


def test_the_same_reuse_after_the_reply_is_no_hazard() -> None:
    bench = Bench()
    bench.seen.wait(bench.write, bench.fill(bench.seen, pages(0, 1), "ab"))
    bench.seen.copy(bench.write, CopyJob(D2H, "full", pages(0, 1), pages(6, 7), ALL, "backup"))
    mark = bench.seen.record(bench.write)
    bench.finish()
    assert bench.seen.query(mark)
    bench.fill(bench.seen, pages(0, 1), "xy")
    bench.finish()


def test_waiting_for_one_layer_is_not_waiting_for_the_next() -> None:
    bench = Bench()
    bench.seen.wait(bench.write, bench.fill(bench.seen, pages(0), "a"))
    bench.seen.copy(bench.write, CopyJob(D2H, "full", pages(0), pages(0), ALL, "backup"))
    bench.seen.wait(bench.load, bench.seen.record(bench.write))
    marks = []
    for layer in range(LAYERS):
        bench.seen.copy(
            bench.load, CopyJob(H2D, "full", pages(0), pages(5), (layer, layer + 1), "load")
        )
        marks.append(bench.seen.record(bench.load))
    bench.seen.wait(bench.compute, marks[0])
    bench.seen.touch(bench.compute, Touch("full", pages(5), "r", (0, 1), "prefill"))
    with pytest.raises(HazardError, match=r"layer groups 1\.\.1"):
        bench.seen.touch(bench.compute, Touch("full", pages(5), "r", (1, 2), "prefill"))


def test_the_host_learns_late_but_never_early() -> None:
    bench = Bench()
    late = []
    for _ in range(20):
        mark = bench.fill(bench.sim, pages(0), "a")
        reached_ns = bench.clock.now_ns
        seen_at_once = bench.sim.query(mark)
        bench.finish()
        assert bench.sim.query(mark)
        assert seen_at_once == (bench.clock.now_ns == reached_ns)
        late.append(bench.clock.now_ns - reached_ns)
    assert len(set(late)) > 10
    assert 0 <= min(late) <= max(late) <= 5000
