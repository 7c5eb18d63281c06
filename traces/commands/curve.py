"""`hicache curve`: hit rate at every capacity, of several policies and the optimum."""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from pathlib import Path

from rich.table import Table

import hicache.models as models

from ..curves import BESIDE_LRU, NAMES, Curves, curves_of
from ..reporting import gigabytes, pools_note
from ..results.record import document, head
from ..sweeping.table import Line, Panel, check_picture, svg
from ..terminal import options as read
from ..terminal.options import option
from ..terminal.output import check_outputs, write_json, write_whole
from ..terminal.tables import console, pairs, table
from ._options import PagedTraceOptions

_MOST_CAPACITIES = 1000
_MANY = 5  # policies side by side with two decimals


def _policies(text: str) -> tuple[str, ...]:
    return NAMES[1:] if text == "all" else read.listed(read.choice(NAMES))(text)


@dataclass(frozen=True)
class Options(PagedTraceOptions):
    """capacities: None if not given."""

    policies: tuple[str, ...] = option(
        f"beside lru, some of {', '.join(NAMES[1:])}, or all; what is not lru, optimum or bound is "
        "replayed once for each capacity (default: optimum,bound)",
        _policies,
        "LIST",
        default=BESIDE_LRU,
    )
    capacities: tuple[int, ...] | None = option(
        "in pages, such as 1409,22550 (default: two for each doubling)",
        read.listed(read.at_least(1), _MOST_CAPACITIES),
        "LIST",
    )
    steady: bool = option("count hits of the second half of the requests", default=False)
    model: str | None = option(
        "also say capacities in bytes of this model's cache", read.name, "MODEL"
    )
    output: str | None = option("draw the curves (SVG) here", *read.OUTPUT, short="-o")
    json: str | None = option("also write the figures; - is stdout", *read.OUTPUT)


def run(options: Options, command: str) -> int:
    inputs = {"trace": options.trace, "tokenizer": options.tokenizer}
    check_outputs(inputs, output=options.output, json=options.json)
    check_picture(options.output)
    model = models.get(options.model) if options.model else None
    each = None
    if model:  # rows of the first component, which a token keeps
        each = ceil(sum(pool.token_bytes(1) for pool in model.pools_of(model.components[0])))
    trace = options.opened()
    page_size = options.page_size_of(trace)
    curves = curves_of(
        trace,
        trace.paged(page_size),
        policies=options.policies,
        capacities=options.capacities,
        first=len(trace.jobs) // 2 if options.steady else 0,
        bytes_per_token=each,
    )
    out = console(sys.stderr if "-" in (options.output, options.json) else sys.stdout)
    out.print(_policies_table(curves))
    rows = [*_figures(curves)]
    if model and (note := pools_note(model.components)):
        rows.append(("memory", f"{note}; replays with --host-bytes have all"))
    out.print(pairs("What the curves say", rows))
    for note in trace.notes:
        out.print(note)
    if options.output:
        write_whole(options.output, [picture(curves)])
    if options.json:
        write_json(options.json, head(command, complete=True) | document(curves.figures))
    return 0


def _policies_table(curves: Curves) -> Table:
    figures = curves.figures
    names, places = list(figures.policies), 2 if len(figures.policies) <= _MANY else 1
    title = f"Hit rate (%) of {figures.input_tokens:,} prompt tokens"
    if figures.first_request:
        title += f", of requests from {figures.first_request:,} on"
    amount = "memory" if figures.bytes_per_token else "tokens"
    result = table(title, f"pages of {figures.page_size}", amount, *names)
    result.collapse_padding = True
    for column in result.columns:
        column.justify, column.no_wrap = "right", column is not result.columns[0]
    for place, tokens in enumerate(figures.capacities_tokens):
        pages = tokens // figures.page_size
        rates = [
            f"{policy.hit_rates[place] * 100:.{places}f}" for policy in figures.policies.values()
        ]
        result.add_row(f"{pages:,}", _amount(curves, pages), *rates)
    result.add_section()
    ceiling = f"{curves.rate(curves.lru.unbounded) * 100:.{places}f}"
    result.add_row("no limit", "", *[ceiling] * len(names))
    return result


def _amount(curves: Curves, pages: int) -> str:
    """A capacity in bytes where the model is known, else in tokens."""
    tokens, each = pages * curves.figures.page_size, curves.figures.bytes_per_token
    return gigabytes(tokens * each) if each else f"{tokens:,}"


def _figures(curves: Curves) -> Iterator[tuple[str, str]]:
    """What the curves say about capacity and policy."""
    lru, figures = curves.lru, curves.figures
    unit = "" if figures.bytes_per_token else " tokens"

    def size(pages: int) -> str:
        return f"{pages:,} pages, {_amount(curves, pages)}{unit}"

    yield "most that any cache can hit", f"{curves.rate(lru.unbounded) * 100:.1f} %"
    if not lru.unbounded:
        return
    yield "LRU hits all of that with", size(lru.working_set)
    yield "nine tenths of it with", size(lru.pages_for(Fraction(9, 10) * lru.unbounded))


def picture(curves: Curves) -> str:
    """The curves as SVG text."""
    figures = curves.figures
    each = figures.bytes_per_token
    scale = each / 1e9 if each else 1e-6
    unit = "cache (GB, all ranks together)" if each else "cache (million tokens)"
    x = [0.0, *(tokens * scale for tokens in figures.capacities_tokens)]
    ceiling = curves.rate(curves.lru.unbounded) * 100
    lines = [Line("unbounded", [ceiling] * len(x), dashed=True)]
    for name, hits in figures.policies.items():
        if name != "bound":
            rates = [0.0, *(rate * 100 for rate in hits.hit_rates)]
            lines.append(Line(name, rates, dashed=name == "optimum"))
    note = f"{figures.requests:,} requests of {Path(figures.trace.path).name}, one after another"
    panel = Panel("prompt tokens that hit (%)", unit, x, lines)
    return svg("Hit rate against capacity", note, [panel])
