"""The roofline: single kernels and whole passes, what they add up to, and their magnitudes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hicache import models
from sim.engine_profiles.base import EngineProfile
from sim.hardware import profile as hardware
from sim.physics import single
from sim.physics.constants import defaults
from sim.physics.products import matrices_of
from sim.times.base import Parallelism, make
from sim.times.roofline import Roofline

H100 = hardware.get("h100")
HOPPER = defaults("hopper")
LLAMA = models.get("llama-3.1-8b")
ENGINE = EngineProfile("plain")


def roofline(name: str, gpu: str = "h100", **ranks: int) -> Roofline:
    profile = hardware.get(gpu)
    constants = HOPPER if gpu.startswith("h") else defaults("blackwell")
    return Roofline(models.get(name), profile, Parallelism(**ranks), ENGINE, constants)


def test_a_pass_is_its_kernels() -> None:
    """Products, attention and sums of a pass are those of single kernels."""
    found = roofline("llama-3.1-70b", tp=4)
    works = found.works([(0, 512)], 0, 0)[0]
    of = {}
    for work in works:
        kernel = HOPPER.kernels[work.kind]
        each = kernel.ns(work.launches, work.compute_ns, work.moved_ns) / 80
        of[work.kind] = of.get(work.kind, 0.0) + each
    shapes = ((2560, 8192), (8192, 2048), (14336, 8192), (8192, 7168))
    products = sum(single.product_ns(H100, HOPPER, 512, n, k) for n, k in shapes)
    assert of["product.bf16"] == pytest.approx(products)
    attention = single.prefill_attention_ns(H100, HOPPER, 512, 16, 2, 128)
    assert of["prefill.128"] == pytest.approx(attention)
    sums = 2 * single.all_reduce_ns(H100, HOPPER, 4, 512 * 8192 * 2)
    assert of["custom.4"] == pytest.approx(sums)
    decode = found.works((), 7, 7000)[0]
    (work,) = [each for each in decode if each.kind == "decode.kv"]
    alone = single.decode_attention_ns(H100, HOPPER, 7, 1000, 16, 2, 128)
    kernel = HOPPER.kernels["decode.kv"]
    assert kernel.ns(work.launches, work.compute_ns, work.moved_ns) / 80 == pytest.approx(alone)


@pytest.mark.parametrize(
    ("name", "gpu", "ranks"),
    [
        ("llama-3.1-8b", "h100", 1),
        ("llama-3.1-70b", "h100", 4),
        ("qwen3-32b", "b200", 1),
        ("gpt-oss-120b", "b200", 2),
    ],
)
def test_decoding_alone_takes_somewhat_more_than_reading_the_weights(
    name: str, gpu: str, ranks: int
) -> None:
    found, model = roofline(name, gpu, tp=ranks), models.get(name)
    used = model.weight_bytes - (model.experts - model.experts_per_token) * model.expert_bytes
    used -= (model.embeddings - 1) * model.head_bytes
    read_ns = used / ranks / hardware.get(gpu).hbm_bytes_per_s * 1e9
    assert 1.1 * read_ns < found.step_ns((), 1, 1000) < (12 if model.experts else 2) * read_ns


def test_a_long_prompt_reaches_about_half_of_the_peak() -> None:
    found = roofline("llama-3.1-8b")
    flops = 2 * LLAMA.layer_parameters * 8192
    assert 0.4 < flops / H100.flops_per_s * 1e9 / found.step_ns([(0, 8192)], 0, 0) < 0.8


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
    pair = [Roofline(each, roomy, Parallelism(), ENGINE, HOPPER) for each in (model, bare)]
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


def test_a_pipeline_divides_a_batch_and_not_a_request() -> None:
    one, two = roofline("llama-3.1-70b", tp=4), roofline("llama-3.1-70b", tp=4, pp=2)
    alone = one.layers * one.layer_ns([(0, 4000)], 0, 0)
    assert two.layers * two.layer_ns([(0, 4000)], 0, 0) == alone
    assert two.layers * two.layer_ns([(0, 4000), (0, 4000)], 0, 0) == alone
    assert two.layer_ns((), 64, 64_000) == one.layer_ns((), 32, 32_000)


def test_the_label_says_where_constants_are_from() -> None:
    assert make("roofline", LLAMA, H100).label.startswith("roofline, constants of hopper")


def test_measured_rates_are_reached_by_products() -> None:
    """As fast as peaks of which products reach the defaults; links and fixed times stay."""
    base = defaults("ampere").kernels["product.bf16"]
    peak = replace(H100, fp8_flops_per_s=0, fp4_flops_per_s=0)
    reached = replace(
        peak,
        flops_per_s=int(peak.flops_per_s * base.compute),
        hbm_bytes_per_s=int(peak.hbm_bytes_per_s * base.memory),
        geometry={"layout": "layer_first"},
    )
    expected = Roofline(LLAMA, peak, Parallelism(2), ENGINE, defaults("ampere"))
    found = make("roofline", LLAMA, reached, Parallelism(2))
    assert found.label == "roofline, constants of ampere: measured rates"
    for batch in (([(0, 3000), (500, 900)], 0, 0), ((), 40, 90_000), ([(9, 80)], 3, 9000)):
        assert found.step_ns(*batch) == pytest.approx(expected.step_ns(*batch), rel=1e-6)
