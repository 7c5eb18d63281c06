"""No pass is faster than the data sheet of its accelerator: what must be read, over the bandwidth,
and what must be multiplied, over the rate of its type."""

from __future__ import annotations

import itertools

import pytest

from hicache import models
from hicache.core.errors import CallerError
from hicache.models import ModelDescription
from sim import engine_profiles
from sim.fitted import factors
from sim.fitted.factors import Factor
from sim.hardware import profile as hardware
from sim.hardware.profile import HardwareProfile
from sim.physics.constants import defaults, family
from sim.times.base import Parallelism, TimeModel, make, rank_weight_bytes

DTYPES = (None, "fp8", "nvfp4")
RANKS = (1, 2, 4, 8)
BATCHES = ((1, 1), (1, 131_072), (64, 128), (64, 8192), (1024, 8192), (8, 1_000_000))
PROMPTS = (1, 64, 129, 512, 8192, 131_072)
MARGIN = 0.15  # of the weights: embeddings, which a pass reads a row of
ENGINES = [
    f"{name}@{version}"
    for name in engine_profiles.names()
    for version in engine_profiles.versions(name)
]
# those that have factors of their own
PUBLISHED = sorted({*models.names()} & {label for one in factors.factors() for label in one.where})
BUILDS = list(itertools.product(hardware.names(), models.names(), DTYPES, RANKS))[::67]


def test_no_kernel_reaches_more_than_the_data_sheet() -> None:
    pairs = [*itertools.product(hardware.names(), ["plain", *ENGINES])][::3]
    for (name, engine), model in zip(pairs, itertools.cycle([*PUBLISHED, "yi-34b"])):
        profile, generation = hardware.get(name), family(hardware.get(name))
        used = factors.engine(engine_profiles.get(engine), name, model)
        constants = factors.roofline(defaults(generation), generation, name, used, model).named()
        parts = {key: value for key, value in constants.items() if ".compute" in key}
        parts |= {key: value for key, value in constants.items() if ".memory" in key}
        assert len(parts) > 60
        assert max(parts.values()) <= 1.0, (profile.name, engine, model)


def test_a_fit_that_wants_more_is_held_at_the_peak() -> None:
    wild = (Factor("decode.*.memory", ("hopper",), 3.0, None, 1, ()),)
    plain = engine_profiles.get("plain")
    held = factors.roofline(
        defaults("hopper"), "hopper", "h100", plain, "llama-3.1-8b", wild
    ).kernels
    assert held["decode.kv"].memory == held["decode.latent_fp8"].memory == 1.0
    assert held["decode.kv"].compute == defaults("hopper").kernels["decode.kv"].compute


def built(
    profile: HardwareProfile, name: str, dtype: str | None, tp: int
) -> tuple[ModelDescription, TimeModel] | None:
    """None for a server that cannot be built."""
    try:
        model = models.get(name)
        if dtype is not None:
            model = models.checkpoint(model, dtype)
            model = models.cached_as(model, "fp8") if dtype == "fp8" else model
        return model, make("roofline", model, profile, Parallelism(tp))
    except CallerError:
        return None


def peak(profile: HardwareProfile, model: ModelDescription) -> int:
    """The highest rate of any type of its weights."""
    eight = profile.fp8_flops_per_s or 0
    four = profile.fp4_flops_per_s or eight
    types = {matrix.dtype for matrix in model.matrices} | {*model.weight_dtype.split(",")}
    text = " ".join(types)
    return max(profile.flops_per_s, "fp8" in text and eight, "fp4" in text and four)


def faults(builds: list[tuple[str, str, str | None, int]]) -> tuple[int, list[object]]:
    """How many servers could be built, and the passes below their bound."""
    count, found = 0, list[object]()
    for gpu, name, dtype, tp in builds:
        profile = hardware.get(gpu)
        server = built(profile, name, dtype, tp)
        if server is None:
            continue
        count += 1
        model, times = server
        full = [one for one in model.pools if one.component == "full" and one.kind == "kv"]
        rows = 0 if model.selected_tokens else sum(one.token_bytes(tp) for one in full)
        weights = 0 if model.experts else rank_weight_bytes(model, Parallelism(tp))
        for batch, context in BATCHES:
            read = batch * context * rows + weights * (1 - MARGIN)
            took = times.step_ns([], batch, batch * context)
            if took < read / profile.hbm_bytes_per_s * 1e9:
                found.append((gpu, name, dtype, tp, "decode", batch, context))
        used = model.active_parameters - 2 * model.vocabulary * model.hidden_size
        for tokens in PROMPTS:
            least = 2 * used * tokens / (peak(profile, model) * tp) * 1e9
            if times.step_ns([(0, tokens)], 0, 0) < least:
                found.append((gpu, name, dtype, tp, "prefill", tokens))
    return count, found


def test_no_pass_is_faster_than_the_data_sheet() -> None:
    # the last two: types and lengths at which a fit asked for more
    more = [("h100", "llama-3.1-70b", "fp8", 4), ("h20", "qwen3-32b", "fp8", 2)]
    count, found = faults([*BUILDS, *more])
    assert count > 20
    assert not found


@pytest.mark.parametrize("factor", [1.06, 2.0])
def test_the_bound_notices_a_kernel_above_the_data_sheet(
    factor: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(factors, "PEAK", factor)
    wild = (Factor("decode.kv_fp8.memory", ("hopper",), 2.5, None, 1, ()),)
    monkeypatch.setattr(factors, "factors", lambda: wild)
    assert faults([("h100", "llama-3.1-8b", "fp8", 1)])[1]
