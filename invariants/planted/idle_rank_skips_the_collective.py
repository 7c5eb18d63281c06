"""Planted: see TITLE."""

from __future__ import annotations

from hicache.runtime.agreement import Agreement
from hicache.runtime.group import Turn

from .base import Patch

ROWS: tuple[str, ...] = ("D1",)
TITLE = "A rank without a finished transfer does not enter the collective at a poll."
KILLS = ""
RANKS = 2

_agree = Agreement.agree


def _with_news(self: Agreement) -> Turn[None]:
    for reply in self.executor.poll():
        self.end(reply)
    if any(self.leading()):
        yield from _agree(self)


def plant(patch: Patch) -> None:
    patch(Agreement, "agree", _with_news)
