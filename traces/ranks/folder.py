"""The folder that the processes of one replay share: what they are told, and what they leave.

    orders      what to replay (`Orders`), the same for all ranks
    meet        where the ranks meet (hicache/runtime/gloo_group)
    said-RANK   where a rank is (`Said`), written over before each agreement
    ended-RANK  how it ended, as JSON: its figures, or the error that ended it
    store-RANK  its store, unless all have one elsewhere

Does not start processes (see parent) or replay anything (see child).
"""

from __future__ import annotations

import json
import os
import pickle
from pathlib import Path
from typing import Any, NamedTuple

from ..outside import entries
from ..replaying.options import ReplayOptions

REFUSED = 2  # the exit code of an error of the caller
_WIDTH = 128


class Orders(NamedTuple):
    """outside: policies of the user. ranks: of all stages. wait_s: the longest that one waits.
    store: of all ranks; without it each has a new one."""

    options: ReplayOptions
    outside: entries.Outside
    ranks: int
    wait_s: float
    store: str | None = None


class Said(NamedTuple):
    """Where a rank is. decisions: the digest of those of all events so far."""

    exchange: int = 0
    events: int = 0
    decisions: str = ""

    def __str__(self) -> str:
        if not self.events:
            return "before its first decision"
        return f"at exchange {self.exchange}, {self.events} events, decisions {self.decisions}"


class Folder:
    def __init__(self, path: str) -> None:
        self.path = Path(path)

    @property
    def address(self) -> str:
        """Where the ranks meet."""
        return f"file://{self.path / 'meet'}"

    def store(self, rank: int) -> str:
        """The address of a rank's store."""
        return f"file:{self.path / f'store-{rank}'}"

    def order(self, orders: Orders) -> None:
        (self.path / "orders").write_bytes(pickle.dumps(orders))

    @property
    def orders(self) -> Orders:
        found: Orders = pickle.loads((self.path / "orders").read_bytes())  # noqa: S301 - its own
        return found

    def telling(self, rank: int) -> int:
        """A file for `tell`."""
        return os.open(self.path / f"said-{rank}", os.O_WRONLY | os.O_CREAT, 0o600)

    def said(self, rank: int) -> Said:
        """The last that a rank said."""
        try:
            return Said(*json.loads((self.path / f"said-{rank}").read_bytes()))
        except (OSError, ValueError):  # it has not begun
            return Said()

    def end(self, rank: int, found: dict[str, Any]) -> None:
        """Leave it whole or not at all."""
        draft = self.path / f"draft-{rank}"
        draft.write_text(json.dumps(found), encoding="utf-8")
        draft.replace(self.path / f"ended-{rank}")

    def ended(self, rank: int) -> dict[str, Any] | None:
        """How a rank ended; None if it did not say so."""
        try:
            found: dict[str, Any] = json.loads((self.path / f"ended-{rank}").read_bytes())
        except OSError:
            return None
        return found


def tell(file: int, said: Said) -> None:
    """One write, so nobody reads half of it."""
    os.pwrite(file, json.dumps(said).ljust(_WIDTH).encode(), 0)
