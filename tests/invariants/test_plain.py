"""Liveness: requests alone in the smallest legal pools, several under a plain scheduler, and what
is left when everything was let go.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from itertools import product

import pytest

from hicache import registry
from hicache.core import core as cores
from hicache.core.actions import Outcome, Refused
from hicache.core.components.base import Shape, known, settings_for
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import CallerError
from hicache.core.events import Aborted, AdmitWanted, Event, Finished
from hicache.core.state import State
from hicache.core.view import CoreView
from invariants.against import Against
from invariants.books.kinds import kinds_of
from invariants.fuzz.hicache.drain import drain
from invariants.fuzz.hicache.hand import Hand
from invariants.fuzz.hicache.ops.base import load
from invariants.fuzz.hicache.ops.requests import pack
from invariants.fuzz.hicache.plain import Plain, Stuck
from invariants.fuzz.hicache.play import end
from invariants.fuzz.hicache.swarm import COMPONENTS, ORDERS, POLICIES
from invariants.watch import Watch
from tests.configs import configured
from tests.planted import planted

OPS = load()
BACKBONE_PAGES = 5


class Seen:
    """An observer that keeps events, and refusals for lack of pages."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.refusals: list[Refused] = []

    def on_event(self, event: Event, view: CoreView) -> None:
        self.events.append(event)

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        self.refusals += [
            item for item in outcomes if isinstance(item, Refused) and item.reason == "no_pages"
        ]


def smallest(config: Config) -> Config | None:
    """The configuration with the smallest legal pools of windows and states."""
    sizes = list(config.device_pages)
    for at in range(1, len(sizes)):
        for pages in range(1, 64):
            sizes[at] = pages
            try:
                made = Config(
                    config.page_size,
                    tuple(sizes),
                    tuple(config.host_pages[0] and pages for pages in sizes),
                    config.components,
                    config.write_policy,
                    config.eviction_policy,
                    settings=config.settings,
                )
                Core(made)
            except CallerError:
                continue
            break
    return made if len(sizes) > 1 else config


def configurations() -> Iterator[Config]:
    orders = ORDERS
    for number, (names, policy, page, (window, intervals), host) in enumerate(
        product(COMPONENTS, POLICIES, (1, 4), ((1, 1), (5, 1), (3, 2)), (0, BACKBONE_PAGES))
    ):
        sizes = (BACKBONE_PAGES,) + (64,) * (len(names) - 1)
        roomy = Config(
            page,
            sizes,
            (host,) * len(names),
            names,
            policy,
            orders[number % len(orders)],
            settings=settings_for(names, Shape(window, page * intervals)),
        )
        made = smallest(roomy)
        assert made is not None
        yield made


def test_there_is_a_configuration_for_every_component_and_policy() -> None:
    found = list(configurations())
    assert {one.write_policy for one in found} == set(POLICIES)
    assert {one.eviction_policy for one in found} == set(registry.stems(registry.EVICTION_POLICIES))
    assert {name for one in found for name in one.components} == set(known())
    for config in found:
        for kind, pages in zip(kinds_of(config)[1:], config.device_pages[1:], strict=True):
            between = max(one.interval for one in kinds_of(config)) // config.page_size - 1
            assert pages == (kind.need + 1 + between if kind.positional else 1)


@pytest.mark.parametrize("states", [0, 2])
def test_a_request_alone_in_the_smallest_pools_grows_until_they_are_full(states: int) -> None:
    """With nothing cached, and with a cache full of unlocked pages. states: more of them than the
    one that is needed."""
    for config in configurations():
        if "mamba" in config.components:
            sizes = (*config.device_pages[:-1], config.device_pages[-1] + states)
            host = (*config.host_pages[:-1], config.host_pages[0] and sizes[-1])
            config = Config(
                config.page_size,
                sizes,
                host,
                config.components,
                config.write_policy,
                config.eviction_policy,
                settings=config.settings,
            )
        elif states:
            continue
        hand, seen = Hand(config, watch=Watch("off"), remember=False), Seen()
        hand.observe(seen)
        page = config.page_size
        prompts = ([[1, 2 * page]], [[1, page + 1]], [[2, 3 * page]], [[1, 2 * page], [2, 1]])
        for request, tokens in enumerate(prompts):
            args = {"request": request, "tokens": tokens, "space": "", "empty": not request}
            OPS["alone"].play(hand, {**args, "chunk": 1 + request % 2 * page})
            (ended,) = (
                one
                for one in seen.events
                if isinstance(one, Finished | Aborted) and one.request == request
            )
            assert isinstance(ended, Finished), (config, request, seen.refusals[-1])
            assert ended.length == BACKBONE_PAGES * page
        end(hand)


def served(seed: int, config: Config) -> Plain:
    """Several requests at once, in pools in which only one or two fit."""
    hand, page = Hand(config, watch=Watch("off"), remember=False), config.page_size
    for request in range(5):
        tokens = [[1 + (seed + request) % 3, page], [request, 1 + seed % page]]
        args = {"request": request, "tokens": tokens, "space": "", "whole": False}
        OPS["arrive"].play(hand, args)
    left = dict.fromkeys(hand.jobs, (2 + seed % 3) * page)
    scheduler = Plain(hand, left, chunk=1 + seed % (2 * page), stretch=1 + seed % 3 * page)
    scheduler.serve()
    assert not hand.jobs
    end(hand)
    return scheduler


def served_all(every: int) -> list[Plain]:
    pairs = enumerate(configurations())
    return [served(seed, config) for seed, config in pairs if not seed % every]


def test_a_plain_scheduler_ends_every_request_with_few_preemptions() -> None:
    found = served_all(every=2)
    assert all(one.preemptions <= one.most for one in found)
    assert sum(one.preemptions > 0 for one in found) > 20


def test_requests_that_retract_each_other_are_found_without_a_check() -> None:
    with planted("oldest-request-is-retracted-first"), pytest.raises(Stuck):
        served_all(every=1)


def used(**settings: object) -> tuple[Hand, Against]:
    """A hand whose only request has ended."""
    hand = Hand(configured(1, (8,), (8,), **settings))
    against = Against(hand.config)
    hand.observe_last(against)
    args = {"request": 0, "tokens": pack([0, 1, 2]), "space": "", "whole": False}
    OPS["arrive"].play(hand, args)
    hand.settle()
    hand.feed(AdmitWanted(0, 3))
    hand.settle()
    hand.feed(Finished(0, hand.key(hand.jobs.pop(0), 3), 3))
    hand.settle()
    return hand, against


@pytest.mark.parametrize("settings", [{}, {"ttl_periods": 2}, {"storage": True}])
def test_a_clean_core_leaves_nothing(settings: dict[str, object]) -> None:
    hand, _ = used(**settings)
    assert any(hand.core.view.nodes())
    drain(hand)
    assert not any(hand.core.view.nodes())
    assert not hand.core.view.attached


# what a core could keep: where it is, and what is there then
KEPT: dict[str, Callable[[State], object]] = {
    "a count": lambda state: setattr(state, "backups", state.backups + 1),
    "a reservation": lambda state: operator.setitem(state.giving_up, 0, state.giving_up[0] + 1),
    "a place in a queue": lambda state: state.store_queue.update({9: [state.root]}),
    "a lock": lambda state: setattr(state.pools[1][0], "protected", 1),
    "a loan": lambda state: operator.setitem(state.pools[0][0].loans, 3, 1),
}


@pytest.mark.parametrize("kept", KEPT)
def test_what_a_core_keeps_is_found(kept: str) -> None:
    hand, _ = used()
    hand._driver.observers = ()  # the checks of each event would see some of it before
    KEPT[kept](hand.core._state)
    with pytest.raises(Stuck, match=r"is still|missing"):
        drain(hand)


def test_what_the_specification_keeps_is_found() -> None:
    hand, against = used(storage=True)
    assert against.lockstep is not None
    against.lockstep.specification.cache.believed.add((0, b"gone"))
    with pytest.raises(Stuck, match="specified believed"):
        drain(hand)


def test_a_copy_that_never_expires_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    hand, _ = used(ttl_periods=1)
    hand._driver.observers = ()
    handlers = cores._HANDLERS | {cores.TimePassed: lambda state, event: None}
    monkeypatch.setattr(cores, "_HANDLERS", handlers)
    with pytest.raises(Stuck, match="did not expire"):
        drain(hand)
