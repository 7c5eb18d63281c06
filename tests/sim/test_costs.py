"""The pure roofline: its durations to the nanosecond, and the figures of hardware. More work never
takes less time. What the times of the roofline must obey, and its magnitudes (those are golden): no
pass is faster than its bytes and operations at the peak rates; experts are touched as in theory."""

import json
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from hashlib import sha256
from itertools import pairwise, product
from math import ceil
from pathlib import Path

from hicache import models
from hicache.models import ModelDescription
from sim import hardware
from sim.content import draw
from sim.engine_profiles import EngineProfile
from sim.hardware import Curve, HardwareProfile
from sim.physics import Experts, Kernel, defaults, family
from sim.times.base import Chunks, Parallelism, make, step_ns
from sim.times.roofline import Roofline

from .workloads import hybrid

Batch = tuple[Chunks, int, int]
H100 = hardware.get("h100")
_RANKS = {
    "llama-3.1-8b": 1,
    "llama-3.1-70b": 4,
    "deepseek-v3": 16,
    "gpt-oss-120b": 2,
    "gemma-3-27b": 1,
    "qwen3-next-80b-a3b": 4,
    "deepseek-v3.2": 16,
}


def batches(count: int) -> list[Batch]:
    """Drawn batches, some empty, some of chunks without tokens."""
    result: list[Batch] = [((), 0, 0), (((5, 5),), 0, 0), (((0, 1),), 0, 0), ((), 1, 1)]
    result += [(((5, 5), (0, 9), (7, 7)), 2, 50), (((400, 400), (380, 401)), 0, 0)]
    for seed in range(count):
        chunks = []
        for number in range(draw(3, seed, "chunks")):
            start = draw(3, seed, number, "starts") and draw(400, seed, number, "start")
            chunks.append((start, start + draw(500, seed, number, "tokens")))
        decoding = draw(3, seed, "decodes") and draw(200, seed, "decoding")
        result.append((chunks, decoding, decoding and draw(90_000, seed, "context")))
    return result


def models_and_profiles() -> Iterator[tuple[ModelDescription, int, HardwareProfile]]:
    """Every kind of model, and layers with several pools: two windows on one layer, a window beside
    full attention, a layer without pools. With slow compute and with slow memory, so that each term
    decides once."""
    mixed = hybrid(("full", "swa", "mamba"), 40, models.get("llama-3.1-8b"))
    full, window, state = mixed.pools
    wide = replace(window, name="wide", window=100, layers=(1, 2, 4))
    pairs = [(models.get(name), ranks) for name, ranks in _RANKS.items()] + [(mixed, 1), (mixed, 4)]
    pairs += [
        (replace(mixed, pools=pools), 1)
        for pools in (
            (full, window, wide, state),
            (replace(full, layers=(0, 3)), window, replace(state, layers=(5,))),
            tuple(
                replace(pool, layers=layers)
                for pool, layers in zip((full, window, wide), ((0, 1), (1, 2), (2,)), strict=True)
            ),
            (replace(window, window=1), replace(wide, layers=(1,))),
            (state,),
        )
    ]
    for model, ranks in pairs:
        yield model, ranks, H100
        yield model, ranks, hardware.get("b200")
        yield model, ranks, replace(H100, flops_per_s=10**12, step_overhead_ns=0)
        yield model, ranks, replace(H100, hbm_bytes_per_s=10**10)


def report_of() -> dict[str, str]:
    """By model, ranks and profile, a digest of the times of all batches."""
    row = {}
    for number, (model, ranks, profile) in enumerate(models_and_profiles()):
        cost, times = make("pure-roofline", model, profile, Parallelism(ranks)), []
        for batch in batches(8):
            layer, over = cost.layer_ns(*batch), cost.overhead_ns(*batch[:2])
            assert step_ns(cost, *batch) == cost.layers * layer + over
            times.append((layer, over))
        row[f"{number} {model.name}"] = sha256(repr(times).encode()).hexdigest()[:16]
    return row


def test_the_pure_roofline_takes_the_times_that_it_took() -> None:
    assert report_of() == json.loads((Path(__file__).parent / "costs.json").read_text())


_POINTS = ((1000, 500), (3000, 700), (4000, 3_000))


def test_curves() -> None:
    """A measured time is linear between its points, and proportional above the last."""
    for points in (_POINTS, ((1, 1), (2, 1)), ((7, 9), (900, 10))):
        curve = Curve(points)
        near = (size + off for size, _ in points for off in (-2, -1, 0, 1, 2))
        for count in sorted({0, 1, 2, *near, 2500, 9000, 10**6}):
            assert curve.ns(count) == _plain_ns(points, count), f"{points}: {count} bytes"
            assert curve.covers(count) == (points[0][0] <= count <= points[-1][0])


def _plain_ns(points: tuple[tuple[int, int], ...], count: int) -> int:
    (first, first_ns), (last, last_ns) = points[0], points[-1]
    if count >= last:
        return last_ns * count // last
    if count <= first:  # on the line from half the first time at size 0
        below = Fraction(first_ns, 2) + Fraction(first_ns * count, 2 * first)
        return max(1, ceil(below))
    low, high = next(pair for pair in pairwise(points) if pair[0][0] <= count < pair[1][0])
    slope = Fraction(high[1] - low[1], high[0] - low[0])
    return max(1, low[1] + (slope * (count - low[0])).__floor__())


PLAIN = EngineProfile("plain")
_EAGER = EngineProfile("eager", launch_ns=90_000, graph_batch=20, graph_tokens=60, logit_passes=7)
_NCCL = EngineProfile("nccl", all_reduce="nccl", device_permille=1070)
_FUSED = EngineProfile("fused", all_reduce="fused", launch_ns=400)
_SETUPS: tuple[tuple[str, str, dict[str, int], EngineProfile], ...] = (
    ("llama-3.1-8b", "h100", {}, PLAIN),
    ("llama-3.1-8b", "a100", {"tp": 2}, _EAGER),
    ("llama-3.1-70b", "b200", {"tp": 4, "pp": 2}, _NCCL),
    ("qwen3-32b", "h200", {"tp": 8}, _FUSED),
    ("gpt-oss-120b", "h100", {"tp": 2}, _EAGER),
    ("gemma-3-27b", "h100", {"tp": 2, "attention_dp": 2}, PLAIN),
    ("qwen3-next-80b-a3b", "b200", {"tp": 4, "ep": 4}, _NCCL),
    ("deepseek-v3", "b200", {"tp": 8, "ep": 8, "attention_dp": 8}, PLAIN),
    ("deepseek-v3", "h200", {"tp": 16, "ep": 4, "attention_dp": 2}, _FUSED),
    ("deepseek-v3", "h200", {"tp": 16, "ep": 4, "attention_dp": 2, "dcp": 4}, _EAGER),
    ("llama-3.1-70b", "b200", {"tp": 16, "dcp": 2}, PLAIN),
    ("deepseek-v3.2", "b200", {"tp": 8, "pp": 2, "attention_dp": 4}, _EAGER),
)


def test_no_pass_is_faster_than_the_peaks() -> None:
    """A pass takes at least its operations and at least its bytes at the peak rates, and one of
    kernels without losses the sum of the longer of both."""
    ideal = {kind: Kernel(0.0, 1.0, 1.0, 200.0) for kind in defaults("hopper")}
    for name, gpu, ranks, engine in _SETUPS:
        profile, parallelism = hardware.get(gpu), Parallelism(**ranks)
        perfect = Roofline(models.get(name), profile, parallelism, PLAIN, ideal)
        real = Roofline(models.get(name), profile, parallelism, engine, defaults(family(profile)))
        for batch in batches(4):
            works = [work for part in perfect.works(*batch) for work in part]
            longest = sum(max(work.compute_ns, work.moved_ns) for work in works)
            assert min((min(work[1:]) for work in works), default=0) >= 0
            for total in (sum(each.compute_ns for each in works), sum(each[3] for each in works)):
                assert step_ns(perfect, *batch) >= total - perfect.layers
                assert step_ns(real, *batch) >= total - real.layers
            assert longest - perfect.layers <= step_ns(perfect, *batch)
            assert step_ns(perfect, *batch) <= longest * 1.004 + perfect.layers


def test_touched_experts_are_those_of_theory() -> None:
    """By trying every choice of few experts; and between one token's and all of them."""
    for count, chosen, tokens in ((4, 1, 3), (4, 2, 2), (5, 3, 2), (3, 1, 5)):
        experts = Experts("experts.bf16", 1, count, chosen, 1.0, 1.0, 1.0)
        sets = [each for each in product((0, 1), repeat=count) if sum(each) == chosen]
        tried = [*product(sets, repeat=tokens)]
        touched = sum(sum(map(any, zip(*each, strict=True))) for each in tried)
        assert abs(experts.touched(tokens) - touched / len(tried)) < 1e-9
    for choice in (0.3, 1.0, 1.7):
        many = Experts("experts.bf16", 1, 128, 4, 1.0, 1.0, 1.0)
        numbers = [many.touched(tokens, choice) for tokens in (0, 1, 2, 5, 40, 400, 90_000)]
        assert numbers[0] == 0
        assert numbers[1] >= 4
        assert numbers == sorted(numbers)
        assert numbers[-1] <= 128


def test_more_ranks_share_the_work() -> None:
    """Twice the ranks never give one of them more operations, nor more bytes of its memory."""
    for name, gpu in (("llama-3.1-70b", "h200"), ("deepseek-v3", "b200"), ("gpt-oss-120b", "h100")):
        roomy = replace(hardware.get(gpu), hbm_bytes=1 << 50)
        for batch in batches(4):
            before = [float("inf")] * 2
            for tp in (1, 2, 4, 8):
                known = defaults(family(roomy))
                roofline = Roofline(models.get(name), roomy, Parallelism(tp), PLAIN, known)
                work = [each for part in roofline.works(*batch) for each in part]
                own = [each for each in work if each.kind.split(".")[0] not in _SENT]
                items = [sum(each.compute_ns for each in own), sum(each.moved_ns for each in own)]
                pairs = zip(items, before, strict=True)
                assert all(now <= then for now, then in pairs), f"{name}, {tp} ranks: {batch}"
                sent = [each for each in work if each.kind.split(".")[0] in _SENT]
                assert bool(sent) == (tp > 1 and bool(work))
                before = items


_SENT = ("custom", "all_gather")
