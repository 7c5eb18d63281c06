"""The contract of a time model, tested on a small model."""

from __future__ import annotations

from collections.abc import Callable

from hicache.models import TINY, ModelDescription
from sim.engine_profiles.base import EngineProfile
from sim.hardware import profile as hardware
from sim.hardware.profile import HardwareProfile
from sim.times.base import Parallelism, TimeModel

Maker = Callable[[ModelDescription, HardwareProfile, Parallelism, EngineProfile | None], TimeModel]
Batch = tuple[tuple[tuple[int, int], ...], int, int]
_TRIED_WITH = (hardware.get("h100"), Parallelism(), None)
# Each batch has more work than the one before.
_GROWING: tuple[Batch, ...] = (
    ((), 0, 0),
    ((), 1, 1),
    ((), 1, 4000),
    ((), 16, 4000),
    ((), 16, 64_000),
    (((0, 1),), 16, 64_000),
    (((0, 2000),), 16, 64_000),
    (((0, 2000), (1000, 1001)), 16, 64_000),
    (((0, 2000), (0, 1001)), 16, 64_000),
)
_EMPTY: tuple[Batch, ...] = (((), 0, 0), (((7, 7),), 0, 0))


def wrong(
    make: Maker, model: ModelDescription = TINY, profile: HardwareProfile = _TRIED_WITH[0]
) -> str:
    """Returns the error of the models that `make` makes, as "expected ..., found ...", or ""."""
    one, other = (make(model, profile, *_TRIED_WITH[1:]) for _ in range(2))
    if one.layers != model.layers:
        return f"expected the {model.layers} layers of the model, found {one.layers}"
    if type(getattr(one, "label", None)) is not str or not one.label.isprintable():
        return "expected a label of one line, found none"
    for method in ("layer_ns", "overhead_ns", "step_ns"):
        if not callable(getattr(one, method, None)):
            return f"expected a method {method}, found none"
    before = -1
    for batch in (*_EMPTY, *_GROWING):
        step, again = one.step_ns(*batch), other.step_ns(*batch)
        layer, overhead = one.layer_ns(*batch), one.overhead_ns(*batch[:2])
        if any(type(value) is not int for value in (step, layer, overhead)):
            return f"expected whole nanoseconds, found {step!r}, {layer!r} and {overhead!r}"
        if step != one.layers * layer + overhead:
            return f"expected {one.layers} x {layer} + {overhead} ns of {batch}, found {step}"
        if step != again:
            return f"expected the same time of {batch} twice, found {step} and {again} ns"
        if batch in _EMPTY and step:
            return f"expected 0 ns where nothing is computed, found {step}"
        if step < before or min(layer, overhead) < 0:
            return f"expected at least {max(0, before)} ns of {batch}, found {step}"
        before = step
    return ""
