"""The constants that were fitted to published measurements: factors on the defaults.

`fitted.json` beside this file has them; `hicache fidelity --fit` makes it (see docs/fidelity.md).
A factor counts for the runs that have all of its labels: the generation of the accelerator
(hopper), the accelerator (h200), the engine (vllm), the engine with its version (vllm@0.10.2).
What no factor names keeps its default. A reached part of a peak is at most 1, whatever its factors
say: a kernel does not move more than the data sheet (see `beyond`). Does not know what else the
constants mean (see sim/physics and sim/engine_profiles).
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from fnmatch import fnmatchcase
from functools import lru_cache
from math import inf, isfinite
from pathlib import Path
from typing import Any

from hicache.core.errors import CallerError

from ..engine_profiles.base import EngineProfile
from ..physics.constants import RooflineConstants, defaults, families

FILE = Path(__file__).with_name("fitted.json")
FORMAT = 1
ENGINE = "engine."  # begins the names of an engine profile's constants
_KEYS = {"constant", "where", "factor", "default", "rows", "groups"}
_LARGEST = 1000.0
_PEAK = 1.0
# Those of an engine profile that a factor may change: its times of the host.
_TIMES = {one.name for one in fields(EngineProfile) if one.name.endswith("_ns")}


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
        document = json.loads(file.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise _wrong(file, "JSON with fitted constants", error) from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise _wrong(file, f"format {FORMAT}", document if document is None else "another one")
    groups = document.get("groups")
    entries = document.get("constants")
    if not _are_texts(groups) or not isinstance(entries, list):
        raise _wrong(file, "groups, which are texts, and constants", "other ones")
    found = tuple(_factor(file, entry, groups) for entry in entries)
    if len({(one.constant, one.where) for one in found}) < len(found):
        raise _wrong(file, "each constant once for the same labels", "one twice")
    return found


def _factor(file: Path, entry: Any, groups: Any) -> Factor:
    if not isinstance(entry, dict) or set(entry) != _KEYS:
        raise _wrong(file, f"a constant with {', '.join(sorted(_KEYS))}", entry)
    factor, rows, default = entry["factor"], entry["rows"], entry["default"]
    name = entry["constant"]
    if not isinstance(name, str):
        raise _wrong(file, "a name of a constant", name)
    if name.startswith(ENGINE) and name.removeprefix(ENGINE) not in _TIMES:
        raise _wrong(file, f"one of {ENGINE}{', '.join(sorted(_TIMES))}", name)
    if not _are_texts(entry["where"]):
        raise _wrong(file, f"{entry['constant']}: a list of labels", entry["where"])
    if not isinstance(factor, float) or not 1 / _LARGEST <= factor <= _LARGEST:
        raise _wrong(file, f"{entry['constant']}: a factor of 0.001 to 1000", factor)
    if type(rows) is not int or rows < 1:
        raise _wrong(file, f"{entry['constant']}: at least one row", rows)
    if default is not None and not (isinstance(default, int | float) and isfinite(default)):
        raise _wrong(file, f"{entry['constant']}: a default", default)
    numbers = entry["groups"]
    if not isinstance(numbers, list) or not all(
        type(one) is int and 0 <= one < len(groups) for one in numbers
    ):
        raise _wrong(file, f"{entry['constant']}: numbers of groups", numbers)
    of = tuple(groups[number] for number in numbers)
    return Factor(entry["constant"], tuple(entry["where"]), factor, default, rows, of)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _wrong(file: Path, expected: str, found: object) -> CallerError:
    text = str(found)[:100]
    return CallerError(
        f"{file.name}: expected {expected}, found {text}; make it again with hicache fidelity --fit"
    )


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
    given: tuple[Factor, ...] | None = None,
) -> RooflineConstants:
    """The constants of a run. given: None for those of this project."""
    labels = frozenset((family, hardware)) | _labels(engine)
    known = factors() if given is None else given
    changed = {}
    for name, value in constants.named().items():
        factor = total(name, labels, known)
        if factor != 1.0:
            changed[name] = min(value * factor, _PEAK if _is_part(name) else inf)
    return constants.replaced(changed)


def beyond(given: Iterable[Factor]) -> list[tuple[str, str, float]]:
    """Constants that factors put above the peak of the data sheet, at which they are held: their
    name, the labels of the runs, and the part of the peak that the fit asked for."""
    known, found = tuple(given), set[tuple[str, str, float]]()
    for family in families():
        here = [one for one in known if not ({*families()} - {family}) & {*one.where}]
        for name, value in defaults(family).named().items():
            for one in here:
                labels = frozenset((family, *one.where))
                part = value * total(name, labels, known)
                if _is_part(name) and matches(one.constant, name) and part > _PEAK:
                    found.add((name, ", ".join(sorted(labels)), round(part, 4)))
    return sorted(found)


def _is_part(constant: str) -> bool:
    return constant.rpartition(".")[2] in ("compute", "memory")


def engine(
    profile: EngineProfile, hardware: str = "", given: tuple[Factor, ...] | None = None
) -> EngineProfile:
    """A profile with its fitted times of the host, on this accelerator."""
    known = factors() if given is None else given
    labels = _labels(profile) | {hardware}
    changed: dict[str, Any] = {}
    for name in sorted({one.constant for one in known if one.constant.startswith(ENGINE)}):
        field = name.removeprefix(ENGINE)
        factor = total(name, labels, known)
        changed[field] = round(getattr(profile, field) * factor)
    return replace(profile, **changed)


def _labels(engine: EngineProfile | None) -> frozenset[str]:
    return frozenset((engine.name, engine.label)) if engine else frozenset()
