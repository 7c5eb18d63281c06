"""The cost model against sums done another way, and its figures against published magnitudes."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from math import ceil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hicache import models
from hicache.core.errors import CallerError
from hicache.models import ModelDescription
from sim.hardware import profile as hardware
from sim.hardware.profile import HardwareProfile
from sim.times.base import Parallelism, TimeModel, make

RANKS = {"llama-3.1-8b": 1, "llama-3.1-70b": 4, "qwen3-32b": 1, "deepseek-v3": 16}
MS = 1_000_000

# Long enough for some batches to be bound by compute, some by memory.
SPAN = st.tuples(st.integers(0, 1500), st.integers(0, 1500)).map(
    lambda ends: (min(ends), max(ends))
)
BATCH = st.tuples(st.lists(SPAN, max_size=3), st.integers(0, 40), st.integers(0, 100_000))


def times_of(model: ModelDescription, profile: HardwareProfile, ranks: int = 1) -> TimeModel:
    return make("pure-roofline", model, profile, Parallelism(ranks))


def cost_of(name: str, profile: str = "h100") -> TimeModel:
    return times_of(models.get(name), hardware.get(profile), RANKS[name])


def attended(chunks: list[tuple[int, int]]) -> int:
    """Query-key pairs under the causal mask, counted one query at a time."""
    return sum(len(range(query + 1)) for start, end in chunks for query in range(start, end))


def reference_layer_ns(name: str, batch: tuple[list[tuple[int, int]], int, int]) -> int:
    """Seconds as exact fractions, of one layer on one rank."""
    model, profile, ranks = models.get(name), hardware.get("h100"), RANKS[name]
    chunks, growing, context = batch
    real = [(start, end) for start, end in chunks if end > start]
    tokens = sum(len(range(start, end)) for start, end in real) + growing
    if tokens == 0:
        return 0
    tables = model.embeddings * model.vocabulary * model.hidden_size
    met = Fraction(model.active_parameters - tables, model.layers)
    heads = model.attention_heads
    flops = tokens * 2 * met
    flops += attended(real) * 2 * heads * (model.score_elements + model.value_elements)
    flops += context * 2 * heads * (model.decode_score_elements + model.decode_value_elements)
    chosen = min(model.experts, tokens * model.experts_per_token)
    unread = (model.experts - chosen) * model.expert_bytes + 2 * tables
    weights = Fraction(model.weight_bytes - unread, model.layers)
    rows = context + sum(end for _, end in real)
    moved = weights / ranks + Fraction(rows * model.bytes_per_token(ranks), model.layers)
    speed = Fraction(profile.flops_per_s * profile.compute_permille, 1000)
    width = Fraction(profile.hbm_bytes_per_s * profile.hbm_permille, 1000)
    return ceil(max(flops / ranks / speed, moved / width) * 10**9)


@pytest.mark.parametrize("name", RANKS)
@settings(max_examples=60, deadline=None)
@given(batch=BATCH)
def test_layer_time_is_the_larger_of_compute_and_memory_time(
    name: str, batch: tuple[list[tuple[int, int]], int, int]
) -> None:
    assert cost_of(name).layer_ns(*batch) == reference_layer_ns(name, batch)


@pytest.mark.parametrize("name", RANKS)
@settings(max_examples=60, deadline=None)
@given(batch=BATCH)
def test_step_time_is_layers_plus_overhead(
    name: str, batch: tuple[list[tuple[int, int]], int, int]
) -> None:
    cost = cost_of(name)
    total = cost.step_ns(*batch)
    layers = [cost.layer_ns(*batch) for _ in range(cost.layers)]
    assert cost.layers == models.get(name).layers
    assert total == sum(layers) + cost.overhead_ns(batch[0], batch[1])
    assert (total == 0) == (batch[1] == 0 and all(start == end for start, end in batch[0]))


@pytest.mark.parametrize("name", RANKS)
@settings(max_examples=60, deadline=None)
@given(batch=BATCH, extra=st.integers(1, 5000), other=SPAN, hit=st.integers(0, 300))
def test_more_work_never_takes_less_time(
    name: str,
    batch: tuple[list[tuple[int, int]], int, int],
    extra: int,
    other: tuple[int, int],
    hit: int,
) -> None:
    cost = cost_of(name)
    chunks, growing, context = batch
    base = cost.step_ns(*batch)
    assert cost.step_ns(chunks, growing + extra, context) >= base
    assert cost.step_ns(chunks, growing, context + extra) >= base
    assert cost.step_ns([*chunks, other], growing, context) >= base
    if chunks:
        start, end = chunks[0]
        assert cost.step_ns([(start, end + extra), *chunks[1:]], growing, context) >= base
        later = [(start + hit, end + hit), *chunks[1:]]
        assert cost.step_ns(later, growing, context) >= base
        cached = [(min(end, start + hit), end), *chunks[1:]]
        assert cost.step_ns(cached, growing, context) <= base


def test_a_longer_prompt_costs_strictly_more_and_a_hit_strictly_less() -> None:
    cost = cost_of("llama-3.1-8b")
    assert cost.step_ns([(0, 8193)], 0, 0) > cost.step_ns([(0, 8192)], 0, 0)
    assert cost.step_ns([(4096, 8192)], 0, 0) < cost.step_ns([(0, 8192)], 0, 0)
    assert cost.step_ns([], 8, 80_000) > cost.step_ns([], 8, 40_000)


def test_costs_have_the_published_magnitude() -> None:
    """Public serving benchmarks of this pair: an 8 k prompt takes a few hundred milliseconds, a
    token of a lone sequence 6 to 8."""
    cost = cost_of("llama-3.1-8b")
    assert 100 * MS < cost.step_ns([(0, 8192)], 0, 0) < 600 * MS
    assert 5 * MS < cost.step_ns([], 1, 1000) < 10 * MS


HYBRIDS = {"gpt-oss-120b": 1, "gemma-3-27b": 1, "qwen3-next-80b-a3b": 4}


def reference_hybrid_ns(name: str, batch: tuple[list[tuple[int, int]], int, int]) -> int:
    """As the other reference, with every layer of its own kind, each query counted."""
    model, profile, ranks = models.get(name), hardware.get("b200"), HYBRIDS[name]
    chunks, growing, context = batch
    real = [(start, end) for start, end in chunks if end > start]
    tokens = sum(end - start for start, end in real) + growing
    if tokens == 0:
        return 0
    flops = 2 * model.layer_parameters * tokens
    moved: Fraction | int = 0
    for pool in model.pools:
        size = pool.token_bytes(ranks) * ranks
        limit = pool.window or 10**9
        seen = min(context, growing * limit) if pool.window else context
        if pool.kind == "state":
            moved += 2 * pool.page_bytes(1, ranks) * ranks * (growing + len(real))
            continue
        pairs = sum(min(query + 1, limit) for start, end in real for query in range(start, end))
        heads = 2 * model.attention_heads * len(pool.layers)
        flops += heads * pairs * (model.score_elements + model.value_elements)
        flops += heads * seen * (model.decode_score_elements + model.decode_value_elements)
        moved += size * (seen + sum(min(end, end - start + limit) for start, end in real))
    chosen = min(model.experts, tokens * model.experts_per_token)
    tables = model.embeddings * model.vocabulary * model.hidden_size
    moved += model.weight_bytes - 2 * tables - (model.experts - chosen) * model.expert_bytes
    speed = Fraction(profile.reached_flops_per_s * ranks * model.layers)
    width = Fraction(profile.reached_hbm_bytes_per_s * ranks * model.layers)
    return ceil(max(flops / speed, moved / width) * 10**9)


@pytest.mark.parametrize("name", HYBRIDS)
@settings(max_examples=40, deadline=None)
@given(batch=BATCH)
def test_windows_and_states_cost_their_bytes(
    name: str, batch: tuple[list[tuple[int, int]], int, int]
) -> None:
    cost = times_of(models.get(name), hardware.get("b200"), HYBRIDS[name])
    assert cost.layer_ns(*batch) == reference_hybrid_ns(name, batch)


def test_a_window_saves_time_only_where_a_context_is_longer() -> None:
    cost = times_of(models.get("gpt-oss-120b"), hardware.get("b200"))
    short, long = cost.layer_ns([], 64, 64 * 100), cost.layer_ns([], 64, 64 * 100_000)
    assert cost.layer_ns([], 64, 64 * 128) > short
    rows = sum(pool.token_bytes() for pool in models.get("gpt-oss-120b").pools if not pool.window)
    width = hardware.get("b200").reached_hbm_bytes_per_s * cost.layers
    assert abs((long - short) - 64 * 99_900 * rows * 10**9 // width) < short


def test_ranks_share_the_work() -> None:
    llama, profile = models.get("llama-3.1-8b"), hardware.get("h100")
    times = [times_of(llama, profile, tp).layer_ns([(0, 4096)], 0, 0) for tp in (1, 2, 4, 8)]
    assert all(abs(times[0] - time * 2**power) <= 2**power for power, time in enumerate(times))


def test_impossible_tp_sizes_are_refused() -> None:
    profile = hardware.get("h100")
    for tp in (3, 64):
        with pytest.raises(CallerError, match="tp: expected a divisor of 32 attention heads"):
            times_of(models.get("llama-3.1-8b"), profile, tp)
    with pytest.raises(CallerError, match=r"weights of llama-3\.1-70b"):
        times_of(models.get("llama-3.1-70b"), profile, 1)


@pytest.mark.parametrize("name", hardware.names())
def test_a_profile_is_complete_and_reaches_less_than_its_peak(name: str) -> None:
    profile = hardware.get(name)
    assert profile.name == name
    assert 0 < profile.reached_flops_per_s < profile.flops_per_s
    assert 0 < profile.reached_hbm_bytes_per_s < profile.hbm_bytes_per_s
    assert 0 < profile.reached_link_bytes_per_s < profile.link_bytes_per_s
    assert 1000 <= profile.link_shared_permille <= 2000
    single, both = profile.reached_link_bytes_per_s, profile.reached_shared_bytes_per_s
    assert single <= both <= 2 * single
    assert min(profile.hbm_bytes, profile.copy_latency_ns, profile.step_overhead_ns) > 0


def test_newer_profiles_are_faster() -> None:
    chosen = [hardware.get(name) for name in ("a100", "h100", "h200", "b200")]
    for older, newer in pairwise(chosen):
        assert older.flops_per_s <= newer.flops_per_s
        assert older.hbm_bytes_per_s < newer.hbm_bytes_per_s
        assert older.hbm_bytes <= newer.hbm_bytes
        assert older.link_bytes_per_s <= newer.link_bytes_per_s


def test_host_bandwidth_scales_the_link_and_nothing_else() -> None:
    profile = hardware.get("h100")
    half = hardware.scaled_host_bandwidth(profile, 1, 2)
    assert half.link_bytes_per_s * 2 == profile.link_bytes_per_s
    assert half.reached_link_bytes_per_s * 2 == profile.reached_link_bytes_per_s
    assert hardware.scaled_host_bandwidth(half, 2, 1) == profile
    for numerator, denominator in ((0, 1), (1, 0), (-1, 2), (1, 10**12)):
        with pytest.raises(CallerError, match="host bandwidth factor"):
            hardware.scaled_host_bandwidth(profile, numerator, denominator)


def test_unknown_hardware_is_refused_with_those_that_exist() -> None:
    with pytest.raises(
        CallerError, match=r"a100, a100-40gb, b200, .*found 'h1000'; did you mean h1"
    ):
        hardware.get("h1000")
