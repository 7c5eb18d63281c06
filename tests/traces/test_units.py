"""Quantities with their units, computed by hand: money, memory, bandwidth, time. Each number here
is written out, so that a constant of a unit that is wrong anywhere on the way changes it.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hicache import models
from sim.clock import Clock
from sim.engine_profiles.base import EngineProfile
from sim.fleet.handoff import KvLink
from sim.fleet.options import KvLinkOptions
from sim.hardware import profile as hardware
from sim.physics.constants import defaults
from sim.physics.kernels import Kernel
from sim.storage.timed import Pipe
from sim.times.base import Parallelism, make
from sim.times.roofline import Roofline
from traces.cli import main, parse
from traces.replaying.builtin import opened
from traces.replaying.load import MODELS, from_gaps
from traces.replaying.options import ReplayOptions
from traces.replaying.storage import resolve as resolve_storage
from traces.reporting import digits, gigabytes
from traces.sizing.candidates import Candidate, cost_of, read_prices
from traces.terminal import options as read

from .rig import mooncake, write

NINE = 1_000_000_000


def test_money_by_hand() -> None:
    """Two years are 17,520 hours and four are 35,040."""
    prices = read_prices("gpu=35040,host=3.504/GB,years=2")
    assert prices.per_hour == pytest.approx({"gpu": 2.0, "host": 0.0002})
    assert read_prices("gpu=35040").per_hour == pytest.approx({"gpu": 1.0})
    assert read_prices("gpu=2/h,host=3/GB").source == (
        "the prices that were given (host paid once, over 4 years; a rent ends with /h)"
    )
    assert read_prices("gpu=2/h").source == "the prices that were given"
    # 2 x 2 + 512 x 0.0002 an hour
    assert cost_of(Candidate("h100", 2, 1, 512 * NINE), prices) == pytest.approx(4 + 0.1024)


@pytest.mark.parametrize(
    "text",
    ["gpu", "ram=3/GB", "gpu=1/h,gpu=2/h", "host=3", "gpu=3/GB", "gpu=-1/h", "gpu=1/h,years=0"],
)
def test_bad_prices_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected prices of gpu, host or an accelerator"):
        read_prices(text)


@pytest.mark.parametrize(
    ("text", "ns"),
    [
        ("7ns", 7),
        ("200us", 200_000),
        ("1.5ms", 1_500_000),
        ("2s", 2_000_000_000),
        ("3m", 180_000_000_000),
        ("2h", 7_200_000_000_000),
    ],
)
def test_durations_that_are_read(text: str, ns: int) -> None:
    assert read.duration_ns(text) == ns


def test_sizes_that_are_said() -> None:
    assert gigabytes(610 * NINE) == "610 GB"
    assert gigabytes(1_500 * NINE, "") == "1.5TB"
    assert [gigabytes(size, "") for size in (0, 6_000_000, 80_000_000)] == ["0GB", "6MB", "0.08GB"]
    assert read.byte_size(gigabytes(1, "")) == 1


@pytest.mark.parametrize("size", [10.0**power for power in range(-6, 9)])
@pytest.mark.parametrize("first", [1.0, 2.345678, 9.996, 9.9996])
def test_figures_are_never_said_as_powers_of_ten(first: float, size: float) -> None:
    for most, close in ((2, 0.05), (3, 0.005)):
        said = digits(first * size, most)
        assert "e" not in said
        assert float(said.replace(",", "")) == pytest.approx(first * size, rel=close)
        assert digits(-first * size, most, "+") == f"-{said}"
    assert digits(1_034.4) == "1,034"


def test_shares_of_a_simulated_store_are_in_millionths() -> None:
    _, options = parse(["replay", "--storage", "sim:read=6GB/s,loss=0.25,latency=200us"])
    assert isinstance(options, ReplayOptions)
    found = resolve_storage(*opened(options))
    assert found is not None
    store = found.options
    assert (store.loss, store.read_bytes_per_s, store.latency_ns) == (250_000, 6 * NINE, 200_000)


def test_bytes_over_a_rate_are_seconds() -> None:
    clock = Clock()
    pipe = Pipe(clock, 6 * NINE, 200_000)
    pipe.send(1, [3 * NINE, 3 * NINE], lambda count: None)  # type: ignore[arg-type]
    clock.run()
    assert clock.now_ns == 1_000_200_000
    link = KvLink(clock, KvLinkOptions(bytes_per_s=50 * NINE, latency_ns=10_000))
    assert link.lasts_ns(NINE) == 20_010_000


def test_a_kernel_has_microseconds_and_a_pass_nanoseconds() -> None:
    assert Kernel(fixed_us=2.5).ns(4, 0.0, 0.0) == 10_000
    # a prompt of one token reads the weights of 8B, 15 GB without the embedding, at 3.35 TB/s
    times = make("roofline", models.get("llama-3.1-8b"), hardware.get("h100"))
    assert 4_500_000 < times.step_ns([(0, 1)], 0, 0) < 8_000_000
    pure = make("pure-roofline", models.get("llama-3.1-8b"), hardware.get("h100"))
    assert 4_500_000 < pure.step_ns([(0, 1)], 0, 0) < 8_000_000


def test_a_pass_of_the_pure_roofline_by_hand() -> None:
    """One token reads 13,959,176,192 bytes of weights and 131,072 of its own, then 1,050,673,152
    bytes of the head, at 80 % of 3.35 TB/s, which is 2,680 bytes in a nanosecond. A pass has 500 us
    besides."""
    pure = make("pure-roofline", models.get("llama-3.1-8b"), hardware.get("h100"))
    assert pure.layers * pure.layer_ns([(0, 1)], 0, 0) == pytest.approx(5_208_697, abs=32)
    assert pure.overhead_ns([(0, 1)], 0) == pytest.approx(892_042, abs=1)


def test_the_kernels_of_an_engine_are_in_thousandths() -> None:
    """A pass takes its kernels' time in full at 1,000 and half of it at 500."""
    one, hopper = ([(0, 512)], 0, 0), defaults("hopper")
    for permille, part in ((1000, 1.0), (500, 0.5)):
        engine = EngineProfile("plain", device_permille=permille)
        times = Roofline(
            models.get("llama-3.1-8b"), hardware.get("h100"), Parallelism(), engine, hopper
        )
        alone = [
            sum(
                hopper.kernels[work.kind].ns(work.launches, work.compute_ns, work.moved_ns)
                for work in works
            )
            for works in times.works(*one)
        ]
        assert times.layers * times.layer_ns(*one) == pytest.approx(part * alone[0], rel=1e-4)
        assert times.overhead_ns(*one[:2]) == pytest.approx(part * alone[1], rel=1e-4)


def test_a_load_is_requests_a_second() -> None:
    assert from_gaps(np.array([0.5, 2.0])).tolist() == [0, 500_000_000, 2_500_000_000]
    draw = np.random.Generator(np.random.PCG64(1))
    zeros = np.zeros(4000, dtype=np.int64)
    found = MODELS["on-off"].arrivals(zeros, 10.0, {"on": 2.0, "off": 2.0}, draw)
    # none in the second half of any four seconds
    assert (found % (4 * NINE) <= 2 * NINE).all()
    assert 350 < found[-1] / NINE < 450


def test_a_replay_moves_its_bytes_at_the_rate_of_its_link(tmp_path: Path) -> None:
    """Prompts of 512 tokens of 131,072 bytes, one each second; the link moves 10 GB/s."""
    records = [mooncake([1 + number % 40], timestamp=1000 * number) for number in range(80)]
    trace, out = write(tmp_path / "trace.jsonl", *records), tmp_path / "out.json"
    words = ["--device-tokens", "12K", "--host-bytes", "10GB", "--host-bandwidth", "10GB"]
    given = [*words, "--slo", "ttft=1s", "--check", "off", "--json", str(out)]
    assert main(["replay", str(trace), *given]) == 0
    found = json.loads(out.read_text())
    moved = found["transfers"]["d2h"]
    assert moved["bytes"] == 40 * 512 * 131_072
    assert moved["busy_s"] == pytest.approx(moved["bytes"] / 10_000_000_000, rel=0.02)
    assert found["latency_s"]["makespan"] == pytest.approx(79.0, abs=0.2)
    assert found["slo"]["goodput_requests_per_s"] == pytest.approx(80 / 79, rel=0.01)
    assert found["output"]["tokens_per_s"] == pytest.approx(80 / 79, rel=0.01)
