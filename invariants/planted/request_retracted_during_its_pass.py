"""Planted: see TITLE."""

from __future__ import annotations

from hicache.core import admission

from ._under_pass import blind_to_its_pass
from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A request is retracted while a pass of it runs."
KILLS = ""
FAULTS = ("retract mid-prefill",)


def plant(patch: Patch) -> None:
    patch(admission, "retract", blind_to_its_pass(admission.retract))
