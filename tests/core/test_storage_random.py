"""Drawn sequences of events with a storage that loses, lies and is late: after each event the core
is what a recount says, and at the end everything has been given back."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from hicache.core.actions import (
    Action,
    Backup,
    Delete,
    Fetch,
    Load,
    Lookup,
    Outcome,
    Prefetched,
    Prefill,
    Refused,
    Store,
)
from hicache.core.events import (
    Aborted,
    AdmitWanted,
    Arrived,
    BackupDone,
    ContinueWanted,
    DeleteDone,
    DetachWanted,
    Event,
    EvictWanted,
    FetchDone,
    Finished,
    Flushed,
    LoadDone,
    LookupDone,
    PrefetchLimitReached,
    PrefillDone,
    Retracted,
    StorageAttached,
    StoreDone,
)
from hicache.core.types import Key, PageState, Tier

from .dump import path_of
from .recount import recount
from .rig import PAGE, Rig, hybrid, key

ACTIONS = (Lookup, Fetch, Store, Delete, Load, Backup, Prefill)
COMPONENTS = ("full", "full", "full,swa", "full,mamba", "full,swa,mamba")
STEPS = 90


def drawn_rig(draw: random.Random) -> Rig:
    names = draw.choice(COMPONENTS)
    count = names.count(",")
    policy = draw.choice(("write_through", "write_back", "write_through_selective"))
    device = (draw.choice((8, 12, 24)), *(draw.choice((6, 10, 24)) for _ in range(count)))
    host = (draw.choice((4, 8, 16, 30)), *(draw.choice((2, 4, 16)) for _ in range(count)))
    settings: dict[str, object] = {
        "storage": True,
        "write_policy": policy,
        "kv_events": draw.random() < 0.5,
        "max_stores": draw.choice((1, 2, 64)),
        "store_tries": draw.choice((1, 3)),
        "prefetch_policy": draw.choice(("wait_complete", "best_effort", "timeout")),
        "prefetch_threshold_tokens": draw.choice((0, 0, 8)),
        "prefetch_budget_tokens": draw.choice((0, 0, 16, 40)),
    }
    if policy == "write_back" and draw.random() < 0.4:
        settings["exchange_pages"] = tuple(min(pages - 1, draw.choice((1, 2))) for pages in host)
    if "mamba" in names and draw.random() < 0.4:
        settings["mamba_states_per_path"] = draw.choice((1, 2))
    return hybrid(names, device, host, **settings)


class Play:
    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.rig = drawn_rig(self.draw)
        self.texts: dict[int, str] = {}
        self.open: dict[int, Action] = {}
        self.ends: Counter[str] = Counter()
        self.acknowledged: set[tuple[str, bytes]] = set()

    def feed(self, event: Event) -> list[Outcome]:
        outcomes = self.rig.feed(event)
        recount(self.rig.view)
        forgets = isinstance(event, Flushed | StorageAttached | DetachWanted)
        if forgets and not any(isinstance(one, Refused) for one in outcomes):
            self.acknowledged.clear()
        self.judge_beliefs()
        for one in outcomes:
            if isinstance(one, ACTIONS):
                self.open[one.flight] = one
            elif isinstance(one, Prefetched):
                self.ends[one.reason] += 1
        return outcomes

    def judge_beliefs(self) -> None:
        """What is believed stored was acknowledged since storage was attached or emptied."""
        for node in self.rig.view.nodes():
            path = path_of(node)
            digests = Key(path, len(path) // node.end_page).page_digests()
            for index, component in enumerate(self.rig.view.components):
                start = node.end_page - len(node.key) * node.end_page // len(path)
                if not component.positional:
                    start = node.end_page - 1
                if self.rig.view.believed(node, index):
                    assert {(component.name, one) for one in digests[start:]} <= self.acknowledged

    def requests(self, admitted: bool) -> list[int]:
        known = self.rig.view.requests.values()
        return sorted(one.id for one in known if one.admitted == admitted and not one.prefill)

    def step(self) -> None:
        draw, kind = self.draw, self.draw.random()
        waiting, idle = self.requests(False), self.requests(True)
        if kind < 0.2:
            self.arrive()
        elif kind < 0.3 and waiting:
            self.feed(AdmitWanted(draw.choice(waiting), draw.choice((2 * PAGE, 1 << 40))))
        elif kind < 0.33 and waiting:
            self.feed(Aborted(draw.choice(waiting)))
        elif kind < 0.36 and waiting:
            self.feed(PrefetchLimitReached(draw.choice(waiting)))
        elif kind < 0.47 and idle:
            self.go_on(draw.choice(idle))
        elif kind < 0.48:
            self.feed(Flushed(draw.random() < 0.5))
        elif kind < 0.485:
            self.feed(StorageAttached())
        elif kind < 0.49 and self.rig.view.attached:
            self.feed(DetachWanted())
        elif kind < 0.55:
            tier, name = draw.choice((Tier.DEVICE, Tier.HOST)), draw.choice(self.rig.names)
            self.feed(EvictWanted(tier, name, draw.randint(1, 6)))
        elif self.open:
            self.answer(self.open.pop(draw.choice(sorted(self.open))), draw.random() < 0.85)

    def arrive(self) -> None:
        number = len(self.texts)
        most = self.rig.device.capacity
        text = "".join(self.draw.choice("ab") for _ in range(self.draw.randint(1, most)))
        self.texts[number] = text
        self.feed(Arrived(number, key(text), len(text) * PAGE, len(text)))

    def go_on(self, number: int) -> None:
        request, text = self.rig.view.requests[number], self.texts[number]
        length = len(text) * PAGE
        if request.computed_tokens < request.length:
            self.feed(ContinueWanted(number, self.draw.choice((PAGE, 1 << 40))))
        elif self.draw.random() < 0.2:
            self.feed(Retracted(number, key(text), length, len(text), length))
        else:
            self.feed(Finished(number, key(text), length))

    def answer(self, action: Action, ok: bool) -> None:
        draw, flight = self.draw, action.flight
        if isinstance(action, Lookup):
            promised = draw.choice((self.rig.found(action), draw.randint(0, len(action.digests))))
            self.feed(LookupDone(flight, promised))
        elif isinstance(action, Fetch):
            count = action.pages if ok else draw.randint(0, action.pages)
            for piece in action.pieces:
                arrived = piece.digests[: max(0, action.first_page + count - piece.first_page)]
                self.acknowledged.update((piece.component, one) for one in arrived)
            self.feed(FetchDone(flight, count))
        elif isinstance(action, Store):
            pages = [(one.component, digest) for one in action.pieces for digest in one.digests]
            durable = len(pages) if ok else draw.randint(0, len(pages))
            self.rig.stored.update(pages[:durable])
            self.acknowledged.update(pages[:durable])
            self.feed(StoreDone(flight, durable))
        elif isinstance(action, Delete):
            self.rig.stored.clear()
            self.feed(DeleteDone(flight, ok))
        elif isinstance(action, Prefill):
            self.feed(PrefillDone(flight, ok))
        elif isinstance(action, Load):
            self.feed(LoadDone(flight, ok or not self.rig.view.flights[flight].legs))
        else:
            self.feed(BackupDone(flight, ok))

    def wind_down(self) -> None:
        for number in list(self.rig.view.requests):
            self.feed(Aborted(number))
        while self.open:
            self.answer(self.open.pop(min(self.open)), True)
        view = self.rig.view
        assert not view.flights
        assert not view.storage_flights
        assert view.prefetching_tokens == 0
        for tier in (Tier.DEVICE, Tier.HOST):
            for pool in view.pools(tier):
                assert pool.protected == 0
                assert pool.counts[PageState.LENT] == pool.counts[PageState.RETIRING] == 0


@pytest.mark.parametrize("seeds", [range(12 * one, 12 * one + 12) for one in range(5)], ids=str)
def test_a_recount_finds_nothing_wrong(seeds: range) -> None:
    ends: Counter[str] = Counter()
    for seed in seeds:
        play = Play(seed)
        for _ in range(STEPS):
            play.step()
        play.wind_down()
        ends += play.ends
    assert {"", "miss", "late", "short", "budget"} <= ends.keys(), ends
