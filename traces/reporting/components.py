"""Tables of a replay's report: components, turns, and the comparison of two eviction orders.

Does not compute the numbers (see lookups and turns) or print the rest of the report (see report).
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.table import Table

from ..replaying.account import Share
from ..replaying.lookups import NOTHING, TOGETHER, UNSEEN, Capped, Lookup
from ..replaying.run import ComponentUse, Run
from ..replaying.settings import Settings, load_components
from ..terminal.tables import pairs, percent, table
from .size_rows import each_rank

_TURNS = 24

NO_TRUTH = (
    "This trace has ids for blocks and no tokens. It determines the hits of full, but not where "
    "windows and states were stored. The hits of {names} depend on what this cache held at "
    "the time of the match, and there is no reference to compare them with."
)


def component_tables(settings: Settings, run: Run) -> Iterator[Table]:
    """The pools and their traffic, then what ended each hit. Nothing for full attention alone."""
    if len(run.components) > 1:
        yield _pools(settings, run.components)
        yield _lookup_table(settings, run)
        if rows := list(_examples(settings, run)):
            yield pairs("Costliest hits that were ended by a component other than full", rows)


def _pools(settings: Settings, components: tuple[ComponentUse, ...]) -> Table:
    result = table("Pools (pages; for mamba, states)", "", *(use.name for use in components))

    def add(name: str, values: list[str]) -> None:
        result.add_row(name, *values)

    add(f"bytes each{each_rank(settings)}", [f"{use.page_bytes:,}" for use in components])
    for place, tier in enumerate(("device", "host")):
        add(tier, [f"{use.capacity[place]:,}" for use in components])
    add("copied to host", [f"{use.backed_up:,}" for use in components])
    add("loaded back", [f"{use.loaded:,}" for use in components])
    add("peak use, device", [f"{use.peak_pages:,}" for use in components])
    for place, tier in enumerate(("device", "host")):
        add(f"evicted from {tier}", [f"{use.evicted[place]:,}" for use in components])
        if not place:
            add("  for another pool", [f"{use.evicted_along:,}" for use in components])
    for place, tier in enumerate(("device", "host")):
        add(f"cached at the end, {tier}", [_pair(use.cached, place) for use in components])
        add("  garbage", [_garbage(use, place) for use in components])
    return result


def _pair(values: tuple[int, int] | None, place: int) -> str:
    return "-" if values is None else f"{values[place]:,}"


def _garbage(use: ComponentUse, place: int) -> str:
    if use.cached is None or use.garbage is None or not use.cached[place]:
        return "-"
    return f"{use.garbage[place]:,} = {percent(use.garbage[place] / use.cached[place])}"


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
    return load_components(settings.core)[place].positional


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


def turn_table(run: Run) -> Table | None:
    """Hit rates by turn of a conversation; None if there are no conversations."""
    if not run.turns:
        return None
    result = table(_TURNS_FROM[run.turns_from], "turn", "requests", "input", "hit", "hit rate")
    for turn in run.turns[:_TURNS]:
        result.add_row(
            str(turn.turn),
            f"{turn.requests:,}",
            f"{turn.input_tokens:,}",
            f"{turn.hit_tokens:,}",
            f"{turn.hit_rate:.6f}",
        )
    if len(run.turns) > _TURNS:
        result.add_row(f"and {len(run.turns) - _TURNS} more", "", "", "", "")
    result.add_section()
    whole = run.account.whole()
    result.add_row(
        "all",
        f"{whole.requests:,}",
        f"{whole.input_tokens:,}",
        f"{whole.hit_tokens:,}",
        f"{whole.hit_rate:.6f}",
    )
    return result


def order_table(settings: Settings, run: Run) -> Table | None:
    """Hit rates of two eviction orders; None if no comparison was asked for."""
    if run.compared is None:
        return None
    result = table("Eviction orders: hit rates, token-weighted", "", "whole trace", "last 50 %")
    name, whole, steady = run.compared
    shares: tuple[tuple[str, Share, Share], ...] = (
        (settings.core.eviction_policy, run.account.whole(), run.account.steady()),
        (name, whole, steady),
    )
    for order, first, second in shares:
        result.add_row(order, f"{first.hit_rate:.6f}", f"{second.hit_rate:.6f}")
    return result
