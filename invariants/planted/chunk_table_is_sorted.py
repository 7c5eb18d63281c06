"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

import numpy as np

from hicache.core import admission
from hicache.core.actions import Cached
from hicache.core.types import frozen

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = (
    "The table in the answer to a chunk that is not the last names its pages in ascending order."
)
KILLS = "bytes"
COMPONENTS = ("full",)
_prefill_done = admission.prefill_done


def _sorted(state: Any, event: Any) -> None:
    _prefill_done(state, event)
    for at, item in enumerate(state.out):
        request = state.requests.get(getattr(item, "request", -1))
        if (
            type(item) is Cached
            and request is not None
            and request.computed_tokens < request.length
        ):
            state.out[at] = item._replace(
                tables=(frozen(np.sort(item.tables[0])), *item.tables[1:])
            )


def plant(patch: Patch) -> None:
    patch(admission, "prefill_done", _sorted)
