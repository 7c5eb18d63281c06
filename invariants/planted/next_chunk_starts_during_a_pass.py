"""Planted: see TITLE."""

from __future__ import annotations

from hicache.core import admission

from ._under_pass import blind_to_its_pass
from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "The next chunk of a prompt starts while a pass of the request runs."
KILLS = ""
FAULTS = ("chunk in flight",)


def plant(patch: Patch) -> None:
    patch(admission, "continue_prefill", blind_to_its_pass(admission.continue_prefill))
