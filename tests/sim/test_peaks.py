"""No pass is faster than the data sheet of its accelerator: what must be read, over the bandwidth,
and what must be multiplied, over the rate of its type."""

from __future__ import annotations

import itertools

from hicache import models
from sim import engine_profiles, hardware
from sim import fitted as factors
from sim.fitted import Factor
from sim.physics import defaults, family

ENGINES = [
    f"{name}@{version}"
    for name in engine_profiles.names()
    for version in engine_profiles.versions(name)
]
# those that have factors of their own
PUBLISHED = sorted({*models.names()} & {label for one in factors.factors() for label in one.where})


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
