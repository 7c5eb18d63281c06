"""Planted: see TITLE."""

from __future__ import annotations

from typing import Any

from hicache.core import admission
from hicache.core.storage.flights import let_go

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A request is admitted during its prefetch although the policy waits."
KILLS = "prefetch-wait"


def plant(patch: Patch) -> None:
    admit = admission.admit

    def at_once(state: Any, event: Any) -> None:
        request = state.requests.get(event.request)
        if request is not None and request.prefetch:
            let_go(state, request, "late")
        admit(state, event)

    patch(admission, "admit", at_once)
