"""The roofline: what every time must obey, and its magnitudes (its times to the nanosecond are
golden). Nothing to compute takes no time; more work never takes less; no pass is faster than its
bytes and operations at the peak rates; the number of experts that are touched is that of theory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import pytest

from hicache import models
from sim import hardware
from sim.engine_profiles import EngineProfile
from sim.physics import Experts, Kernel, RooflineConstants, defaults, family, matrices_of
from sim.times.base import Parallelism, make
from sim.times.roofline import Roofline

from .found_out import refused
from .test_costs import H100, batches, more_takes_no_less

LLAMA = models.get("llama-3.1-8b")
HOPPER = defaults("hopper")
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


def setups() -> Iterator[Roofline]:
    """For several models, accelerators, ranks and engines."""
    for name, gpu, ranks, engine in _SETUPS:
        profile = hardware.get(gpu)
        known = defaults(family(profile))
        yield Roofline(models.get(name), profile, Parallelism(**ranks), engine, known)


def test_nothing_takes_no_time_and_a_step_is_its_layers() -> None:
    """Whatever was asked before: also of as many tokens, which groups of ranks share otherwise."""
    asked = [*batches(4), ([(0, 64)], 0, 0), ([(0, 32)] * 2, 0, 0)]
    for found, other in zip(setups(), setups(), strict=True):
        back = [other.step_ns(*batch) for batch in reversed(asked)][::-1]
        for empty in ((), ((7, 7),), ((3, 3), (9, 9))):
            assert found.step_ns(empty, 0, 0) == found.layer_ns(empty, 0, 0) == 0
            assert found.overhead_ns(empty, 0) == 0
            assert found.works(empty, 0, 0) == ([], [])
        for batch, again in zip(asked, back, strict=True):
            step = found.layers * found.layer_ns(*batch) + found.overhead_ns(*batch[:2])
            assert found.step_ns(*batch) == step == again
            assert all(type(value) is int for value in (step, found.layer_ns(*batch)))


def test_more_work_never_takes_less() -> None:
    for found in setups():
        more_takes_no_less(found)


def test_no_pass_is_faster_than_the_peaks() -> None:
    """A pass takes at least its operations and at least its bytes at the peak rates, and one of
    kernels without losses the sum of the longer of both."""
    ideal = {kind: Kernel(0.0, 1.0, 1.0, 200.0) for kind in defaults("hopper").kernels}
    for name, gpu, ranks, engine in _SETUPS:
        profile, parallelism = hardware.get(gpu), Parallelism(**ranks)
        perfect = Roofline(models.get(name), profile, parallelism, PLAIN, RooflineConstants(ideal))
        real = Roofline(models.get(name), profile, parallelism, engine, defaults(family(profile)))
        for batch in batches(4):
            works = [work for part in perfect.works(*batch) for work in part]
            longest = sum(max(work.compute_ns, work.moved_ns) for work in works)
            assert min((min(work[1:]) for work in works), default=0) >= 0
            for one in (sum(each.compute_ns for each in works), sum(each[3] for each in works)):
                assert perfect.step_ns(*batch) >= one - perfect.layers
                assert real.step_ns(*batch) >= one - real.layers
            assert longest - perfect.layers <= perfect.step_ns(*batch)
            assert perfect.step_ns(*batch) <= longest * 1.004 + perfect.layers


def test_touched_experts_are_those_of_theory() -> None:
    """By trying every choice of few experts; and between one token's and all of them."""
    for count, chosen, tokens in ((4, 1, 3), (4, 2, 2), (5, 3, 2), (3, 1, 5)):
        one = Experts("experts.bf16", 1, count, chosen, 1.0, 1.0, 1.0)
        sets = [each for each in product((0, 1), repeat=count) if sum(each) == chosen]
        tried = [*product(sets, repeat=tokens)]
        touched = sum(sum(map(any, zip(*each, strict=True))) for each in tried)
        assert abs(one.touched(tokens) - touched / len(tried)) < 1e-9
    for choice in (0.3, 1.0, 1.7):
        many = Experts("experts.bf16", 1, 128, 4, 1.0, 1.0, 1.0)
        found = [many.touched(tokens, choice) for tokens in (0, 1, 2, 5, 40, 400, 90_000)]
        assert found[0] == 0
        assert found[1] >= 4
        assert found == sorted(found)
        assert found[-1] <= 128


def test_more_ranks_share_the_work() -> None:
    """Twice the ranks never give one of them more operations, nor more bytes of its memory."""
    for name, gpu in (("llama-3.1-70b", "h200"), ("deepseek-v3", "b200"), ("gpt-oss-120b", "h100")):
        roomy = replace(hardware.get(gpu), hbm_bytes=1 << 50)
        for batch in batches(4):
            before = [float("inf")] * 2
            for tp in (1, 2, 4, 8):
                known = defaults(family(roomy))
                one = Roofline(models.get(name), roomy, Parallelism(tp), PLAIN, known)
                work = [each for part in one.works(*batch) for each in part]
                own = [each for each in work if each.kind.split(".")[0] not in _SENT]
                found = [sum(each.compute_ns for each in own), sum(each.moved_ns for each in own)]
                pairs = zip(found, before, strict=True)
                assert all(now <= then for now, then in pairs), f"{name}, {tp} ranks: {batch}"
                sent = [each for each in work if each.kind.split(".")[0] in _SENT]
                assert bool(sent) == (tp > 1 and bool(work))
                before = found


_SENT = ("custom", "all_gather")


def test_constants_have_a_range() -> None:
    for name, value, text in (
        ("product.bf16.compute", 0.0, "product.bf16.compute: expected 0.001 to 10000, found 0.0"),
        ("prefill.128.power", 0.5, "prefill.128.power: expected 1 to 10000, found 0.5"),
        ("sampling.fixed_us", -1.0, "sampling.fixed_us: expected 0 to 10000, found -1.0"),
        ("experts_choice", 0.0, "experts_choice: expected 0.01 to 2, found 0.0"),
        ("ranks_imbalance", 0.9, "ranks_imbalance: expected 1 to 10, found 0.9"),
        ("product.bf17.compute", 0.5, "constant: expected a kind and one of fixed_us, compute"),
        ("product.bf16.computes", 0.5, "constant: expected a kind and one of fixed_us, compute"),
    ):
        refused(
            lambda name=name, value=value: defaults("hopper").replaced({name: value}),  # type: ignore[misc]
            text,
        )
    generations = {name: family(hardware.get(name)) for name in ("a100", "h100", "h200", "b200")}
    assert [*generations.values()] == ["ampere", "hopper", "hopper", "blackwell"]
    slow = replace(H100, hbm_bytes_per_s=864 * 10**9)
    assert family(slow) == family(replace(slow, fp4_flops_per_s=10**15)) == "ada"
    kinds = [{*defaults(name).kernels} for name in ("ampere", "ada", "hopper", "blackwell")]
    assert all(one == kinds[0] for one in kinds)


@pytest.mark.parametrize("name", ["llama-3.1-8b", "gpt-oss-120b", "deepseek-v3"])
def test_a_model_without_matrices_has_stand_ins(name: str) -> None:
    """They have the parameters and about the bytes, so the times are close."""
    model = models.get(name)
    bare = replace(model, matrices=())
    plain = [each for each in matrices_of(bare) if not each.routed]
    routed = [each for each in matrices_of(bare) if each.routed]
    own = model.layer_parameters - model.experts_per_token * model.expert_parameters
    assert sum(one.layers * one.parameters for one in plain) == pytest.approx(own, rel=0.01)
    experts = sum(one.layers * one.parameters for one in routed)
    assert experts == pytest.approx(model.expert_parameters, rel=0.01)
    roomy = replace(hardware.get("h200"), hbm_bytes=1 << 50)
    pair = [Roofline(each, roomy, Parallelism(), PLAIN, HOPPER) for each in (model, bare)]
    for batch in (([(0, 2048)], 0, 0), ((), 1, 1000), ((), 64, 64_000)):
        real, stand_in = (one.step_ns(*batch) for one in pair)
        assert stand_in == pytest.approx(real, rel=0.25)


def test_quantized_weights_are_faster_only_with_units_for_them() -> None:
    eight = models.stored(LLAMA, "fp8")
    for gpu, faster in (("h100", True), ("a100", False)):
        profile = hardware.get(gpu)
        before, after = (
            make("roofline", model, profile).step_ns([(0, 8192)], 0, 0) for model in (LLAMA, eight)
        )
        assert (after < 0.9 * before) == faster
        before, after = (
            make("roofline", model, profile).step_ns((), 1, 100) for model in (LLAMA, eight)
        )
        assert after < 0.8 * before
