"""The constants that were fitted to published measurements: factors on the defaults.

`fitted.json` beside this file has them; `python -m sim.fit` makes it (see docs/times.md). A
factor counts for the runs that have all of its labels: the generation of the accelerator (hopper),
the accelerator (h200), the engine (vllm), the engine with its version (vllm@0.10.2), the model
(llama-3.1-70b). What no factor names keeps its default. A reached part of a peak is at most 1,
whatever its factors say: a kernel does not move more than the data sheet.
"""

from collections.abc import Iterable
from dataclasses import asdict, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.json import decode, encode

from ..engine_profiles import EngineProfile
from ..hardware import HardwareProfile
from ..physics import Kernel, defaults, family

FILE = Path(__file__).with_name("fitted.json")
ENGINE = "engine."  # begins the names of an engine profile's constants, which are times of its host
PEAK = 1.0


class Factor(Struct, frozen=True):
    """constant: a name, or a pattern for several. where: labels."""

    constant: str
    where: tuple[str, ...]
    factor: float


class _File(Struct):
    constants: tuple[Factor, ...]


@lru_cache(maxsize=1)
def factors() -> tuple[Factor, ...]:
    """Those of this project."""
    return read(FILE)


def read(file: Path) -> tuple[Factor, ...]:
    """The factors in a file of the script."""
    return decode(file.read_bytes(), type=_File).constants


def text_of(factors: Iterable[Factor]) -> str:
    """The file, one constant a line."""
    lines = [encode(factor).decode() for factor in factors]
    return '{"constants": [\n' + ",\n".join(lines) + "\n]}\n"


def total(constant: str, labels: frozenset[str], factors: Iterable[Factor]) -> float:
    """The product of the factors of a constant for a run with these labels."""
    product = 1.0
    for item in factors:
        if labels.issuperset(item.where) and fnmatchcase(constant, item.constant):
            product *= item.factor
    return product


def roofline(
    hardware: HardwareProfile,
    engine: EngineProfile,
    model: str,
    chosen: tuple[Factor, ...] | None = None,
) -> dict[str, Kernel]:
    """The constants of a run. model: its name. chosen: None for those of this project."""
    generation = family(hardware)
    labels = frozenset((generation, hardware.name, known_model(model), engine.name, engine.label))
    return _of(generation, labels, factors() if chosen is None else chosen)


@lru_cache(maxsize=64)
def _of(generation: str, labels: frozenset[str], chosen: tuple[Factor, ...]) -> dict[str, Kernel]:
    known = [item for item in chosen if labels.issuperset(item.where)]
    result = {}
    for kind, kernel in defaults(generation).items():
        values = asdict(kernel)
        for name, value in values.items():
            factor = total(f"{kind}.{name}", labels, known)
            if factor != 1.0:
                values[name] = min(value * factor, PEAK if is_part(name) else inf)
        result[kind] = Kernel(**values)
    return result


def is_part(constant: str) -> bool:
    """Whether a constant is the reached part of a peak, which factors do not put above it."""
    return constant.rpartition(".")[2] in ("compute", "memory")


def engine(
    profile: EngineProfile, hardware: str, model: str, value: tuple[Factor, ...] | None = None
) -> EngineProfile:
    """A profile with its fitted times of the host, on this accelerator and with this model."""
    known = factors() if value is None else value
    labels = frozenset((hardware, known_model(model), profile.name, profile.label))
    changed: dict[str, Any] = {}
    for name in sorted({item.constant for item in known if item.constant.startswith(ENGINE)}):
        field = name.removeprefix(ENGINE)
        changed[field] = round(getattr(profile, field) * total(name, labels, known))
    return replace(profile, **changed)


def known_model(name: str) -> str:
    """The label of a model: its name, without the layers that somebody exchanged."""
    return name.partition(" as ")[0]
