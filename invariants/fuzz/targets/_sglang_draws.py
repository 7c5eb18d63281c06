"""Draws configurations of the peer SGLang, and makes them simpler."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from invariants.fuzz.draws import Draws
from invariants.fuzz.target import Config

COMPONENTS = ("full", "full+swa", "full+mamba", "full+swa+mamba")
STORES = ("none", "pages", "zero_copy")
PREFETCHES = ("best_effort", "wait_complete", "timeout")
POLICIES = ("write_through", "write_through_selective", "write_back")
ORDERS = ("lru", "lfu", "fifo", "slru", "mru", "filo")

TAKES: dict[str, tuple[Any, ...]] = {
    "core": ("rust", "python"),
    "components": COMPONENTS,
    "policy": POLICIES,
    "order": ORDERS,
    "page": (),
    "pages": (),
    "rows": (),  # this and the next one are not drawn
    "interval": (),
    "swa_pages": (),
    "mamba": (),
    "window": (),
    "host": (),
    "host_swa": (),
    "host_mamba": (),
    "load_from": (),
    "states": (),
    "events": (True, False),
    "bigram": (True, False),
    "extra": (True, False),
    "storage": (*STORES, "hicache", "hicache_pages"),  # these two are not drawn
    "prefetch": PREFETCHES,
    "prefetch_from": (),
    "prefix_keys": (True, False),
}


def drawn(draws: Draws, fixed: Config) -> Config:
    """Small pools, so that slots are short. The fixed values stay as they are."""
    parts = str(fixed.get("components") or draws.one((*COMPONENTS, *COMPONENTS[:3])))
    states = "mamba" in parts
    extra = bool(fixed.get("extra", states and draws.chance(60)))
    page = 1 if states and not extra else draws.one((1, 1, 2, 4))
    stores = fixed.get("storage", "none") != "none"
    host = draws.between(4, 50) if stores or draws.chance(75) else 0
    found = {
        "core": draws.one(("rust", "python")),
        "components": parts,
        "page": page,
        "pages": draws.between(8, 40),
        "swa_pages": draws.between(8, 40) if "swa" in parts else 0,
        "mamba": draws.between(3, 12) + 8 * extra if states else 0,
        "window": draws.one((2, 3, 4, 8)) if "swa" in parts else 0,
        "host": host,
        "host_swa": draws.between(2, 40) if host and "swa" in parts else 0,
        "host_mamba": draws.between(1, 10) if host and states else 0,
        "policy": draws.one(POLICIES),
        "order": draws.one((*ORDERS, "lru", "lru")),
        "load_from": draws.one((0, 1, 1, 3)),
        "states": draws.one((-1, -1, 1, 2)) if states else -1,
        "events": draws.chance(20),
        "bigram": not states and draws.chance(25),
        "extra": extra,
        "storage": draws.one(STORES) if host and draws.chance(40) else "none",
        "prefetch": draws.one(PREFETCHES),
        "prefetch_from": draws.between(1, 2 * page),
        "prefix_keys": draws.chance(30),
    }
    return found | fixed


PLAIN: Config = {
    "events": False,
    "bigram": False,
    "policy": "write_through",
    "order": "lru",
    "states": -1,
    "load_from": 1,
    "host": 0,
    "page": 1,
    "pages": 40,
    "swa_pages": 40,
    "mamba": 12,
    "host_swa": 40,
    "host_mamba": 10,
    "storage": "none",
    "prefetch": "wait_complete",
    "prefetch_from": 1,
    "prefix_keys": False,
}


def simpler(config: Config) -> Sequence[Config]:
    """One step simpler: fewer parts, or a value that plays no role."""
    found = []
    parts = str(config["components"]).split("+")
    for part in parts[1:]:
        left = "+".join(one for one in parts if one != part)
        found.append(config | {"components": left})
    for key, value in PLAIN.items():
        if config.get(key) and config[key] != value:
            found.append(config | {key: value})
    return found
