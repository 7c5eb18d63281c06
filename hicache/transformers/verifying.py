"""Whether a model may be cut at a page: run on random tokens, whole and in two parts through pages.

This finds models whose tokens attend to later ones, and those that keep something beside their
cache. It writes to the first pages of the pools that it is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from hicache.core.actions import Prefill, StateSlots
from hicache.memory.table import PoolTable

from .describing import Described
from .errors import UnsupportedModelError
from .layers.base import STATE
from .passes import Passes

# The difference of logits that rounding explains: root mean squares, in standard deviations.
# Single positions may differ more, where a model selects experts or tokens by scores that are
# nearly equal.
_EXACT, _ROUGH = 1e-2, 0.2
PAGES = 2  # of each component


def verify(models: Sequence[Any], described: Described, table: PoolTable[Any]) -> None:
    """Raises UnsupportedModelError if a model gives other logits over pages. models: with the
    draft, if there is one."""
    size = described.page_size
    passes = Passes(models[0], described, table, *models[1:])
    sequence = passes.sequence()
    draws = torch.Generator().manual_seed(1)
    tokens = torch.randint(described.model.vocabulary, (2 * size,), generator=draws)
    parts = []
    for first in (0, size):
        action = _pass(described, first)
        parts.append(passes.prefill(sequence, tokens.tolist(), action))
    for at, model in enumerate(models):
        with torch.inference_mode():
            logits = model(tokens[None].to(model.device), use_cache=False).logits[0]
        whole = logits.float()
        cut = torch.cat([part[at].float() for part in parts])
        apart = (cut - whole).square().mean(dim=1).sqrt()
        worst = apart.reshape(2, size).median(dim=1).values.max()
        exact = model.dtype == logits.dtype == torch.float32
        limit = (_EXACT if exact else _ROUGH) * whole.std()
        if not bool(worst <= limit) and bool(whole.isfinite().all()):
            raise UnsupportedModelError(
                f"model {type(model).__name__}: expected the same logits from a prompt that is "
                f"computed in two parts, found a difference of {float(worst):.2g} where rounding "
                f"explains {float(limit):.2g}; its tokens attend to later ones, or it keeps more "
                "than its cache"
            )


def _pass(described: Described, first: int) -> Prefill:
    """A pass over one page, on the first pages of the pools."""
    size = described.page_size
    tables = tuple(
        np.arange(PAGES, dtype=np.int64) for name in described.components if name != STATE
    )
    states: tuple[StateSlots, ...] = ()
    if STATE in described.components:
        source, stored = (1, ()) if first else (-1, ((size, 1),))
        states = (StateSlots(STATE, source, 0, (-1, -1), size, stored),)
    return Prefill(0, 0, first, first + size, tables, (), first > 0, states)
