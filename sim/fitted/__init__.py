"""The constants that were fitted to published measurements: factors on the defaults.

`fitted.json` beside this file has them; `python -m sim.fit` makes it (see docs/fidelity.md). A
factor counts for the runs that have all of its labels: the generation of the accelerator (hopper),
the accelerator (h200), the engine (vllm), the engine with its version (vllm@0.10.2), the model
(llama-3.1-70b). What no factor names keeps its default. A reached part of a peak is at most 1,
whatever its factors say: a kernel does not move more than the data sheet.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Any

from hicache.files import NUMBER, TEXT, Maybe, Only, Value, fit, number, parsed, unlike, whole

from ..engine_profiles import EngineProfile
from ..physics import RooflineConstants

FILE = Path(__file__).with_name("fitted.json")
FORMAT = 1
ENGINE = "engine."  # begins the names of an engine profile's constants
_LARGEST = 1000.0
_AGAIN = "make it again with python -m sim.fit"
PEAK = 1.0
# Those of an engine profile that a factor may change: its times of the host.
_TIMES = {one.name for one in fields(EngineProfile) if one.name.endswith("_ns")}
_CONSTANT = Value(
    f"a name of a constant; of an engine, one of {ENGINE}{', '.join(sorted(_TIMES))}",
    lambda name: (
        type(name) is str and (not name.startswith(ENGINE) or name.removeprefix(ENGINE) in _TIMES)
    ),
)


@dataclass(frozen=True, slots=True)
class Factor:
    """constant: a name, or a pattern for several. default: of the only constant that it changes;
    None if there are several. groups: of the rows that it was fitted to, of which there are
    `rows`."""

    constant: str
    where: tuple[str, ...]
    factor: float
    default: float | None
    rows: int
    groups: tuple[str, ...]


@lru_cache(maxsize=1)
def factors() -> tuple[Factor, ...]:
    """Those of this project."""
    return read(FILE)


def read(file: Path) -> tuple[Factor, ...]:
    """The factors in a file. Raises CallerError, in one line, for one that is not well-formed."""
    try:
        document = parsed(file.read_text())
    except (OSError, ValueError) as error:
        raise unlike(file.name, "JSON with fitted constants", str(error)[:100], _AGAIN) from None
    found = fit(document, {"format": whole(FORMAT, FORMAT), "groups": [TEXT]}, file.name, _AGAIN)
    groups = found["groups"]
    entry = Only(
        {
            "constant": _CONSTANT,
            "where": [TEXT],
            "factor": number(1 / _LARGEST, _LARGEST),
            "default": Maybe(NUMBER),
            "rows": whole(1),
            "groups": [whole(0, len(groups) - 1)],
        }
    )
    factors = tuple(
        Factor(
            one["constant"],
            tuple(one["where"]),
            one["factor"],
            one["default"],
            one["rows"],
            tuple(groups[number] for number in one["groups"]),
        )
        for one in fit(document, {"constants": [entry]}, file.name, _AGAIN)["constants"]
    )
    if len({(one.constant, one.where) for one in factors}) < len(factors):
        raise unlike(file.name, "each constant once for the same labels", "one twice", _AGAIN)
    return factors


def matches(pattern: str, constant: str) -> bool:
    return fnmatchcase(constant, pattern)


def total(constant: str, labels: frozenset[str], given: Iterable[Factor]) -> float:
    """The product of the factors of a constant for a run with these labels."""
    product = 1.0
    for one in given:
        if labels.issuperset(one.where) and matches(one.constant, constant):
            product *= one.factor
    return product


def roofline(
    constants: RooflineConstants,
    family: str,
    hardware: str,
    engine: EngineProfile | None,
    model: str,
    given: tuple[Factor, ...] | None = None,
) -> RooflineConstants:
    """The constants of a run. model: its name. given: None for those of this project."""
    labels = frozenset((family, hardware, known_model(model))) | _labels(engine)
    known = factors() if given is None else given
    changed = {}
    for name, value in constants.named().items():
        factor = total(name, labels, known)
        if factor != 1.0:
            changed[name] = min(value * factor, PEAK if is_part(name) else inf)
    return constants.replaced(changed)


def is_part(constant: str) -> bool:
    """Whether a constant is the reached part of a peak, which factors do not put above it."""
    return constant.rpartition(".")[2] in ("compute", "memory")


def engine(
    profile: EngineProfile,
    hardware: str,
    model: str,
    given: tuple[Factor, ...] | None = None,
) -> EngineProfile:
    """A profile with its fitted times of the host, on this accelerator and with this model."""
    known = factors() if given is None else given
    labels = _labels(profile) | {hardware, known_model(model)}
    changed: dict[str, Any] = {}
    for name in sorted({one.constant for one in known if one.constant.startswith(ENGINE)}):
        field = name.removeprefix(ENGINE)
        factor = total(name, labels, known)
        changed[field] = round(getattr(profile, field) * factor)
    return replace(profile, **changed)


def known_model(name: str) -> str:
    """The label of a model: its name, without the layers that somebody exchanged."""
    return name.partition(" as ")[0]


def _labels(engine: EngineProfile | None) -> frozenset[str]:
    return frozenset((engine.name, engine.label)) if engine else frozenset()
