"""What `hicache curve` prints and draws: tables with bars, sentences, and a picture.

States the figures of traces/curves and computes none but shares and differences of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TextIO

from rich.table import Table

from ..curves.curves import Curves
from ..curves.distances import exclusive, inclusive
from ..reporting.amounts import gigabytes
from ..sweeping.svg import Line, Panel, svg
from ..terminal.tables import console, percent, table

_BAR = 20  # characters of the longest bar, where the figures leave room for it
_LEAST_BAR = 8
_MOST_ROWS = 40
_MOST_OF_IT = 0.9
_MANY = 5  # policies side by side with two decimals
_COLOURS = "abcdefgh"
_LIMITS = ("optimum", "bound")


def print_curves(found: Curves, stream: TextIO) -> None:
    out = console(stream)
    unbounded = out.options.update(max_width=10 * out.width)
    plain = _policies(found, 0)
    room = out.width - out.measure(plain, options=unbounded).maximum - 2
    out.print(plain if room < _LEAST_BAR else _policies(found, min(_BAR, room)))
    out.print(
        f"{found.requests:,} requests, {found.input_tokens:,} prompt tokens; "
        f"pages of {found.lru.page_size}"
    )
    if found.options.device_pages is not None:
        out.print(_tiers(found, found.options.device_pages))
    if found.groups:
        out.print(_groups(found))


def _policies(found: Curves, bar: int) -> Table:
    """A row for each capacity. bar: characters of the longest bar; 0 for none."""
    names = list(found.hit_tokens)
    amount = "memory" if found.options.bytes_per_token else "tokens"
    title = "Hit rate (%), token-weighted"
    if found.lru.first:
        title += f", of requests from {found.lru.first:,} on"
    what = ["# lru" + (", + optimum" * ("optimum" in names))] if bar else []
    result = table(title, "pages", amount, *names, *what)
    result.columns[0].justify = "right"
    result.columns[1].no_wrap = True
    places = 2 if len(names) <= _MANY else 1
    ceiling = found.rate(found.lru.unbounded)
    if bar:
        result.columns[-1].justify = "left"
    for place in _shown(len(found.capacities)):
        rates = [found.rate(found.hit_tokens[name][place]) for name in names]
        cells = [f"{rate * 100:.{places}f}" for rate in rates]
        if bar:
            lru = round(rates[0] / (ceiling or 1.0) * bar)
            best = rates[names.index("optimum")] if "optimum" in names else rates[0]
            cells.append("#" * lru + "+" * (round(best / (ceiling or 1.0) * bar) - lru))
        pages = int(found.capacities[place])
        result.add_row(f"{pages:,}", amount_of(found, pages), *cells)
    result.add_section()
    last = [f"{ceiling * 100:.{places}f}"] * len(names)
    result.add_row("no limit", "", *last, *["-" * bar] * bool(bar))
    return result


def amount_of(found: Curves, pages: int) -> str:
    """A capacity in bytes where the model is known, else in tokens."""
    tokens, each = pages * found.lru.page_size, found.options.bytes_per_token
    return gigabytes(tokens * each) if each else f"{tokens:,}"


def _shown(count: int) -> list[int]:
    """The rows of a table: all, or some of many, the first and the last of them included."""
    if count <= _MOST_ROWS:
        return list(range(count))
    return sorted({round(row * (count - 1) / (_MOST_ROWS - 1)) for row in range(_MOST_ROWS)})


def _tiers(found: Curves, device: int) -> Table:
    columns = ("host pages", "host", "device", "host, inclusive", "host, exclusive")
    result = table(f"Hit rate (%) of a device of {device:,} pages and a host", *columns)
    result.columns[0].justify = "right"
    host = found.capacities
    both = (
        inclusive(found.lru, device, host),
        exclusive(found.lru, device, host),
    )
    for place in _shown(len(host)):
        tokens = (both[0].device_tokens, both[0].host_tokens, both[1].host_tokens)
        cells = [f"{found.rate(int(one[place])) * 100:.2f}" for one in tokens]
        pages = int(host[place])
        result.add_row(f"{pages:,}", amount_of(found, pages), *cells)
    return result


def _groups(found: Curves) -> Table:
    part = str(found.options.by)
    shown = _few(found)
    sizes = [amount_of(found, int(found.capacities[place])) for place in shown]
    result = table(
        f"LRU hit rate (%) by {part}, at some capacities", part, "input tokens", *sizes, "unbounded"
    )
    for group in found.groups:
        tokens = group.curve.tokens_at(found.capacities[shown]).tolist()
        rates = [one / group.input_tokens * 100 for one in (*tokens, group.curve.unbounded)]
        result.add_row(group.name, f"{group.input_tokens:,}", *(f"{rate:.2f}" for rate in rates))
    return result


def _few(found: Curves) -> list[int]:
    count = len(found.capacities)
    return sorted({0, count // 3, 2 * count // 3, count - 1})


def sentences(found: Curves) -> list[str]:
    """What the curves say about capacity and policy."""
    lru = found.lru
    if not lru.unbounded:
        return ["No request begins like an earlier one, so no cache can hit anything."]
    rate = percent(found.rate(lru.unbounded), 1)
    told = [
        f"No cache can hit more than {rate} of the prompt tokens. LRU hits all of that with "
        f"{_size(found, lru.working_set)}, and nine tenths of it with "
        f"{_size(found, lru.pages_for(_MOST_OF_IT * lru.unbounded))}."
    ]
    told += _policy_gap(found)
    if found.options.device_pages is not None:
        told += _host(found, found.options.device_pages)
    return told


def _size(found: Curves, pages: int) -> str:
    size = f"{pages * found.lru.page_size:,} tokens"
    each = found.options.bytes_per_token
    return f"{size} ({gigabytes(pages * found.lru.page_size * each)})" if each else size


def _policy_gap(found: Curves) -> Iterator[str]:
    """Where another order of eviction would help most, and which replayed one does best."""
    if "optimum" in found.hit_tokens:
        at, gap = _widest(found, "optimum")
        if gap > 0:
            yield (
                f"The order of eviction matters most at {_size(found, at)}: the optimum hits "
                f"{gap * 100:.1f} points more there than LRU."
            )
    replayed = [name for name in found.hit_tokens if name not in ("lru", *_LIMITS)]
    if replayed:
        best = max(replayed, key=lambda name: _widest(found, name)[1])
        at, gap = _widest(found, best)
        if gap > 0:
            yield (
                f"Of the policies that know no future, {best} is furthest above LRU: "
                f"{gap * 100:.1f} points at {_size(found, at)}."
            )
        else:
            yield "None of these policies hits more than LRU at any of these capacities."


def _widest(found: Curves, name: str) -> tuple[int, float]:
    """The capacity at which a policy is furthest above LRU, and the difference of the rates."""
    more = [
        found.rate(other - lru)
        for other, lru in zip(found.hit_tokens[name], found.hit_tokens["lru"], strict=True)
    ]
    place = max(range(len(more)), key=more.__getitem__)
    return int(found.capacities[place]), more[place]


def _host(found: Curves, device: int) -> Iterator[str]:
    alone = found.rate(found.lru.hit_tokens(device))
    most = found.capacities[-1:]
    both = alone + found.rate(int(inclusive(found.lru, device, most).host_tokens[0]))
    yield (
        f"A device of {_size(found, device)} hits {percent(alone, 1)}; with a host of "
        f"{_size(found, int(most[0]))}, where every page is kept on both tiers, "
        f"{percent(both, 1)}."
    )


def picture(found: Curves) -> str:
    """The curves as SVG text."""
    each = found.options.bytes_per_token
    scale = (found.lru.page_size * each / 1e9) if each else found.lru.page_size / 1e6
    unit = "cache (GB, all ranks together)" if each else "cache (million tokens)"
    x = [0.0, *(pages * scale for pages in found.capacities.tolist())]
    ceiling = found.rate(found.lru.unbounded) * 100
    lines = [Line("unbounded", [ceiling] * len(x), "d", dashed=True)]
    colours = iter(_COLOURS.replace("d", ""))
    for name, tokens in found.hit_tokens.items():
        if name != "bound":
            rates = [found.rate(one) * 100 for one in tokens]
            lines.append(Line(name, [0.0, *rates], next(colours), dashed=name == "optimum"))
    panels = [Panel("prompt tokens that hit (%)", unit, x, lines)]
    if found.groups:
        panels.append(_group_panel(found, unit, x))
    note = f"{found.requests:,} requests of {Path(found.trace.path).name}, one after another"
    return svg("Hit rate against capacity", [note], panels)


def _group_panel(found: Curves, unit: str, x: Sequence[float]) -> Panel:
    """The parts as shares of all prompt tokens, so that they add up to the whole."""
    lines = []
    largest = sorted(found.groups, key=lambda group: -group.curve.unbounded)[: len(_COLOURS)]
    for colour, group in zip(_COLOURS, largest, strict=False):
        tokens = group.curve.tokens_at(found.capacities).tolist()
        rates = [found.rate(one) * 100 for one in tokens]
        lines.append(Line(group.name, [0.0, *rates], colour))
    return Panel(f"LRU by {found.options.by} (% of all prompt tokens)", unit, x, lines)
