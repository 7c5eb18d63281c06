"""Measured hardware profiles: JSON files with a hash of their content.

Lives here: sealing, reading and checking such a file. Does not measure (see the command line) and
does not use the figures (see profile).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from hicache.core.errors import CallerError
from hicache.files import (
    ANY,
    INTEGER,
    TEXT,
    Maybe,
    Named,
    Only,
    Value,
    fit,
    parsed,
    show,
    text_of,
    whole,
)
from hicache.memory.layouts import check

from .curve import Curve

VERSION = 2
MAX_BYTES = 16 << 20
_MOST_PERMILLE = 2000
_MOST_NS = 1 << 40  # 18 minutes
_MOST = 1 << 60  # every other number
_MOST_NAME = 100
_NAME = Value(
    f"a printable name of at most {_MOST_NAME} characters",
    lambda value: type(value) is str and value.isprintable() and len(value) <= _MOST_NAME,
)
_CURVE = [[whole(0, _MOST)]]
_GEOMETRY = {
    "page_size": INTEGER,
    "model": _NAME,
    "component": _NAME,
    "numa_node": Maybe(INTEGER),
    "layout": TEXT,
    "io_backend": TEXT,
    "shapes": [Only({"pool": _NAME, "layers": INTEGER, "pieces": INTEGER, "piece_bytes": INTEGER})],
}
_SECTIONS = {
    "hash": TEXT,
    "name": _NAME,
    "curves": {"d2h": _CURVE, "h2d": _CURVE},
    "geometry": _GEOMETRY,
    **dict.fromkeys(("machine", "made", "measured"), Named(ANY)),
}
_AGAIN = "measure again with hicache calibrate"


@dataclass(frozen=True, slots=True)
class Measured:
    """A checked file. path: path of the file. curves: time of a copy without other traffic, by
    direction.

    geometry: what was copied (model, component, page size, layout, backend), and the shape of each
    pool (layers, pieces of a page in a layer, bytes of a piece). made, machine: how and on which
    machine it was measured. figures: all measurements. hardware: fields of a `HardwareProfile`.
    """

    path: str
    name: str
    hash: str
    hardware: dict[str, int]
    curves: dict[str, Curve]
    geometry: dict[str, Any]
    machine: dict[str, Any]
    made: dict[str, Any]
    figures: dict[str, Any]


def is_path(name: str) -> bool:
    """Whether a profile's name is the path of a file. No profile's own name has a dot."""
    return "." in name or "/" in name


def seal(document: dict[str, Any]) -> dict[str, Any]:
    """Returns the document with its version and a hash of everything else."""
    content = {"hicache_profile": VERSION, **document}
    return {**content, "hash": _hash(content)}


def read(path: str, fields: Sequence[str]) -> Measured:
    """Reads the profile in a file. Its hardware section must have exactly these fields.

    Raises CallerError if the file cannot be read, has another version, or was changed after
    sealing.
    """
    text = text_of(path, "hardware profile", MAX_BYTES, _AGAIN)
    try:
        document = parsed(text)
    except ValueError:
        raise _another_kind(path, "text that is not JSON") from None
    if type(document) is not dict or "hicache_profile" not in document:
        raise _another_kind(path, "JSON without hicache_profile")
    version = document["hicache_profile"]
    if type(version) is not int or version != VERSION:
        raise CallerError(
            f"{path}: expected a profile of version {VERSION}, found {show(version)}; {_AGAIN}"
        )
    content = {key: value for key, value in document.items() if key != "hash"}
    try:
        hashed = _hash(content)
    except RecursionError:
        hashed = ""
    if not hashed or document.get("hash") != hashed:
        raise CallerError(
            f"{path}: expected the content that its hash was made from, found a profile that was "
            f"changed since; {_AGAIN}"
        )
    try:
        return _checked(path, document, fields)
    except (CallerError, TypeError, ValueError) as error:
        raise CallerError(
            f"{path}: expected a whole profile, found a fault in it ({error}); {_AGAIN}"
        ) from None


def _another_kind(path: str, found: str) -> CallerError:
    return CallerError(
        f"{path}: expected a hardware profile, found {found}; name a file that hicache calibrate "
        "wrote"
    )


def _figure(name: str) -> Value:
    if name.endswith("_permille"):
        return whole(1, _MOST_PERMILLE)
    least = 0 if name in ("copy_latency_ns", "step_overhead_ns") else 1
    return whole(least, _MOST_NS if name.endswith("_ns") else _MOST)


def _checked(path: str, document: dict[str, Any], fields: Sequence[str]) -> Measured:
    hardware = Only({name: _figure(name) for name in fields})
    found = fit(document, {**_SECTIONS, "hardware": hardware}, "")
    check(found["geometry"]["layout"], found["geometry"]["io_backend"])
    return Measured(
        path=path,
        name=found["name"],
        hash=found["hash"],
        hardware=found["hardware"],
        curves={
            direction: Curve(tuple((count, ns) for count, ns in points))
            for direction, points in found["curves"].items()
        },
        geometry=found["geometry"],
        machine=found["machine"],
        made=found["made"],
        figures=found["measured"],
    )


def _hash(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()
