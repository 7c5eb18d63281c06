"""A small player on the core for tests: keys from letters, replies on demand, nothing hidden.

`Rig` feeds events and keeps every outcome; transfers stay open until the test answers them. A
letter is a page of PAGE tokens. `Rig()` has one component; `hybrid("full,swa", ...)` has several,
each with its own sizes.
"""

from typing import TypeVar

import numpy as np

from hicache.core.actions import (
    Admitted,
    Backup,
    Delete,
    Evicted,
    Fetch,
    Load,
    Lookup,
    Outcome,
    Prefill,
    Store,
)
from hicache.core.core import Core
from hicache.core.events import (
    AdmitWanted,
    Arrived,
    BackupDone,
    ContinueWanted,
    DeleteDone,
    Event,
    EvictWanted,
    FetchDone,
    Finished,
    LoadDone,
    LookupDone,
    PrefillDone,
    StoreDone,
)
from hicache.core.ledger import Pool
from hicache.core.types import Key, PageState, Tier
from tests.tiny import configured

T = TypeVar("T")
PAGE = 4


def tokens(text: str) -> np.ndarray:
    """One page of PAGE tokens per letter."""
    return np.repeat(np.array([ord(letter) for letter in text], dtype=np.int64), PAGE)


def key(text: str, namespace: str = "") -> Key:
    return Key.from_tokens(tokens(text), PAGE, namespace)


Sizes = int | tuple[int, ...]


class Rig:
    def __init__(self, device: Sizes = 16, host: Sizes = 0, **settings: object) -> None:
        config = configured(
            page_size=PAGE,
            device_pages=device if isinstance(device, tuple) else (device,),
            host_pages=host if isinstance(host, tuple) else (host,),
            **settings,  # type: ignore[arg-type]
        )
        self.names = config.components
        self.core = Core(config)
        self.view = self.core.view
        self.log: list[Outcome] = []
        self.texts: dict[int, str] = {}
        self.stored: set[tuple[str, bytes]] = set()

    def feed(self, event: Event) -> list[Outcome]:
        outcomes = self.core.handle(event)
        self.log += outcomes
        return outcomes

    def single(self, kind: type[T], outcomes: list[Outcome]) -> T:
        result = [outcome for outcome in outcomes if isinstance(outcome, kind)]
        assert len(result) == 1, f"expected one {kind.__name__} in {outcomes}"
        return result[0]

    def arrive(self, request: int, text: str, namespace: str = "", **fields: int) -> list[Outcome]:
        self.texts[request] = text
        length = fields.get("length", len(text) * PAGE)
        match_pages = fields.get("match_pages", len(text))
        return self.feed(Arrived(request, key(text, namespace), length, match_pages))

    def admit(self, request: int, chunk: int = 1 << 40) -> list[Outcome]:
        return self.feed(AdmitWanted(request, chunk))

    def begin(self, request: int, text: str, chunk: int = 1 << 40) -> tuple[Admitted, Prefill]:
        self.arrive(request, text)
        outcomes = self.admit(request, chunk)
        return self.single(Admitted, outcomes), self.single(Prefill, outcomes)

    def continue_prefill(self, request: int, chunk: int) -> Prefill:
        return self.single(Prefill, self.feed(ContinueWanted(request, chunk)))

    def settle(self, outcomes: list[Outcome], ok: bool = True) -> list[Outcome]:
        """Answer every action in `outcomes`, and every action that this leads to. A lookup finds
        what `stored` has, and a fetch brings everything."""
        seen: list[Outcome] = []
        todo = list(outcomes)
        for outcome in todo:
            seen.append(outcome)
            if isinstance(outcome, Prefill):
                todo += self.feed(PrefillDone(outcome.transfer, ok))
            elif isinstance(outcome, Load):
                todo += self.feed(LoadDone(outcome.transfer, ok))
            elif isinstance(outcome, Backup):
                todo += self.feed(BackupDone(outcome.transfer, ok))
            else:
                todo += self.answer(outcome, ok)
        return seen

    def answer(self, outcome: Outcome, ok: bool = True) -> list[Outcome]:
        """The reply of a whole storage, or of one that fails, to an action for it."""
        if isinstance(outcome, Lookup):
            return self.feed(LookupDone(outcome.transfer, self.result_of(outcome) if ok else 0))
        if isinstance(outcome, Fetch):
            return self.feed(FetchDone(outcome.transfer, outcome.pages if ok else 0))
        if isinstance(outcome, Delete):
            self.stored.clear()
            return self.feed(DeleteDone(outcome.transfer, ok))
        if isinstance(outcome, Store):
            pages = [(piece.component, item) for piece in outcome.pieces for item in piece.digests]
            self.stored.update(pages if ok else ())
            return self.feed(StoreDone(outcome.transfer, len(pages) if ok else 0))
        return []

    def lookup(self, request: int, text: str) -> Lookup:
        """A request arrives, and a lookup begins for it."""
        return self.single(Lookup, self.arrive(request, text))

    def fetch(self, lookup: Lookup, pages: int | None = None) -> Fetch:
        """The lookup finds so many pages, or what `stored` has, and a fetch begins."""
        pages = self.result_of(lookup) if pages is None else pages
        return self.single(Fetch, self.feed(LookupDone(lookup.transfer, pages)))

    def result_of(self, lookup: Lookup) -> int:
        """How many pages a storage with `stored` says that it has."""

        def has(name: str, trailing: int, pages: int) -> bool:
            start = lookup.known_pages if name == "full" else 0
            start = max(0, pages - trailing) if trailing else start
            return all((name, digest) in self.stored for digest in lookup.digests[start:pages])

        pairs = list(zip(self.names, lookup.trailing_pages, strict=True))
        boundaries = range(len(lookup.digests), 0, -1)
        return next((n for n in boundaries if all(has(*pair, n) for pair in pairs)), 0)

    def compute(self, request: int, chunk: int = 1 << 40) -> list[Prefill]:
        """The rest of an admitted request's prompt, chunk by chunk, every reply at once."""
        passes: list[Prefill] = []
        while self.view.requests[request].computed_tokens < self.view.requests[request].length:
            passes.append(self.continue_prefill(request, chunk))
            self.settle([passes[-1]])
        return passes

    def finish(self, request: int, text: str | None = None, spare: int = 0) -> list[Outcome]:
        """It ends; the last `spare` tokens have no KV."""
        text = self.texts[request] if text is None else text
        length = len(text) * PAGE - spare
        return self.feed(Finished(request, key(text).first(length // PAGE), length))

    def run(self, request: int, text: str, chunk: int = 1 << 40, **fields: int) -> Admitted:
        """A whole life, every reply at once."""
        self.settle(self.arrive(request, text, **fields))
        outcomes = self.settle(self.admit(request, chunk))
        self.compute(request, chunk)
        self.settle(self.finish(request))
        return self.single(Admitted, outcomes)

    def evict(self, name: str, pages: int, tier: Tier = Tier.DEVICE) -> list[Evicted]:
        """Evict, and let what has to be copied first be copied."""
        outcomes = self.settle(self.feed(EvictWanted(tier, name, pages)))
        return [outcome for outcome in outcomes if isinstance(outcome, Evicted)]

    def demote(self) -> None:
        """Evict everything from the device that nobody holds."""
        for name in self.names[1:] + self.names[:1]:
            for _ in range(9):
                self.evict(name, self.pool(name).capacity)

    def pool(self, name: str, tier: Tier = Tier.DEVICE) -> Pool:
        return self.view.pool(tier, self.names.index(name))

    def empty(self) -> None:
        """Nothing is locked, reserved or owned; evict everything, and all pools are whole again."""
        for tier in (Tier.DEVICE, Tier.HOST):
            for name in self.names:
                counts = self.pool(name, tier).counts
                busy = (PageState.OWNED, PageState.RESERVED, PageState.RETIRING)
                assert not any(counts[state] for state in busy), (name, tier, counts)
                assert self.pool(name, tier).protected == 0, (name, tier)
        self.demote()
        for name in self.names[1:] + self.names[:1]:
            self.evict(name, self.pool(name, Tier.HOST).capacity, Tier.HOST)
        for tier in (Tier.DEVICE, Tier.HOST):
            for name in self.names:
                pool = self.pool(name, tier)
                assert pool.free == pool.capacity, (name, tier, self.residency())
        assert self.residency() == {}

    @property
    def device(self) -> Pool:
        return self.view.pool(Tier.DEVICE)

    def residency(self) -> dict[str, str]:
        """Letters from the root to each node's end, and where that node is: D, H, DH or - for each
        component, joined by slashes."""
        result: dict[str, str] = {}
        for node in self.view.nodes():
            letters, above = "", node
            while above.parent is not None:
                run = np.frombuffer(above.key, dtype="<i8")[::PAGE]
                letters = "".join(map(chr, run)) + letters
                above = above.parent
            sides = [
                "".join("DH"[tier] for tier in (0, 1) if node.pages[tier][index] is not None)
                for index in range(len(self.names))
            ]
            result[letters] = "/".join(side or "-" for side in sides)
        return dict(sorted(result.items()))


def hybrid(
    names: str, device: tuple[int, ...], host: tuple[int, ...] = (), **settings: object
) -> Rig:
    """A rig of several components, with a window of two pages unless told otherwise."""
    components = tuple(names.split(","))
    if "swa" in components:
        settings.setdefault("swa_window", 2 * PAGE)
    empty = (0,) * len(components)
    return Rig(device, host or empty, components=components, **settings)
