"""Tables of a replay's report: components, turns, and the comparison of two eviction orders.

Does not compute the numbers (see lookups and turns) or print the rest of the report (see report).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from operator import attrgetter

from rich.table import Table

from ..replaying.account import NOTHING, TOGETHER, UNSEEN, Capped, Lookup
from ..replaying.config import ReplayConfig as Settings
from ..replaying.config import components_of
from ..replaying.run import Run
from ..results.record import Component, Pair, Result
from ..terminal.tables import pairs, percent, table

_TIERS = (("device", attrgetter("device")), ("host", attrgetter("host")))
_TURNS = 24


def component_tables(settings: Settings, run: Run) -> Iterator[Table]:
    """The pools and their traffic, then what ended each hit. Nothing for full attention alone."""
    if len(run.components) > 1:
        yield _pools(settings, run.components)
        yield _lookup_table(settings, run)
        if rows := list(_examples(settings, run)):
            yield pairs("Costliest hits that were ended by a component other than full", rows)


def _pools(settings: Settings, components: Mapping[str, Component]) -> Table:
    result = table("Pools (pages; for mamba, states)", "", *components)

    def add(name: str, told: Callable[[Component], str]) -> None:
        result.add_row(name, *map(told, components.values()))

    add(f"bytes each{each_rank(settings)}", lambda use: f"{use.page_bytes:,}")
    add("device", lambda use: f"{use.capacity.device:,}")
    add("host", lambda use: f"{use.capacity.host:,}")
    add("copied to host", lambda use: f"{use.backed_up:,}")
    add("loaded back", lambda use: f"{use.loaded:,}")
    add("peak use, device", lambda use: f"{use.most_in_use:,}")
    add("evicted from device", lambda use: f"{use.evicted.device:,}")
    add("  for another pool", lambda use: f"{use.evicted_along:,}")
    add("evicted from host", lambda use: f"{use.evicted.host:,}")
    for tier, at in _TIERS:
        add(f"cached at the end, {tier}", partial(_cached, at))
        add("  garbage", partial(_garbage, at))
    return result


def _cached(at: Callable[[Pair], int], use: Component) -> str:
    return "-" if use.cached_at_rest is None else f"{at(use.cached_at_rest):,}"


def _garbage(at: Callable[[Pair], int], use: Component) -> str:
    cached, garbage = use.cached_at_rest, use.garbage_at_rest
    if cached is None or garbage is None or not at(cached):
        return "-"
    return f"{at(garbage):,} = {percent(at(garbage) / at(cached))}"


def _lookup_table(settings: Settings, run: Run) -> Table:
    size = settings.core.page_size
    lookups = run.lookups
    count = len(lookups.by_request)
    wanted = sum(row.wanted for row in lookups.by_request.values()) * size
    alone_pages = lookups.alone()
    result = table(
        f"What ended each hit ({count:,} lookups)", "", "hits alone", "lookups", "", "tokens lost"
    )
    for cap, capped in lookups.capped().items():
        rate = percent(alone_pages[cap] * size / wanted) if cap in alone_pages and wanted else ""
        result.add_row(
            _name(settings, cap),
            rate,
            f"{capped.lookups:,}",
            percent(capped.lookups / count) if count else "",
            f"{capped.lost_pages * size:,}",
        )
    return result


def loss_rows(settings: Settings, run: Run) -> list[tuple[str, int]]:
    """What ended hits, and the tokens lost to it, the most first."""
    size, capped = settings.core.page_size, run.lookups.capped().items()
    found = [(_name(settings, cap), one.lost_pages * size) for cap, one in capped]
    return sorted((one for one in found if one[1]), key=lambda one: -one[1])


def _name(settings: Settings, cap: str) -> str:
    if cap == NOTHING:
        return "nothing: complete hit"
    if cap == UNSEEN:
        return "unseen: new in the trace"
    if cap == TOGETHER:
        return "together: several reasons"
    return f"{cap}: {_reason(settings, cap)}"


def _reason(settings: Settings, component: str) -> str:
    if component == settings.core.components[0]:
        return "evicted or not ready"
    return "no window" if _positional(settings, component) else "no state"


def _positional(settings: Settings, name: str) -> bool:
    """Whether a hit can end because a window of this component is missing; else a state."""
    place = settings.core.components.index(name)
    return components_of(settings.core)[place].positional


def describe(settings: Settings, row: Lookup) -> str:
    """What ended a hit, in words: `no window at depth 3,072`."""
    depth = f"{row.hit * settings.core.page_size:,}"
    if row.cap == NOTHING:
        return "complete hit"
    if row.cap == TOGETHER:
        return f"no common boundary after depth {depth}, or a load was not made"
    if row.cap == UNSEEN:
        return f"no earlier request shares more than depth {depth}"
    if row.cap == settings.core.components[0]:
        return f"evicted or not ready after depth {depth}"
    if _positional(settings, row.cap):
        return f"no window at depth {depth}"
    return f"no state after depth {depth}"


def _examples(settings: Settings, run: Run) -> Iterator[tuple[str, str]]:
    size = settings.core.page_size
    for cap, capped in _ended_by_others(run):
        for row in capped.examples[: 2 if cap != TOGETHER else 1]:
            known = f"{row.depths[0] * size:,}"
            yield f"request {row.request}", f"{cap}: {describe(settings, row)} of {known} known"


def _ended_by_others(run: Run) -> Iterator[tuple[str, Capped]]:
    backbone = run.lookups.components[0]
    for cap, capped in run.lookups.capped().items():
        if cap not in (backbone, NOTHING, UNSEEN):
            yield cap, capped


_TURNS_FROM = {
    "after": "Turns of conversations",
    "session": "Turns of conversations (requests of a session)",
    "prompt": "Turns of conversations (prompts that extend an earlier one)",
}


def turn_table(found: Result) -> Table | None:
    """Hit rates by turn of a conversation; None if there are no conversations."""
    if not found.turns or not found.turns_from:
        return None
    result = table(_TURNS_FROM[found.turns_from], "turn", "requests", "input", "hit", "hit rate")
    for turn in found.turns[:_TURNS]:
        result.add_row(
            str(turn.turn),
            f"{turn.requests:,}",
            f"{turn.input_tokens:,}",
            f"{turn.hit_tokens:,}",
            f"{turn.hit_rate:.6f}",
        )
    if len(found.turns) > _TURNS:
        result.add_row(f"and {len(found.turns) - _TURNS} more", "", "", "", "")
    result.add_section()
    whole = found.whole
    result.add_row(
        "all",
        f"{whole.requests:,}",
        f"{whole.input_tokens:,}",
        f"{whole.hit_tokens.all:,}",
        f"{whole.hit_rate:.6f}",
    )
    return result


def each_rank(settings: Settings) -> str:
    """What follows a figure of one rank where there are several."""
    return " per rank" if settings.parallelism.ranks > 1 else ""
