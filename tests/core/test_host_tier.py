"""A host tier never costs device hits.

Two cores are told the same, one with a host pool and one without. A copy to host takes as long as
the draw says. When the core with the host answers that it is writing back, copies end, the oldest
first, until it answers anything else. By then both have answered the same, and every prompt finds
the same pages on device. Loads are switched off.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from hicache.core.actions import Admitted, Backup, Granted, Load, Outcome, Prefill, Refused
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.events import (
    Aborted,
    AdmitWanted,
    Arrived,
    BackupDone,
    Event,
    EvictWanted,
    Finished,
    Flushed,
    LoadDone,
    PagesWanted,
    PrefillDone,
)
from hicache.core.types import Key, Tier
from tests.sampling import sample

PROBE = 1_000_000
NO_LOADS = 1 << 30


class Pair:
    """The two cores, and the copies of the one with a host that are under way."""

    def __init__(self, seed: int, write_policy: str) -> None:
        self.draw = random.Random(seed)
        device = self.draw.randint(8, 24)
        host = max(1, int(device * self.draw.choice((0.5, 1, 3))))
        self.alone, self.tiered = (
            Core(
                Config(
                    page_size=1,
                    device_pages=(device,),
                    host_pages=(pages,),
                    write_policy=write_policy,
                    load_threshold_pages=NO_LOADS,
                )
            )
            for pages in (0, host)
        )
        self.copies: list[int] = []
        self.waits = 0
        self.probes = PROBE

    def tell(self, event: Event) -> list[Outcome]:
        """One event for the core with a host."""
        outcomes = self.tiered.handle(event)
        assert not any(isinstance(one, Load) for one in outcomes)
        self.copies += [one.flight for one in outcomes if isinstance(one, Backup)]
        return outcomes

    def end_a_copy(self) -> None:
        self.tell(BackupDone(self.copies.pop(0)))

    def ask(self, event: Event) -> tuple[list[Outcome], list[Outcome]]:
        """The same event for both, asked again of the one with a host while it writes back."""
        alone, tiered = self.alone.handle(event), self.tell(event)
        while (refusal := refusal_of(tiered)) and refusal.reason == "writing_back":
            assert refusal.after in self.copies, "it waits for a copy that is under way"
            while refusal.after in self.copies:
                self.end_a_copy()
            tiered = self.tell(event)
            self.waits += 1
        assert said(alone) == said(tiered), event
        return alone, tiered

    def device_pages(self, tokens: list[int]) -> tuple[int, int]:
        """Leading pages of a prompt that either core has on device."""
        self.probes += 1
        key = Key.from_tokens(tokens, 1)
        found = []
        for core in (self.alone, self.tiered):
            (matched,) = core.handle(Arrived(self.probes, key, len(tokens) + 1, len(tokens)))
            core.handle(Aborted(self.probes))
            found.append(matched.device_pages)  # type: ignore[union-attr]
        return found[0], found[1]


def refusal_of(outcomes: list[Outcome]) -> Refused | None:
    return next((one for one in outcomes if isinstance(one, Refused)), None)


def said(outcomes: list[Outcome]) -> list[tuple[object, ...]]:
    """What a scheduler learns: granted, admitted with how many pages, or refused and whom to
    retract."""
    told: list[tuple[object, ...]] = []
    for one in outcomes:
        if isinstance(one, Refused):
            told.append(("refused", one.reason, one.preempt, one.component))
        elif isinstance(one, Admitted):
            told.append(("admitted", one.device_pages, one.host_pages, one.tokens_to_compute))
        elif isinstance(one, Granted):
            told.append(("granted",))
    return told


def play(pair: Pair, steps: int) -> Iterator[list[list[int]]]:
    """Drawn lives of requests in both cores; after each step, the prompts to look for."""
    draw = pair.draw
    prompts: dict[int, list[int]] = {}
    passes: dict[int, tuple[int, int]] = {}
    waiting: list[int] = []
    idle: list[int] = []
    known = [[draw.randint(0, 2) for _ in range(draw.randint(2, 6))] for _ in range(4)]
    for request in range(1, steps + 1):
        choices = ["arrive"] if len(waiting) < 4 else []
        choices += ["admit"] * 3 * bool(waiting) + ["compute"] * 3 * bool(passes)
        choices += ["grow", "finish", "finish"] * bool(idle) + ["copy"] * bool(pair.copies)
        what = draw.choice(choices)
        if what == "arrive":
            tokens = [*draw.choice(known), *(draw.randint(0, 2) for _ in range(draw.randint(0, 4)))]
            event = Arrived(request, Key.from_tokens(tokens, 1), len(tokens), len(tokens) - 1)
            pair.alone.handle(event)
            pair.tell(event)
            prompts[request] = tokens
            waiting.append(request)
            known.append(tokens)
        elif what == "admit":
            chosen = draw.choice(waiting)
            alone, tiered = pair.ask(AdmitWanted(chosen, 1 << 20))
            if isinstance(alone[-1], Prefill) and isinstance(tiered[-1], Prefill):
                waiting.remove(chosen)
                passes[chosen] = alone[-1].flight, tiered[-1].flight
        elif what == "compute":
            chosen = draw.choice(list(passes))
            one, other = passes.pop(chosen)
            pair.alone.handle(PrefillDone(one))
            pair.tell(PrefillDone(other))
            idle.append(chosen)
        elif what == "grow":
            chosen = draw.choice(idle)
            tokens = prompts[chosen]
            alone, _ = pair.ask(PagesWanted(chosen, len(tokens) + 1, len(tokens)))
            refusal = refusal_of(alone)
            if refusal is None:
                prompts[chosen] = [*tokens, draw.randint(0, 2)]
            elif refusal.preempt in idle:
                pair.alone.handle(Aborted(refusal.preempt))
                pair.tell(Aborted(refusal.preempt))
                idle.remove(refusal.preempt)
        elif what == "finish":
            chosen = draw.choice(idle)
            idle.remove(chosen)
            tokens = prompts[chosen]
            event = Finished(chosen, Key.from_tokens(tokens, 1), len(tokens))
            pair.alone.handle(event)
            pair.tell(event)
        else:
            pair.end_a_copy()
        yield known[-12:]


@pytest.mark.parametrize("write_policy", ["write_through", "write_through_selective", "write_back"])
def test_host_tier_changes_no_answer_and_no_device_hit(write_policy: str) -> None:
    waits, seeds = 0, sample(range(150), 30)
    for seed in seeds:
        pair = Pair(seed, write_policy)
        for prompts in play(pair, 60):
            for tokens in prompts:
                alone, tiered = pair.device_pages(tokens)
                assert alone == tiered, (seed, tokens)
        waits += pair.waits
    assert waits > len(seeds) / 8, "the draws must make the core wait for copies"


def test_a_flush_during_an_exchange_takes_its_promise_back() -> None:
    core = Core(Config(1, (8,), (8,), write_policy="write_back", exchange_pages=(4,)))
    key = Key.from_tokens([1, 2, 3], 1)

    def flight_of(event: Event, kind: type) -> int:
        (found,) = (one for one in core.handle(event) if isinstance(one, kind))
        return int(found.flight)

    core.handle(Arrived(0, key, 3, 2))
    core.handle(PrefillDone(flight_of(AdmitWanted(0, 3), Prefill)))
    core.handle(Finished(0, key, 3))
    core.handle(BackupDone(flight_of(EvictWanted(Tier.DEVICE, "full", 3), Backup)))
    core.handle(EvictWanted(Tier.DEVICE, "full", 3))
    core.handle(Arrived(1, key, 3, 2))
    outcomes = core.handle(AdmitWanted(1, 3))
    (load,) = (one.flight for one in outcomes if isinstance(one, Load))
    (prefill,) = (one.flight for one in outcomes if isinstance(one, Prefill))
    assert core.view.giving_up() == 2
    core.handle(Aborted(1))
    core.handle(PrefillDone(prefill))
    core.handle(Flushed())
    core.handle(LoadDone(load))
    assert core.view.giving_up() == 0


def test_a_refusal_names_the_write_back_that_brings_the_last_page() -> None:
    core = Core(Config(1, (2,), (8,), write_policy="write_back"))
    for request, token in ((0, 1), (1, 2)):
        key = Key.from_tokens([token], 1)
        core.handle(Arrived(request, key, 1, 0))
        (_, prefill) = core.handle(AdmitWanted(request, 1))
        core.handle(PrefillDone(prefill.flight))  # type: ignore[union-attr]
        core.handle(Finished(request, key, 1))
    core.handle(Arrived(2, Key.from_tokens([3, 4], 1), 2, 1))
    one, other, refused = core.handle(AdmitWanted(2, 2))
    assert isinstance(one, Backup)
    assert isinstance(other, Backup)
    assert isinstance(refused, Refused)
    assert (refused.reason, refused.after) == ("writing_back", other.flight)
