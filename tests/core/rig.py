"""A small hand on the core for tests: keys from letters, replies on demand, nothing hidden.

`Rig` feeds events and keeps every outcome; flights stay open until the test answers them.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from hicache.core.actions import Backup, Load, Outcome, Prefill, Refused, Seated
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.events import (
    Admitted,
    Arrived,
    BackupDone,
    Continued,
    Event,
    Finished,
    LoadDone,
    PrefillDone,
)
from hicache.core.ledger import Pool
from hicache.core.types import Key, Tier

T = TypeVar("T")
PAGE = 4


def tokens(text: str) -> np.ndarray:
    """One page of PAGE tokens per letter."""
    return np.repeat(np.array([ord(letter) for letter in text], dtype=np.int64), PAGE)


def key(text: str, namespace: str = "") -> Key:
    return Key.from_tokens(tokens(text), PAGE, namespace)


class Rig:
    def __init__(self, device: int = 16, host: int = 0, **settings: object) -> None:
        config = Config(
            page_size=PAGE,
            device_pages=(device,),
            host_pages=(host,),
            **settings,  # type: ignore[arg-type]
        )
        self.core = Core(config)
        self.view = self.core.view
        self.log: list[Outcome] = []
        self.texts: dict[int, str] = {}

    def feed(self, event: Event) -> list[Outcome]:
        outcomes = self.core.handle(event)
        self.log += outcomes
        return outcomes

    def one(self, kind: type[T], outcomes: list[Outcome]) -> T:
        found = [outcome for outcome in outcomes if isinstance(outcome, kind)]
        assert len(found) == 1, f"expected one {kind.__name__} in {outcomes}"
        return found[0]

    def arrive(self, request: int, text: str, namespace: str = "", **fields: int) -> list[Outcome]:
        self.texts[request] = text
        length = fields.get("length", len(text) * PAGE)
        match_pages = fields.get("match_pages", len(text))
        return self.feed(Arrived(request, key(text, namespace), length, match_pages))

    def admit(self, request: int, chunk: int = 1 << 40) -> list[Outcome]:
        return self.feed(Admitted(request, chunk))

    def seat(self, request: int, text: str, chunk: int = 1 << 40) -> tuple[Seated, Prefill]:
        self.arrive(request, text)
        outcomes = self.admit(request, chunk)
        return self.one(Seated, outcomes), self.one(Prefill, outcomes)

    def refusal(self, request: int, text: str) -> Refused:
        self.arrive(request, text)
        return self.one(Refused, self.admit(request))

    def proceed(self, request: int, chunk: int) -> Prefill:
        return self.one(Prefill, self.feed(Continued(request, chunk)))

    def settle(self, outcomes: list[Outcome], ok: bool = True) -> list[Outcome]:
        """Answer every action in `outcomes`, and every action that this leads to."""
        seen: list[Outcome] = []
        todo = list(outcomes)
        for outcome in todo:
            seen.append(outcome)
            if isinstance(outcome, Prefill):
                todo += self.feed(PrefillDone(outcome.flight, ok))
            elif isinstance(outcome, Load):
                todo += self.feed(LoadDone(outcome.flight, ok))
            elif isinstance(outcome, Backup):
                todo += self.feed(BackupDone(outcome.flight, ok))
        return seen

    def finish(self, request: int, text: str | None = None) -> list[Outcome]:
        text = self.texts[request] if text is None else text
        return self.feed(Finished(request, key(text), len(text) * PAGE))

    def run(self, request: int, text: str) -> Seated:
        """A whole life, every reply at once."""
        self.arrive(request, text)
        outcomes = self.settle(self.admit(request))
        self.settle(self.finish(request))
        return self.one(Seated, outcomes)

    @property
    def device(self) -> Pool:
        return self.view.pool(Tier.DEVICE)

    @property
    def host(self) -> Pool:
        return self.view.pool(Tier.HOST)

    def residency(self) -> dict[str, str]:
        """Letters from the root to each node's end, and where that node is (D, H or DH)."""
        found: dict[str, str] = {}
        for node in self.view.nodes():
            letters, above = "", node
            while above.parent is not None:
                run = np.frombuffer(above.key, dtype="<i8")[::PAGE]
                letters = "".join(map(chr, run)) + letters
                above = above.parent
            sides = "DH"
            found[letters] = "".join(
                sides[tier] for tier in (0, 1) if node.pages[tier][0] is not None
            )
        return dict(sorted(found.items()))
