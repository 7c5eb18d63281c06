"""A report as one JSON document: its records, and reading it from JSON or from its HTML.

A file is checked whole before it is used: what a report draws has the right types and is finite, so
a broken or hostile file is one line and never half a page. docs/json.md describes every key.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from hicache import files
from hicache.core.errors import CallerError
from hicache.files import FLAG, NUMBER, TEXT, Maybe, Named, Value, fit, show
from hicache.version import VERSION

from ..results.reading import shape_of
from ..results.record import Figures, Needed

KIND = "report"
SCHEMA = 1  # grows when a key changes its meaning or goes
SWEEP = "sweep"  # the kind of the header of a sweep's file
AGAIN = "make the document again"
WHAT = "report of hicache (JSON or HTML) or a sweep"
MOST_BUCKETS = 200
QUANTILES = 101  # from the least to the largest, one per cent apart
MOST_PREFIXES = 300

_MOST_BYTES = 256 << 20
_LEAST_BUCKET = 1e-9  # seconds, or requests
_SCRIPT = re.compile(r'<script type="application/json" id="document">(.*?)</script>', re.DOTALL)
# The series of tokens over time, from the bottom of the stack. What was lost has one series for
# each reason, under "lost:REASON".
TIERS = ("device", "host", "storage")
FIRST_SEEN = "first_seen"
LOST = "lost:"
TIME, REQUESTS = "time_s", "requests"  # what the axis of a timeline counts


@dataclass(frozen=True, slots=True)
class Timeline:
    """Tokens of prompts by bucket. axis: `time_s`, when a request was admitted; or `requests`, its
    place in the trace, where there is no clock. bucket: the width of one, in the axis's unit."""

    axis: Needed[str]
    bucket: Needed[float]
    series: Needed[Mapping[str, Sequence[int]]]


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes of all ranks that arrived in each bucket of time."""

    bucket_s: Needed[float]
    d2h_bytes: Needed[Sequence[int]]
    h2d_bytes: Needed[Sequence[int]]
    storage_read_bytes: Needed[Sequence[int]]
    storage_written_bytes: Needed[Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant(Figures):
    """One replay, bounded in size. lost_by_reason: tokens. quantiles: 101 values in seconds, the
    first is the least."""

    label: Needed[str]
    complete: Needed[bool]
    lost_by_reason: Needed[Mapping[str, int]]
    ttft_quantiles_s: Sequence[float] | None
    tpot_quantiles_s: Sequence[float] | None
    timeline: Needed[Timeline]
    moved: Moved | None


@dataclass(frozen=True, slots=True)
class Prefix:
    """One edge of the tree of prefixes: the pages that the same requests share. id: its place in
    the list. parent: the id of the edge above, -1 at the root. end_tokens: depth of its end.
    requests: those with it in their prompt or their answer. reusable_tokens: what their prompts
    could reuse of it. hit_tokens: what they did; None without a replay."""

    id: Needed[int]
    parent: Needed[int]
    end_tokens: Needed[int]
    tokens: Needed[int]
    requests: Needed[int]
    reusable_tokens: Needed[int]
    hit_tokens: int | None
    first_request: Needed[int]


@dataclass(frozen=True, slots=True)
class Prefixes:
    """The edges that save most, each after its parent. left_out, left_out_tokens: other shared
    edges and what is reusable of them."""

    page_size: Needed[int]
    edges: Needed[Sequence[Prefix]]
    left_out: Needed[int]
    left_out_tokens: Needed[int]


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
    """The document of a report. trace: as in `_TRACE`. variants: documents of `Variant`, the first
    is the one that the others are compared with. parts: any other key of `_REPORT`; estimates:
    sentences that say which figures are estimates, and how good they are."""
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
        "prefixes": prefixes and asdict(prefixes),
        "warnings": [],
        "estimates": [],
        **parts,
    }


# An object has at least these keys; a list has elements of its one shape.
_SERIES = [NUMBER]
_CURVE = {
    "capacities_tokens": _SERIES,
    "capacities_bytes": Maybe(_SERIES),
    "working_set_tokens": Maybe(NUMBER),
    "policies": Named({"hit_rates": _SERIES}),
    **dict.fromkeys(("page_size", "input_tokens", "unbounded_hit_tokens"), Maybe(NUMBER)),
    "tiers": Maybe({"device_pages": NUMBER, "inclusive": {"device_hit_tokens": _SERIES}}),
}
_TRACE = {"path": TEXT, "format": TEXT, "requests": NUMBER, "input_tokens": NUMBER}
_CANDIDATE = {
    **dict.fromkeys(("label", "hardware", "why"), TEXT),
    "cost_per_hour": NUMBER,
    **dict.fromkeys(("ttft_p50_s", "ttft_p90_s", "ttft_p99_s", "attained_rate"), Maybe(NUMBER)),
    **dict.fromkeys(("goodput_requests_per_s", "goodput_per_cost"), Maybe(NUMBER)),
    "served": Maybe(FLAG),
}
_DECISION = {
    "in_words": Maybe({name: [TEXT] for name in ("answer", "load", "cost", "sure", "next")}),
    "demand": Maybe({"requests_per_s": Maybe(NUMBER)}),
    "answer": Maybe(_CANDIDATE),
    "prices": {"currency": TEXT, "per_hour": Maybe(Named(NUMBER))},
    "candidates": [_CANDIDATE],
}
_REPORT = {
    "schema": Value(f"schema {SCHEMA} of a report", lambda schema: schema == SCHEMA),
    **dict.fromkeys(("hicache_version", "command", "title"), TEXT),
    "complete": FLAG,
    "trace": _TRACE,
    "slo": Maybe({"ttft_s": Maybe(NUMBER), "tpot_s": Maybe(NUMBER)}),
    "verdict": Maybe({"sentences": [TEXT], "best": Maybe(TEXT)}),
    "decision": Maybe(_DECISION),
    "curve": Maybe(_CURVE),
    "variants": [shape_of(Variant)],
    "prefixes": Maybe(shape_of(Prefixes)),
    "warnings": [TEXT],
    "estimates": [TEXT],
}


def read_report(path: str) -> dict[str, Any]:
    """The checked document of a file. Raises CallerError with one line."""
    documents = list(objects(path, document_text(path, WHAT), WHAT))
    if documents[0].get("kind") == SWEEP:
        return checked(path, _of_sweep(path, documents))
    if len(documents) > 1:
        raise CallerError(f"{path}: expected a {WHAT}, found JSON lines of another kind; name one")
    return checked(path, documents[0])


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


def _of_sweep(path: str, documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The report of the points of a sweep, in the order in which they were done."""
    points = [one for one in documents if isinstance(one.get("variant"), dict)]
    if not points:
        raise CallerError(f"{path}: expected a sweep with points, found none; run the sweep")
    trace = fit(points[0].get("trace"), _TRACE, path, AGAIN, ".trace")
    command = fit(documents[0].get("command"), TEXT, path, AGAIN, ".command")
    title = f"Sweep of {os.path.basename(trace['path'])}"
    return report(title, command, trace, [one["variant"] for one in points])


def checked(path: str, document: object) -> dict[str, Any]:
    """The document with null for what is missing. path: named in the error."""
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind != KIND or not isinstance(document, dict):
        what = f"a document of kind {show(kind)}" if kind else "another document"
        raise CallerError(
            f"{path}: expected a {WHAT}, found {what}; `hicache replay --html` and `hicache size` "
            "write reports"
        )
    found: dict[str, Any] = fit(document, _REPORT, path, AGAIN)
    for fits, at, expected, misfit in _consistent(found):
        if not fits:
            raise files.unlike(f"{path}: {at}", expected, misfit, AGAIN)
    return found


def joined(reports: Sequence[dict[str, Any]], title: str | None, command: str) -> dict[str, Any]:
    """One report with the variants of all. Everything else is that of the first; the sentences of
    verdicts stand below each other, warnings and estimates once."""
    whole = reports[0] | {"title": title or reports[0]["title"]}
    if len(reports) == 1:
        return whole
    for field in ("warnings", "estimates"):
        whole[field] = list(dict.fromkeys(one for given in reports for one in given[field]))
    whole["variants"] = _named([one for given in reports for one in given["variants"]])
    verdicts = [given["verdict"] for given in reports if given["verdict"]]
    if len(verdicts) > 1:
        sentences = dict.fromkeys(one for verdict in verdicts for one in verdict["sentences"])
        whole["verdict"] = {"sentences": list(sentences), "best": None}
    return whole | {"complete": all(one["complete"] for one in reports), "command": command}


def _named(variants: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Labels that are there more than once get a number."""
    labels = [one["label"] for one in variants]
    named = []
    for place, (label, one) in enumerate(zip(labels, variants, strict=True)):
        number = f" ({labels[:place].count(label) + 1})" if labels.count(label) > 1 else ""
        named.append(one | {"label": label + number})
    return named


def _consistent(document: Mapping[str, Any]) -> Iterator[tuple[bool, str, str, str]]:
    """Whether parts of the document agree: (whether, where, what was expected, what was found)."""
    if curve := document["curve"]:
        size = len(curve["capacities_tokens"])
        rates = [one["hit_rates"] for one in curve["policies"].values()]
        lists = rates + ([curve["capacities_bytes"]] if curve["capacities_bytes"] else [])
        same = size > 0 and all(len(one) == size for one in lists)
        yield same, "curve", f"{size or 'some'} values in each list", "others"
        known = all(0 <= rate <= 1 for one in rates for rate in one)
        yield known, "curve.policies", "hit rates from 0 to 1", "others"
    for place, variant in enumerate(document["variants"]):
        at, moved = f"variants[{place}]", variant["moved"]
        least = min(variant["timeline"]["bucket"], moved["bucket_s"] if moved else 1)
        yield least >= _LEAST_BUCKET, at, f"buckets of at least {_LEAST_BUCKET}", "others"
        timed = variant["ttft_quantiles_s"] is None or variant["latency_s"] is not None
        yield timed, at, "latency_s beside ttft_quantiles_s", "none"
        for times in (variant["ttft_quantiles_s"], variant["tpot_quantiles_s"]):
            size = QUANTILES if times is None else len(times)
            yield size == QUANTILES, at, f"{QUANTILES} quantiles", f"{size}"
    edges = (document["prefixes"] or {"edges": ()})["edges"]
    fewer = len(edges) <= MOST_PREFIXES
    yield fewer, "prefixes.edges", f"at most {MOST_PREFIXES}", f"{len(edges)}"
    for place, edge in enumerate(edges):
        fits = edge["id"] == place and edge["parent"] in range(-1, place)
        yield fits, f"prefixes.edges[{place}]", "an edge behind its parent", show(edge["id"])
