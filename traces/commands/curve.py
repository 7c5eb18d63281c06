"""`hicache curve`: hit rate against capacity, for every capacity, several policies and the optimum.

Does not replay with the core and knows no time: one cache, requests one after another. See
traces/curves for the methods.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from rich.console import Console
from rich.table import Table

import hicache.models as models
from hicache.core.errors import CallerError

from ..curves.curves import NAMES, NINE_TENTHS, CurveOptions, Curves, curves_of
from ..reporting.amounts import gigabytes
from ..reporting.head import head
from ..sweeping.picture import Line, Panel, check_picture, svg
from ..terminal import options as read
from ..terminal.options import option
from ..terminal.output import check_outputs, write_json, write_whole
from ..terminal.streams import ignore_broken_pipe
from ..terminal.tables import console, pairs, table
from ._options import PagedTraceOptions

_MOST_CAPACITIES = 1000
_MANY = 5  # policies side by side with two decimals

Capacity: TypeAlias = tuple[int, bool]  # an amount, and whether it is in bytes and not in pages


def _policies(text: str) -> tuple[str, ...]:
    if text == "all":
        return NAMES[1:]
    choose = read.choice(NAMES)
    return tuple(dict.fromkeys(choose(part.strip()) for part in text.split(",")))


def _capacities(text: str) -> tuple[Capacity, ...]:
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > _MOST_CAPACITIES:
        raise ValueError(f"expected at most {_MOST_CAPACITIES} capacities, found {len(parts)}")
    kinds = [(part, read.is_size(part)) for part in parts]
    return tuple((read.byte_size(one) if sized else read.size(one), sized) for one, sized in kinds)


@dataclass(frozen=True)
class Options(PagedTraceOptions):
    """capacities: None if not given."""

    policies: tuple[str, ...] = option(
        f"beside lru, some of {', '.join(NAMES[1:])}, or all; what is not lru, optimum or bound is "
        "replayed once for each capacity (default: optimum,bound)",
        _policies,
        "LIST",
        default=CurveOptions().policies,
    )
    capacities: tuple[Capacity, ...] | None = option(
        "in pages (1409,22550), or in bytes (64GB,1TB) with --model (default: two for each "
        "doubling)",
        _capacities,
        "LIST",
    )
    steady: bool = option("count hits of the second half of the requests", default=False)
    device_pages: int | None = option(
        "also the hits of a device of N pages and a host of each capacity", *read.COUNT
    )
    model: str | None = option(
        "also say capacities in bytes of this model's cache", read.name, "MODEL"
    )
    output: str | None = option("draw the curves (SVG) here", *read.OUTPUT, short="-o")
    json: str | None = option("also write the figures; - is stdout", *read.OUTPUT)


def run(options: Options, command: str) -> int:
    inputs = {"trace": options.trace, "tokenizer": options.tokenizer}
    check_outputs(inputs, output=options.output, json=options.json)
    check_picture(options.output)
    each = models.get(options.model).bytes_per_token(1) if options.model else None
    trace = options.opened()
    page_size = options.page_size_of(trace)
    wanted = CurveOptions(
        policies=options.policies,
        capacities=_pages(options.capacities or (), page_size, each) or None,
        first=len(trace.jobs) // 2 if options.steady else 0,
        device_pages=options.device_pages,
        bytes_per_token=each,
    )
    found = curves_of(trace, trace.paged(page_size), wanted)
    out = console(sys.stderr if "-" in (options.output, options.json) else sys.stdout)
    with ignore_broken_pipe():
        out.print(_fitting(found, out))
        if wanted.device_pages is not None:
            out.print(_tiers(found, wanted.device_pages))
        out.print(pairs("What the curves say", list(_figures(found))))
        for note in trace.notes:
            out.print(note)
    if options.output:
        write_whole(options.output, [picture(found)])
    if options.json:
        write_json(options.json, head(command, complete=True) | found.document())
    return 0


def _pages(capacities: tuple[Capacity, ...], page_size: int, each: int | None) -> tuple[int, ...]:
    """each: bytes of a token. Raises CallerError for bytes without a model, and for no page."""
    if each is None and any(is_bytes for _, is_bytes in capacities):
        raise CallerError("--capacities: expected pages, found bytes; say with --model of what")
    page = page_size * (each or 1)
    pages = tuple(count // page if is_bytes else count for count, is_bytes in capacities)
    if not all(pages):
        raise CallerError("--capacities: expected at least one page, found less; name larger ones")
    return pages


def _fitting(found: Curves, out: Console) -> Table:
    """A row for each capacity, its amount left out where it would break the words of others."""
    result = _policies_table(found, True)
    wide = out.measure(result, options=out.options.update(max_width=10 * out.width)).maximum
    return result if wide <= out.width else _policies_table(found, False)


def _policies_table(found: Curves, amounts: bool) -> Table:
    names, places = list(found.hit_tokens), 2 if len(found.hit_tokens) <= _MANY else 1
    title = f"Hit rate (%) of {found.input_tokens:,} prompt tokens"
    if found.lru.first:
        title += f", of requests from {found.lru.first:,} on"
    amount = ["memory" if found.options.bytes_per_token else "tokens"] * amounts
    result = table(title, f"pages of {found.lru.page_size}", *amount, *names)
    result.collapse_padding = True
    for column in result.columns:
        column.justify, column.no_wrap = "right", column is not result.columns[0]
    for place, pages in enumerate(found.capacities.tolist()):
        rates = [found.rate(found.hit_tokens[name][place]) * 100 for name in names]
        cells = [_amount(found, pages)] * amounts + [f"{rate:.{places}f}" for rate in rates]
        result.add_row(f"{pages:,}", *cells)
    result.add_section()
    ceiling = f"{found.rate(found.lru.unbounded) * 100:.{places}f}"
    result.add_row("no limit", *[""] * amounts, *[ceiling] * len(names))
    return result


def _tiers(found: Curves, device: int) -> Table:
    columns = ("host pages", "host", "device", "host, inclusive", "host, exclusive")
    result = table(f"Hit rate (%) of a device of {device:,} pages and a host", *columns)
    lru, host = found.lru, found.capacities
    alone = lru.hit_tokens(device)
    adds = [lru.host_tokens(device, host, exclusive) for exclusive in (False, True)]
    for place, pages in enumerate(host.tolist()):
        tokens = (alone, *(int(one[place]) for one in adds))
        rates = [f"{found.rate(one) * 100:.2f}" for one in tokens]
        result.add_row(f"{pages:,}", _amount(found, pages), *rates)
    return result


def _amount(found: Curves, pages: int) -> str:
    """A capacity in bytes where the model is known, else in tokens."""
    tokens, each = pages * found.lru.page_size, found.options.bytes_per_token
    return gigabytes(tokens * each) if each else f"{tokens:,}"


def _figures(found: Curves) -> Iterator[tuple[str, str]]:
    """What the curves say about capacity and policy."""
    lru, unit = found.lru, "" if found.options.bytes_per_token else " tokens"

    def size(pages: int) -> str:
        return f"{pages:,} pages, {_amount(found, pages)}{unit}"

    yield "most that any cache can hit", f"{found.rate(lru.unbounded) * 100:.1f} %"
    if not lru.unbounded:
        return
    yield "LRU hits all of that with", size(lru.working_set)
    yield "nine tenths of it with", size(lru.pages_for(NINE_TENTHS * lru.unbounded))
    if found.options.device_pages is not None:
        yield "nine tenths of what a host adds", size(found.host_for(NINE_TENTHS))
    for name, tokens in found.hit_tokens.items():
        more = [other - own for other, own in zip(tokens, found.hit_tokens["lru"], strict=True)]
        place = max(range(len(more)), key=more.__getitem__)
        if more[place] > 0 and name != "bound":
            points = f"{found.rate(more[place]) * 100:.1f} points"
            yield f"{name} above LRU, at most", f"{points} at {size(int(found.capacities[place]))}"


def picture(found: Curves) -> str:
    """The curves as SVG text."""
    each, size = found.options.bytes_per_token, found.lru.page_size
    scale = size * each / 1e9 if each else size / 1e6
    unit = "cache (GB, all ranks together)" if each else "cache (million tokens)"
    x = [0.0, *(pages * scale for pages in found.capacities.tolist())]
    ceiling = found.rate(found.lru.unbounded) * 100
    lines = [Line("unbounded", [ceiling] * len(x), "d", dashed=True)]
    colours = iter("abcefgh")
    for name, tokens in found.hit_tokens.items():
        if name != "bound":
            rates = [found.rate(one) * 100 for one in tokens]
            lines.append(Line(name, [0.0, *rates], next(colours), dashed=name == "optimum"))
    note = f"{found.requests:,} requests of {Path(found.trace.path).name}, one after another"
    panel = Panel("prompt tokens that hit (%)", unit, x, lines)
    return svg("Hit rate against capacity", [note], [panel])
