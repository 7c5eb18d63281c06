"""No pass is faster than the data sheet of its accelerator: what must be read, over the bandwidth,
and what must be multiplied, over the rate of its type."""

from __future__ import annotations

import itertools

from hicache import models
from sim import engine_profiles, hardware
from sim import fitted as factors
from sim.fitted import Factor
from sim.physics import defaults

ENGINES = [one.label for known in engine_profiles.ENGINES.values() for one in known]
# those that have factors of their own
PUBLISHED = sorted({*models.names()} & {label for one in factors.factors() for label in one.where})


def test_no_kernel_reaches_more_than_the_data_sheet() -> None:
    pairs = [*itertools.product(hardware.names(), ENGINES)][::3]
    for (name, engine), model in zip(pairs, itertools.cycle([*PUBLISHED, "yi-34b"])):
        profile = hardware.get(name)
        used = factors.engine(engine_profiles.get(engine), name, model)
        kernels = factors.roofline(profile, used, model).values()
        assert len(kernels) > 30
        most = max(max(one.compute, one.memory) for one in kernels)
        assert most <= 1.0, (name, engine, model)


def test_a_fit_that_wants_more_is_held_at_the_peak() -> None:
    wild = (Factor("decode.*.memory", ("hopper",), 3.0),)
    plain = engine_profiles.get("plain")
    held = factors.roofline(hardware.get("h100"), plain, "llama-3.1-8b", wild)
    assert held["decode.kv"].memory == held["decode.latent_fp8"].memory == 1.0
    assert held["decode.kv"].compute == defaults("hopper")["decode.kv"].compute
