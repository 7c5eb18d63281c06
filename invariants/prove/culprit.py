"""The page that made a pass deviate: each page that it read, against what it would hold.

The tokens before the pass are computed at once, into pages of their own. A page whose rows differ
from those by more than rounding is at fault. Only looked for once a pass has deviated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch

from hicache.core.actions import Prefill, StateSlots
from hicache.core.components.base import residency
from hicache.core.types import Pages, Tier
from hicache.memory.arena import Arena
from hicache.memory.pools import Pool
from hicache.transformers.describing import DTYPES, Described
from hicache.transformers.passes import Passes

from .subjects import Subject

FAR = 1e-2  # of the largest element of a page: rounding is far below


class Culprit(NamedTuple):
    """A page whose rows are wrong. at: its place in the request's table; -1 for a state."""

    component: str
    pool: str
    page: int
    at: int


class Read(NamedTuple):
    """What a pass has read: the tokens before it, and where they are. least: by positional
    component, the first token whose rows it reads."""

    tokens: Sequence[int]
    tables: Sequence[Pages]
    states: Sequence[StateSlots]
    least: Mapping[str, int]


def culprit(subject: Subject, described: Described, arena: Arena, read: Read) -> Culprit | None:
    """The first page that is wrong, or None."""
    size, count = described.page_size, len(read.tokens)
    if not count:
        return None
    pages = -(-count // size)
    counts = dict.fromkeys(described.components, pages + 1)
    none = dict.fromkeys(described.components, 0)
    own = Arena(described.model, size, {Tier.DEVICE: counts, Tier.HOST: none})
    table = np.arange(pages)
    positional = [name for name in described.components if residency(name) != "state"]
    states = tuple(slots._replace(source=-1, working=0, checkpoints=()) for slots in read.states)
    tables = (table,) * len(positional)
    action = Prefill(0, 0, 0, count, tables, (), False, states)
    passes = Passes(subject.models[0], described, own, subject.draft)
    passes.prefill(passes.sequence(), read.tokens, action)
    for name, found in zip(positional, read.tables, strict=True):
        for at in range(read.least[name] // size, pages):
            rows = min(size, count - at * size)
            for pool in _differing(arena, own, name, (int(found[at]), at), rows / size):
                return Culprit(name, pool, int(found[at]), at)
    for slots in read.states:
        for pool in _differing(arena, own, slots.component, (slots.source, 0), 1.0):
            return Culprit(slots.component, pool, slots.source, -1)
    return None


def _differing(
    arena: Arena, own: Arena, component: str, pages: tuple[int, int], part: float
) -> Iterator[str]:
    """The pools in which a page is not as computed. part: of its rows that are compared."""
    if pages[0] < 0:
        return
    pairs = zip(arena.pools(Tier.DEVICE, component), own.pools(Tier.DEVICE, component), strict=True)
    for there, computed in pairs:
        rows = int(there.plan.sizes.token * part)
        if not there.plan.page_bytes or not rows:
            continue
        found, expected = _rows(there, pages[0], rows), _rows(computed, pages[1], rows)
        if not bool((found - expected).abs().max() <= FAR * expected.abs().max()):
            yield there.plan.pool.name


def _rows(pool: Pool, page: int, rows: int) -> torch.Tensor:
    """The first rows of a page in all layers."""
    raw = np.ascontiguousarray(pool.view[:, page, :, :rows])
    return torch.from_numpy(raw).view(DTYPES[pool.plan.pool.dtype]).float()
