"""The constants that were fitted to published measurements: factors on the defaults.

`fitted.json` beside this file has them; `python -m sim.fit` makes it (see docs/fidelity.md). A
factor counts for the runs that have all of its labels: the generation of the accelerator (hopper),
the accelerator (h200), the engine (vllm), the engine with its version (vllm@0.10.2), the model
(llama-3.1-70b). What no factor names keeps its default. A reached part of a peak is at most 1,
whatever its factors say: a kernel does not move more than the data sheet.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Any

from ..engine_profiles import EngineProfile
from ..physics import RooflineConstants

FILE = Path(__file__).with_name("fitted.json")
FORMAT = 1
ENGINE = "engine."  # begins the names of an engine profile's constants, which are times of its host
PEAK = 1.0


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
    """The factors in a file of the script."""
    document = json.loads(file.read_text())
    return tuple(
        Factor(
            **one
            | {
                "where": tuple(one["where"]),
                "groups": tuple(document["groups"][number] for number in one["groups"]),
            }
        )
        for one in document["constants"]
    )


def total(constant: str, labels: frozenset[str], given: Iterable[Factor]) -> float:
    """The product of the factors of a constant for a run with these labels."""
    product = 1.0
    for one in given:
        if labels.issuperset(one.where) and fnmatchcase(constant, one.constant):
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
    profile: EngineProfile, hardware: str, model: str, given: tuple[Factor, ...] | None = None
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
