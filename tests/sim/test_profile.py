"""Measured hardware profiles: what a file must say, and what is refused."""

from __future__ import annotations

import json
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sim import hardware
from sim.hardware import Curve

from .found_out import refused

_NOT_MEASURED = (
    *("name", "curves", "geometry", "fp8_flops_per_s", "fp4_flops_per_s", "ranks_link"),
    *("ranks_link_bytes_per_s", "link_both_permille"),
)
_NUMBERS = [name for name in asdict(hardware.get("h100")) if name not in _NOT_MEASURED]
_SHAPE = {"pool": "kv", "layers": 2, "pieces": 1, "piece_bytes": 64}


def _whole() -> dict[str, Any]:
    """A document with every section."""
    return {
        "name": "mine",
        "hardware": dict.fromkeys(_NUMBERS, 1000),
        "curves": {"d2h": [[1, 2], [3, 4]], "h2d": [[5, 6], [7, 8], [9, 10]]},
        "geometry": {
            "page_size": 64,
            "model": "tiny",
            "layout": "page_first",
            "io_backend": "kernel",
            "component": "full",
            "shapes": [dict(_SHAPE), dict(_SHAPE)],
        },
        "machine": {"cpu": "x"},
        "made": {"command": "c"},
        "measured": {"copies": 1},
    }


def _changed(path: str, value: Any) -> dict[str, Any]:
    """The document with another value at a path of keys, or without it if the value is `...`."""
    document: Any = _whole()
    *parts, last = (int(part) if part.isdigit() else part for part in path.split("."))
    inner = document
    for part in parts:
        inner = inner[part]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return dict(document)


_WRONG: tuple[tuple[str, Any], ...] = (
    *((name, ...) for name in ("name", "hardware", "curves", "geometry", "machine", "made")),
    ("measured", ...),
    ("hardware.hbm_bytes", ...),
    ("hardware.more", 1),
    ("hardware.flops_per_s", 1.5),
    ("geometry", []),
    ("machine", None),
    ("made", "x"),
    ("measured", 3),
)


def test_profiles_are_checked() -> None:
    with TemporaryDirectory(prefix="hicache-judged-") as folder:
        path = Path(folder, "mine.json")
        text = str(path)
        _reads_back(path)
        whole = f"{text}: a fault in this profile ("
        for where, value in _WRONG:
            path.write_text(json.dumps(hardware.seal(_changed(where, value))))
            refused(lambda: hardware.read(text), whole)
        sealed = hardware.seal(_whole())
        kind = f"{text}: no hardware profile"
        version = f"{text}: not a profile of version 2"
        changed = f"{text}: changed since it was sealed"
        for content, found in (
            ("{", kind),
            ("[" * 10**5, kind),
            ("[]", kind),
            ("{}", kind),
            (json.dumps(sealed | {"hicache_profile": 1}), version),
            (json.dumps(sealed | {"name": "yours"}), changed),
            (json.dumps(sealed | {"hash": None}), changed),
        ):
            path.write_text(content)
            refused(lambda: hardware.read(text), found)
        del sealed["hash"]
        path.write_text(json.dumps(sealed))
        refused(lambda: hardware.get(text), changed)
    assert [hardware.is_path(name) for name in ("h100", "a.b", "a/b")] == [False, True, True]


def _reads_back(path: Path) -> None:
    document = hardware.seal(_whole())
    content = {"hicache_profile": 2, **_whole()}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    assert document == content | {"hash": sha256(text.encode()).hexdigest()}
    path.write_text(json.dumps(document))
    found = hardware.read(str(path))
    curves = {"d2h": Curve(((1, 2), (3, 4))), "h2d": Curve(((5, 6), (7, 8), (9, 10)))}
    sections = (found.geometry, found.machine, found.made, found.figures)
    whole = _whole()
    assert sections == tuple(whole[name] for name in ("geometry", "machine", "made", "measured"))
    assert (found.path, found.name, found.hash) == (str(path), "mine", document["hash"])
    assert (found.hardware, found.curves) == (whole["hardware"], curves)
    profile = hardware.get(str(path))
    assert profile == hardware.of(found)
    assert profile.name == f"mine@{document['hash'][:12]}"
    assert (profile.curves, profile.geometry) == (curves, whole["geometry"])
    assert {name: getattr(profile, name) for name in _NUMBERS} == whole["hardware"]
