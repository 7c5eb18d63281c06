"""One replay of a trace, in either mode: observers, the run, and the record of what it came to.

Must not live here: either mode's loop (hits; sim), options, or what the report looks like.
"""

from __future__ import annotations

import gc
import time
from collections import Counter
from dataclasses import replace

from hicache.core.types import Pages, Tier
from hicache.core.view import CoreView
from hicache.runtime.driver import Observer
from invariants.books.garbage import garbage_report
from invariants.watch import Watch
from sim.recorder import Recorder

from ..formats.base import Paged, Trace
from ..terminal.progress import progress
from . import timed as replay_timed
from .account import Account, ceiling_of
from .hits import HitsReplay
from .lookups import Lookups
from .run import Checks, ComponentUse, Run, Transfer
from .settings import Settings
from .tally import Tally
from .turns import by_turn, turns_of


class _Books:
    """The observers that count, and the checks if there are any."""

    def __init__(self, settings: Settings, ceiling: Pages, watch: Watch | None) -> None:
        self.tally = Tally()
        self.lookups = Lookups(settings.core.components, -(-ceiling // settings.core.page_size))
        self.observers: list[Observer] = [self.tally]
        if len(settings.core.components) > 1:  # Full alone: the account says it all
            self.observers.append(self.lookups)
        if watch:
            self.observers.append(watch)

    def components(self, settings: Settings, view: CoreView | None) -> tuple[ComponentUse, ...]:
        """view: at rest at the end, None if the run was interrupted."""
        rest = garbage_report(view) if view else {}
        found, tally, core = [], self.tally, settings.core
        for place, name in enumerate(core.components):
            tiers = [rest.get(f"{tier} {name}", {}) for tier in ("device", "host")]
            found.append(
                ComponentUse(
                    name,
                    settings.page_bytes[place],
                    (core.device_pages[place], core.host_pages[place]),
                    tally.loaded[name],
                    tally.backed_up[name],
                    (tally.evicted[Tier.DEVICE, name], tally.evicted[Tier.HOST, name]),
                    self.lookups.most[place],
                    self.lookups.along[place],
                    (tiers[0]["cached"], tiers[1]["cached"]) if view else None,
                    (tiers[0]["garbage"], tiers[1]["garbage"]) if view else None,
                )
            )
        return tuple(found)

    def refused(self, backbone: str) -> dict[str, int]:
        return {
            reason if component == backbone else f"{reason} of {component}": count
            for (reason, component), count in self.tally.refused.items()
        }


def run(trace: Trace, paged: Paged, settings: Settings, watch: Watch | None, start: float) -> Run:
    """One replay in the mode of the settings. start: when the command began."""
    timed = settings.mode == "timed"
    ceiling = ceiling_of(paged, whole_prompts=not timed)
    account = Account(trace.jobs, paged.page_size, ceiling)
    books = _Books(settings, ceiling, watch)
    found, view = (_timed if timed else _hits)(paged, settings, account, books, watch)
    return replace(
        found,
        components=books.components(settings, None if found.interrupted else view),
        turns=by_turn(account, turns_of(paged)),
        wall_s=time.perf_counter() - start,
    )


def _hits(
    paged: Paged, settings: Settings, account: Account, books: _Books, watch: Watch | None
) -> tuple[Run, CoreView]:
    recorder = Recorder(lambda: 0)
    hits = HitsReplay(paged, settings.core, account, (recorder, *books.observers))
    interrupted = False
    with progress("replay", len(paged.jobs)) as report:
        gc.disable()  # reference counting frees what a run drops; a sweep of the tree is slow
        try:
            hits.run(report)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            gc.enable()
    if watch and not interrupted:
        watch.finish(hits.core.view)
    found = Run(
        account=account,
        transfers={
            "d2h": Transfer(_bytes(settings, books.tally.backed_up), None),
            "h2d": Transfer(_bytes(settings, books.tally.loaded), None),
        },
        lookups=books.lookups,
        refused=books.refused(settings.core.components[0]),
        checks=_checks(settings, watch),
        digest=recorder.digest(),
        interrupted=interrupted,
    )
    return found, hits.core.view


def _bytes(settings: Settings, pages: Counter[str]) -> int:
    sizes = zip(settings.core.components, settings.page_bytes, strict=True)
    return sum(pages[name] * size for name, size in sizes)


def _timed(
    paged: Paged, settings: Settings, account: Account, books: _Books, watch: Watch | None
) -> tuple[Run, CoreView]:
    interrupted = False
    with progress("replay", len(paged.jobs)) as report:
        world = replay_timed.build(paged, settings, books.observers, report)
        try:
            world.run()
        except KeyboardInterrupt:
            interrupted = True
    if watch and not interrupted:
        watch.finish(world.core.view)
    result = world.result()
    found = Run(
        account=account,
        transfers={
            "d2h": Transfer(result.d2h.bytes, result.d2h.busy_ns),
            "h2d": Transfer(result.h2d.bytes, result.h2d.busy_ns),
        },
        lookups=books.lookups,
        refused=books.refused(settings.core.components[0]),
        checks=_checks(settings, watch, result.byte_checks, result.access_checks),
        digest=result.digest,
        latency=replay_timed.book(result, account),
        preempted=sum(request.retractions for request in result.requests),
        interrupted=interrupted,
    )
    return found, world.core.view


def _checks(settings: Settings, watch: Watch | None, bytes_: int = 0, accesses: int = 0) -> Checks:
    if watch is None:
        return Checks(settings.check)
    return Checks(
        settings.check,
        watch.operations,
        watch.incremental,
        watch.full,
        watch.violations,
        bytes_,
        accesses,
        watch.unjudged,
    )
