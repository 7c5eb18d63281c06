"""Planted in `write_policies.write_through_selective`: see TITLE."""

from __future__ import annotations

from hicache.core.write_policies.write_through_selective import WriteThroughSelective

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "Under write_through_selective the first use begins the copy to host already."
KILLS = "backup-due"


def plant(patch: Patch) -> None:
    patch(WriteThroughSelective, "threshold", 1)
