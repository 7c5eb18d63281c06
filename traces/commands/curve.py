"""`hicache curve`: hit rate against capacity, for every capacity, several policies and the optimum.

Does not replay with the core and knows no time: one cache, requests one after another. See
traces/curves for the methods, and _curve_report for what is printed and drawn.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from typing import Literal

import hicache.models as models
from hicache.core.errors import CallerError
from sim.times.base import Parallelism, check_ranks

from ..curves import curves
from ..curves.curves import ALL, CurveOptions, Wanted, curves_of
from ..curves.splits import BY
from ..formats.base import Trace
from ..reporting.head import head
from ..sweeping.svg import check_picture
from ..terminal import options as read
from ..terminal.output import check_outputs, write_json, write_whole
from ..terminal.rows import option
from ..terminal.streams import ignore_broken_pipe
from ..terminal.tables import print_sentences
from ._curve_report import picture, print_curves, sentences
from ._options import PagedTraceOptions

SUMMARY = "print the hit rate against capacity: exact LRU, other policies and the optimum"
GROUP = "plan"
_MOST_CAPACITIES = 1000


@dataclass(frozen=True, slots=True)
class Capacity:
    """In pages, or in bytes where the text had a unit. text: as it was given."""

    amount: int
    is_bytes: bool
    text: str

    def pages(self, page_size: int, bytes_per_token: int | None) -> int:
        """Whole pages. Raises CallerError for bytes without a model, and for less than a page."""
        pages = self.amount
        if self.is_bytes:
            if bytes_per_token is None:
                raise CallerError(
                    f"--capacities: expected pages, found bytes ({self.text}); add --model to say "
                    "how large a page is"
                )
            pages //= page_size * bytes_per_token
        if not pages:
            raise CallerError(
                f"--capacities: expected at least one page, found {self.text}; name a larger one"
            )
        return pages


def _policies(text: str) -> tuple[str, ...]:
    known = curves.policies()
    if text == ALL:
        return tuple(known[1:])
    choose = read.choice(known)
    return tuple(dict.fromkeys(choose(part.strip()) for part in text.split(",")))


def _capacities(text: str) -> tuple[Capacity, ...] | Literal["all"]:
    if text == ALL:
        return ALL
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > _MOST_CAPACITIES:
        raise argparse.ArgumentTypeError(
            f"expected at most {_MOST_CAPACITIES} capacities, found {len(parts)}"
        )
    return tuple(_capacity(part) for part in parts)


def _capacity(text: str) -> Capacity:
    is_bytes = read.is_size(text)
    return Capacity(read.byte_size(text) if is_bytes else read.size(text), is_bytes, text)


@dataclass(frozen=True)
class Options(PagedTraceOptions):
    """policies, capacities: None if not given."""

    policies: tuple[str, ...] | None = option(
        lambda: (
            f"beside lru, some of {', '.join(curves.policies()[1:])}, or all; what is not lru, "
            "optimum or bound is replayed once for each capacity (default: optimum,bound; none "
            "with --capacities all)"
        ),
        _policies,
        "LIST",
    )
    capacities: tuple[Capacity, ...] | Literal["all"] | None = option(
        "in pages (1409,22550), or in bytes (64GB,1TB) with --model; all: every capacity at which "
        "the LRU curve bends (default: two for each doubling)",
        _capacities,
        "LIST",
    )
    first: int = option(
        "count hits from request N on; earlier ones only warm the cache (default: 0)",
        read.at_least(0, read.request_number),
        "N",
        default=0,
        excludes="counted",
    )
    steady: bool = option(
        "count hits of the second half of the requests", default=False, excludes="counted"
    )
    by: str | None = option(f"also divide by {' or '.join(BY)}", read.choice(BY), "PART")
    device_pages: int | None = option(
        "also the hits of a device of N pages and a host of each capacity", *read.COUNT
    )
    model: str | None = option(
        "also say capacities in bytes of this model's cache", read.name, "MODEL"
    )
    kv_dtype: str | None = option(
        "type of cached keys and values (default: the model's)", read.name, "TYPE"
    )
    tp: int = option("ranks that share the model", *read.COUNT, default=1)
    output: str | None = option("draw the curves (SVG) here", *read.OUTPUT, short="-o")
    json: str | None = option("also write the figures; - is stdout", *read.OUTPUT)


def run(options: Options, command: str) -> int:
    check_outputs(
        {"trace": options.trace, "tokenizer": options.tokenizer},
        output=options.output,
        json=options.json,
    )
    check_picture(options.output)
    bytes_per_token = _bytes_per_token(options)
    trace = options.opened()
    page_size = options.page_size_of(trace)
    wanted = _wanted(options, trace, page_size, bytes_per_token)
    found = curves_of(trace, trace.paged(page_size), wanted)
    out = sys.stderr if "-" in (options.output, options.json) else sys.stdout
    told = [*trace.notes, *sentences(found)]
    with ignore_broken_pipe():
        print_curves(found, out)
        print_sentences("In words", told, out)
    if options.output:
        write_whole(options.output, [picture(found)])
    if options.json:
        document = head(command, complete=True) | found.document()
        write_json(options.json, document | {"conclusions": told})
    return 0


def _wanted(
    options: Options, trace: Trace, page_size: int, bytes_per_token: int | None
) -> CurveOptions:
    """Raises CallerError for bytes without a model."""
    given = options.capacities
    if isinstance(given, tuple):
        capacities: Wanted = tuple(one.pages(page_size, bytes_per_token) for one in given)
    else:
        capacities = given
    policies = options.policies
    if policies is None:
        policies = () if capacities == ALL else CurveOptions().policies
    return CurveOptions(
        policies=policies,
        capacities=capacities,
        first=len(trace.jobs) // 2 if options.steady else options.first,
        by=options.by,
        device_pages=options.device_pages,
        bytes_per_token=bytes_per_token,
    )


def _bytes_per_token(options: Options) -> int | None:
    """Of the cache, on all ranks together. Raises CallerError for a type without a model."""
    if options.model is None:
        if options.kv_dtype is not None or options.tp != 1:
            name = "--tp" if options.kv_dtype is None else "--kv-dtype"
            raise CallerError(f"{name} needs --model; name a model")
        return None
    model = models.get(options.model)
    if options.kv_dtype is not None:
        model = models.cached_as(model, options.kv_dtype)
    check_ranks(model, Parallelism(options.tp))
    return model.bytes_per_token(options.tp) * options.tp
