"""What a match should find, by brute force over every cached page; shares nothing with the core.

The tree is read as a flat list of cached prefixes: which page of which prefix is there, for which
component, on which tier. Every page boundary of a key is then tried against the definition of each
component. Must not live here: a walk that stops early, a counter, or a call into the core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from hicache.core.config import Config
from hicache.core.types import Key
from hicache.core.view import CoreView
from invariants.fuzz.spell import spelled
from tests.configs import said

DEVICE_BIT, HOST_BIT = 1, 2
ANY = DEVICE_BIT | HOST_BIT
# held[i]: on which tiers page i is (for a state: the state at the boundary after page i).
Held = list[int]


class Expected(NamedTuple):
    """Pages: the boundary on device, the boundary on any tier, each component's own boundary."""

    device: int
    best: int
    depths: tuple[int, ...]


def expected(view: CoreView, key: Key, limit: int) -> Expected:
    config = view.config
    known, held = _residency(view, key, min(limit, key.pages))
    rules = [RULES[name] for name in config.components]

    def deepest(which: range, tiers: int) -> int:
        bounds = range(known, 0, -1)
        each = (n for n in bounds if all(rules[c](config, held[c], n, tiers) for c in which))
        return next(each, 0)

    every = range(len(rules))
    alone = tuple(deepest(range(c, c + 1), ANY) for c in every)
    return Expected(deepest(every, DEVICE_BIT), deepest(every, ANY), alone)


def _full(config: Config, held: Held, boundary: int, tiers: int) -> bool:
    return all(held[page] & tiers for page in range(boundary))


def _swa(config: Config, held: Held, boundary: int, tiers: int) -> bool:
    length = boundary * config.page_size
    first = max(0, length - said(config, "swa_window")) // config.page_size
    return all(held[page] & tiers for page in range(first, boundary))


def _mamba(config: Config, held: Held, boundary: int, tiers: int) -> bool:
    return bool(held[boundary - 1] & tiers)


RULES: dict[str, Callable[[Config, Held, int, int], bool]] = {
    "full": _full,
    "swa": _swa,
    "mamba": _mamba,
}


def _residency(view: CoreView, key: Key, limit: int) -> tuple[int, list[Held]]:
    """How many leading pages of the key any node spells, and where each component has them."""
    names = view.config.components
    held = [[0] * limit for _ in names]
    known = 0
    for node, namespace, path in spelled(view, key.stride):
        if namespace != key.namespace:
            continue
        shared = _common(path, key.raw, key.stride, limit)
        known = max(known, shared)
        start = node.end_page - len(node.key) // key.stride
        for tier, bit in ((0, DEVICE_BIT), (1, HOST_BIT)):
            for index, name in enumerate(names):
                if node.pages[tier][index] is None:
                    continue
                if name == "mamba":
                    if shared == node.end_page:
                        held[index][node.end_page - 1] |= bit
                else:
                    for page in range(start, min(node.end_page, shared)):
                        held[index][page] |= bit
    return known, held


def _common(one: bytes, other: bytes, stride: int, limit: int) -> int:
    for page in range(min(len(one) // stride, limit)):
        if one[page * stride : (page + 1) * stride] != other[page * stride : (page + 1) * stride]:
            return page
    return min(len(one) // stride, limit)
