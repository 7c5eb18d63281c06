"""Planted: see TITLE."""

from __future__ import annotations

from hicache.core import admission

from ._under_pass import blind_to_its_pass
from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "A request is finished while a pass of it runs."
KILLS = ""
FAULTS = ("finish in flight",)


def plant(patch: Patch) -> None:
    patch(admission, "finish", blind_to_its_pass(admission.finish))
