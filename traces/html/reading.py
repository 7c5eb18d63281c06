"""Reads reports that were written before, from JSON or from their HTML, and joins several to one.

A file is checked whole before it is used: what a report draws has the right types and is finite, so
a broken or hostile file is one line and never half a page. Does not draw; see render.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from typing import Any

from hicache.core.errors import CallerError
from hicache.files import FLAG, NUMBER, TEXT, Maybe, Named, fit, parsed, show, text_of, unlike

from ..results.reading import shape_of
from .document import KIND, MOST_PREFIXES, QUANTILES, SCHEMA, Prefixes, Variant, report
from .render import DOCUMENT_ID

_MOST_BYTES = 256 << 20
_LEAST_BUCKET = 1e-9  # seconds, or requests
_SCRIPT = re.compile(
    rf'<script type="application/json" id="{DOCUMENT_ID}">(.*?)</script>', re.DOTALL
)
SWEEP = "sweep"  # the kind of the header of a sweep's file
AGAIN = "make the document again"
WHAT = "report of hicache (JSON or HTML) or a sweep"


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
_VERDICT = {"sentences": [TEXT], "best": Maybe(TEXT)}
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
    "hicache_version": TEXT,
    "command": TEXT,
    "complete": FLAG,
    "title": TEXT,
    "trace": _TRACE,
    "slo": Maybe({"ttft_s": Maybe(NUMBER), "tpot_s": Maybe(NUMBER)}),
    "verdict": Maybe(_VERDICT),
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
    text = text_of(path, what, _MOST_BYTES)
    found = _SCRIPT.search(text)
    return text if found is None else found[1]


def objects(path: str, text: str, what: str) -> Iterator[dict[str, Any]]:
    """The JSON objects of a file: one, or one a line. Raises CallerError if there is none."""
    try:
        json.loads(text)
        lines = [text]
    except (ValueError, RecursionError):
        lines = text.splitlines()
    if not text.strip():
        raise CallerError(f"{path}: expected a {what}, found an empty file; name another")
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            found = parsed(line)
        except ValueError as error:
            reason = str(error).partition(": line ")[0]
            raise CallerError(
                f"{path}:{number}: expected a {what}, found no JSON ({reason}); name another"
            ) from None
        if not isinstance(found, dict):
            raise CallerError(
                f"{path}:{number}: expected a {what}, found {show(found)}; name another"
            )
        yield found


def _of_sweep(path: str, documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The report of the points of a sweep, in the order in which they were done."""
    points = [one for one in documents if isinstance(one.get("variant"), dict)]
    if not points:
        raise CallerError(f"{path}: expected a sweep with points, found none; run the sweep")
    trace = fit(points[0].get("trace"), _TRACE, path, AGAIN, ".trace")
    name = os.path.basename(trace["path"])
    command = fit(documents[0].get("command"), TEXT, path, AGAIN, ".command")
    return report(f"Sweep of {name}", command, trace, [one["variant"] for one in points])


def checked(path: str, document: object) -> dict[str, Any]:
    """The document with null for what is missing. path: named in the error."""
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind != KIND:
        what = f"a document of kind {show(kind)}" if kind else "another document"
        raise CallerError(
            f"{path}: expected a {WHAT}, found {what}; `hicache replay --html` and `hicache size` "
            "write reports"
        )
    assert isinstance(document, dict)
    schema = document.get("schema")
    if schema != SCHEMA:
        raise CallerError(
            f"{path}: expected schema {SCHEMA} of a report, found {show(schema)}; make "
            "the report again with this version"
        )
    found: dict[str, Any] = fit(document, _REPORT, path, AGAIN)
    _consistent(path, found)
    return found


def joined(reports: Sequence[dict[str, Any]], title: str | None, command: str) -> dict[str, Any]:
    """One report with the variants of all. Everything else is that of the first; the sentences of
    verdicts stand below each other, warnings and estimates once."""
    first, *others = reports
    whole = dict(first) | {"title": title or first["title"]}
    if not others:
        return whole
    for field in ("warnings", "estimates"):
        whole[field] = list(dict.fromkeys(one for given in reports for one in given[field]))
    whole["variants"] = _named([one for given in reports for one in given["variants"]])
    verdicts = [given["verdict"] for given in reports if given["verdict"]]
    if len(verdicts) > 1:
        sentences = dict.fromkeys(one for verdict in verdicts for one in verdict["sentences"])
        whole["verdict"] = {"sentences": list(sentences), "best": None}
    whole["complete"] = all(given["complete"] for given in reports)
    whole["command"] = command
    return whole


def _named(variants: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Labels that are there more than once get a number."""
    labels = [one["label"] for one in variants]
    seen: dict[str, int] = {}
    named = []
    for one in variants:
        label = one["label"]
        seen[label] = seen.get(label, 0) + 1
        suffix = f" ({seen[label]})" if labels.count(label) > 1 else ""
        named.append(one | {"label": label + suffix})
    return named


def _consistent(path: str, document: dict[str, Any]) -> None:
    """Raises CallerError for parts of the document that contradict each other."""
    curve, prefixes = document["curve"], document["prefixes"]
    if curve:
        size = len(curve["capacities_tokens"])
        lists = [one["hit_rates"] for one in curve["policies"].values()]
        lists += [curve["capacities_bytes"]] if curve["capacities_bytes"] else []
        if not size or any(len(one) != size for one in lists):
            raise _wrong(path, "curve", f"{size or 'some'} values in each list", "others")
        rates = [rate for one in curve["policies"].values() for rate in one["hit_rates"]]
        if not all(0 <= rate <= 1 for rate in rates):
            raise _wrong(path, "curve.policies", "hit rates from 0 to 1", "others")
    for place, variant in enumerate(document["variants"]):
        at = f"variants[{place}]"
        timeline, moved = variant["timeline"], variant["moved"]
        if min(timeline["bucket"], moved["bucket_s"] if moved else 1) < _LEAST_BUCKET:
            raise _wrong(path, at, f"buckets of at least {_LEAST_BUCKET}", "others")
        if variant["ttft_quantiles_s"] is not None and variant["latency_s"] is None:
            raise _wrong(path, at, "latency_s beside ttft_quantiles_s", "none")
        for times in (variant["ttft_quantiles_s"], variant["tpot_quantiles_s"]):
            if times is not None and len(times) != QUANTILES:
                raise _wrong(path, at, f"{QUANTILES} quantiles", f"{len(times)}")
    if prefixes:
        edges = prefixes["edges"]
        if len(edges) > MOST_PREFIXES:
            raise _wrong(path, "prefixes.edges", f"at most {MOST_PREFIXES}", f"{len(edges)}")
        for place, edge in enumerate(edges):
            if edge["id"] != place or edge["parent"] not in range(-1, place):
                raise _wrong(
                    path, f"prefixes.edges[{place}]", "an edge behind its parent", show(edge["id"])
                )


def _wrong(path: str, at: str, expected: str, found: str) -> CallerError:
    return unlike(f"{path}: {at}", expected, found, AGAIN)
