"""A report as one JSON document: its record, and reading it from JSON, from its HTML or from the
file of a sweep.

A file is checked whole before it is used: what a report draws has the right types and is finite, so
a broken or hostile file is one line and never half a page. Keys that no page draws stay as they
are.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from hicache import files
from hicache.core.errors import CallerError
from hicache.files import show
from hicache.version import VERSION

from ..results.record import (
    Float,
    Prefixes,
    Series,
    TraceFigures,
    Variant,
    document,
    record_of,
)

KIND = "report"
SCHEMA = 1  # grows when a key changes its meaning or goes
SWEEP = "sweep"  # the kind of the header of a sweep's file
WHAT = "report of hicache (JSON or HTML) or a sweep"
# The series of tokens over time, from the bottom of the stack. What was lost has one series for
# each reason, under "lost:REASON".
TIERS = ("device", "host", "storage")
FIRST_SEEN = "first_seen"
LOST = "lost:"
TIME, REQUESTS = "time_s", "requests"  # what the axis of a timeline counts
_MOST_BYTES = 256 << 20
_SCRIPT = re.compile(r'<script type="application/json" id="document">(.*?)</script>', re.DOTALL)


class Slo(Struct, frozen=True):
    """Limits of the charts."""

    ttft_s: Float | None = None
    tpot_s: Float | None = None


class Verdict(Struct, frozen=True):
    """What the report says first.

    best: label of the best variant
    """

    sentences: Sequence[str]
    best: str | None = None


class Rates(Struct, frozen=True):
    hit_rates: Sequence[Annotated[float, Meta(ge=0, le=1)]]


class Inclusive(Struct, frozen=True):
    device_hit_tokens: Series


class CurveTiers(Struct, frozen=True):
    device_pages: Float
    inclusive: Inclusive


class Curve(Struct, frozen=True):
    """What the page draws of `hicache curve`."""

    capacities_tokens: Annotated[Series, Meta(min_length=1)]
    policies: Mapping[str, Rates]
    capacities_bytes: Series | None = None
    working_set_tokens: Float | None = None
    page_size: Float | None = None
    input_tokens: Float | None = None
    unbounded_hit_tokens: Float | None = None
    tiers: CurveTiers | None = None

    def __post_init__(self) -> None:
        lists = [one.hit_rates for one in self.policies.values()]
        lists += [self.capacities_bytes] if self.capacities_bytes else []
        size = len(self.capacities_tokens)
        if any(len(one) != size for one in lists):
            raise ValueError(f"expected {size} values in each list")


class Candidate(Struct, frozen=True):
    label: str
    hardware: str
    why: str
    cost_per_hour: Float
    served: bool | None = None
    ttft_p50_s: Float | None = None
    ttft_p90_s: Float | None = None
    ttft_p99_s: Float | None = None
    attained_rate: Float | None = None
    goodput_requests_per_s: Float | None = None
    goodput_per_cost: Float | None = None


class Demand(Struct, frozen=True):
    requests_per_s: Float | None = None


class PriceList(Struct, frozen=True):
    currency: str
    per_hour: Mapping[str, Float] | None = None


class Decision(Struct, frozen=True):
    """What the page draws of the decision of `hicache size`."""

    prices: PriceList
    candidates: Sequence[Candidate]
    answer: Candidate | None = None
    demand: Demand | None = None


class Report(Struct, frozen=True, kw_only=True):
    """The document of `hicache report`, and what an HTML report contains (the script with the id
    `document`).

    decision: of [hicache size](#hicache-size)
    curve: of [hicache curve](#hicache-curve), with its other keys
    variants: the first is the one that the others are compared with
    """

    schema: Literal[1]
    kind: Literal["report"]
    hicache_version: str
    command: str
    complete: bool
    title: str
    trace: TraceFigures
    slo: Slo | None
    verdict: Verdict | None
    decision: Decision | None
    curve: Curve | None
    variants: Sequence[Variant]
    prefixes: Prefixes | None
    warnings: Sequence[str]
    estimates: Sequence[str]


def report(
    title: str,
    command: str,
    trace: Mapping[str, Any],
    variants: Sequence[Mapping[str, Any]],
    *,
    prefixes: Prefixes | None = None,
    complete: bool = True,
    **parts: Any,
) -> dict[str, Any]:
    """The document of a report. trace: as in TraceFigures. variants: documents of `Variant`. parts:
    any other key of `Report`."""
    return {
        "schema": SCHEMA,
        "kind": KIND,
        "hicache_version": VERSION,
        "command": command,
        "complete": complete,
        "title": title,
        "trace": trace,
        **dict.fromkeys(("slo", "verdict", "decision", "curve")),
        "variants": variants,
        "prefixes": document(prefixes),
        "warnings": [],
        "estimates": [],
        **parts,
    }


def read_report(path: str) -> dict[str, Any]:
    """The checked document of a file. Raises CallerError with one line."""
    first, *more = objects(path, document_text(path, WHAT), WHAT)
    if first.get("kind") == SWEEP:
        return checked(path, _of_sweep(path, first, more))
    if more:
        raise CallerError(f"{path}: expected a {WHAT}, found JSON lines of another kind; name one")
    return checked(path, first)


def document_text(path: str, what: str) -> str:
    """The text of a JSON file, or that of the document in an HTML report."""
    text = files.text_of(path, what, _MOST_BYTES)
    found = _SCRIPT.search(text)
    return text if found is None else found[1]


def objects(path: str, text: str, what: str) -> Iterator[dict[str, Any]]:
    """The JSON objects of a file: one, or one a line. Raises CallerError if there is none."""
    if not text.strip():
        raise CallerError(f"{path}: expected a {what}, found an empty file; name another")
    try:
        json.loads(text)
        lines = [text]
    except (ValueError, RecursionError):
        lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        try:
            found = files.parsed(line) if line.strip() else None
            shown = show(found)
        except ValueError as error:
            found, shown = False, f"no JSON ({str(error).partition(': line ')[0]})"
        if isinstance(found, dict):
            yield found
        elif line.strip():
            raise CallerError(f"{path}:{number}: expected a {what}, found {shown}; name another")


def _of_sweep(
    path: str, header: Mapping[str, Any], more: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The report of the points of a sweep, in the order in which they were done."""
    points = [one for one in more if isinstance(one.get("variant"), dict)]
    if not points:
        raise CallerError(f"{path}: expected a sweep with points, found none; run the sweep")
    trace = record_of(TraceFigures, points[0].get("trace"), f"{path}: trace")
    title = f"Sweep of {os.path.basename(trace.path)}"
    variants = [one["variant"] for one in points]
    return report(title, str(header.get("command")), document(trace), variants)


def checked(path: str, found: Mapping[str, Any]) -> dict[str, Any]:
    """The document, if it is one of a report. path: named in the error."""
    if found.get("kind") != KIND:
        kind = found.get("kind")
        what = f"a document of kind {show(kind)}" if kind else "another document"
        raise CallerError(
            f"{path}: expected a {WHAT}, found {what}; `hicache replay --html` and `hicache size` "
            "write reports"
        )
    record_of(Report, found, path)
    return dict(found)


def joined(reports: Sequence[dict[str, Any]], title: str | None, command: str) -> dict[str, Any]:
    """One report with the variants of all. Everything else is that of the first; the sentences of
    verdicts stand below each other, warnings and estimates once."""
    whole = reports[0] | {"title": title or reports[0]["title"]}
    if len(reports) == 1:
        return whole
    for field in ("warnings", "estimates"):
        whole[field] = list(dict.fromkeys(one for given in reports for one in given[field]))
    whole["variants"] = named([one for given in reports for one in given["variants"]])
    verdicts = [given["verdict"] for given in reports if given["verdict"]]
    if len(verdicts) > 1:
        sentences = dict.fromkeys(one for verdict in verdicts for one in verdict["sentences"])
        whole["verdict"] = {"sentences": list(sentences), "best": None}
    return whole | {"complete": all(one["complete"] for one in reports), "command": command}


def named(variants: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Labels that are there more than once get a number."""
    labels = [one["label"] for one in variants]
    found = []
    for place, (label, one) in enumerate(zip(labels, variants, strict=True)):
        number = f" ({labels[:place].count(label) + 1})" if labels.count(label) > 1 else ""
        found.append(one | {"label": label + number})
    return found
