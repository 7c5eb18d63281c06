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
from hicache.files import once, show, text_of
from hicache.memory.layouts import check

from .curve import Curve

VERSION = 2
MAX_BYTES = 16 << 20
_MOST_PERMILLE = 2000
_GEOMETRY = {
    "page_size": int,
    "model": str,
    "layout": str,
    "io_backend": str,
    "component": str,
    "shapes": list,
}
_SHAPE = {"pool": str, "layers": int, "pieces": int, "piece_bytes": int}
_SECTIONS = ("curves", "geometry", "hardware", "hash", "made", "machine", "measured", "name")
_DIRECTIONS = ("d2h", "h2d")
_MOST_NS = 1 << 40  # 18 minutes
_MOST = 1 << 60  # every other number
_MOST_NAME = 100
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
        document = json.loads(text, object_pairs_hook=once)
    except (ValueError, RecursionError):
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
    except (CallerError, KeyError, TypeError, ValueError, AttributeError) as error:
        raise CallerError(
            f"{path}: expected a whole profile, found a fault in it ({error}); {_AGAIN}"
        ) from None


def _another_kind(path: str, found: str) -> CallerError:
    return CallerError(
        f"{path}: expected a hardware profile, found {found}; name a file that hicache calibrate "
        "wrote"
    )


def _checked(path: str, document: dict[str, Any], fields: Sequence[str]) -> Measured:
    missing = [name for name in _SECTIONS if name not in document]
    if missing:
        raise ValueError(f"no {', '.join(missing)}")
    hardware = document["hardware"]
    for fault, others in (
        ("lacks", [name for name in fields if name not in hardware]),
        ("should not have", [name for name in hardware if name not in fields]),
    ):
        if others:
            raise ValueError(f"hardware {fault} {show(', '.join(others))}")
    for name, value in hardware.items():
        if type(value) is not int or not 0 <= value <= (_MOST_NS if name[-3:] == "_ns" else _MOST):
            raise ValueError(f"{name} is {show(value)}")
        if name.endswith("_permille") and value > _MOST_PERMILLE:
            raise ValueError(f"{name} is {show(value)}")
        if not value and name not in ("copy_latency_ns", "step_overhead_ns"):
            raise ValueError(f"{name} is 0")
    curves = {}
    for direction in _DIRECTIONS:
        points = document["curves"][direction]
        if any(type(value) is not int or value > _MOST for point in points for value in point):
            raise ValueError(f"a curve of {direction} that is not of integers up to {_MOST}")
        curves[direction] = Curve(tuple((count, ns) for count, ns in points))
    for section in ("geometry", "machine", "made", "measured"):
        if type(document[section]) is not dict:
            raise ValueError(f"{section} is no object")
    _check_geometry(document["geometry"])
    name = document["name"]
    if type(name) is not str or not name.isprintable() or len(name) > _MOST_NAME:
        raise ValueError(f"name is {show(name)}")
    return Measured(
        path,
        name,
        document["hash"],
        dict(hardware),
        curves,
        document["geometry"],
        document["machine"],
        document["made"],
        document["measured"],
    )


def _check_geometry(geometry: dict[str, Any]) -> None:
    for name, kind in _GEOMETRY.items():
        if type(geometry.get(name)) is not kind:
            raise ValueError(f"geometry.{name} is {show(geometry.get(name))}")
    if type(geometry.get("numa_node")) not in (int, type(None)):
        raise ValueError(f"geometry.numa_node is {show(geometry['numa_node'])}")
    names = [geometry["model"], geometry["component"]]
    for shape in geometry["shapes"]:
        if {key: type(value) for key, value in shape.items()} != _SHAPE:
            raise ValueError("geometry.shapes is no list of shapes")
        names.append(shape["pool"])
    check(geometry["layout"], geometry["io_backend"])
    for name in names:
        if not name.isprintable() or len(name) > _MOST_NAME:
            raise ValueError(f"geometry has the name {show(name)}")


def _hash(content: dict[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return sha256(text.encode()).hexdigest()
