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
from hicache.files import once, text_of

from .document import KIND, MOST_PREFIXES, QUANTILES, SCHEMA, TIERS, report
from .render import DOCUMENT_ID
from .shapes import Maybe, Named, Number, fit, shown, wrong

_MOST_BYTES = 256 << 20
_LEAST_BUCKET = 1e-9  # seconds, or requests
_SCRIPT = re.compile(
    rf'<script type="application/json" id="{DOCUMENT_ID}">(.*?)</script>', re.DOTALL
)
SWEEP = "sweep"  # the kind of the header of a sweep's file
WHAT = "report of hicache (JSON or HTML) or a sweep"


# An object has at least these keys; a list has elements of its one shape.
_SPREAD = {"mean": Number, "p50": Number, "p90": Number, "p99": Number}
_SERIES = [Number]
_ERROR = {"runs": Number, "median": Maybe(Number)}
EXPECTED = {
    "sentence": str,
    "validated": bool,
    **dict.fromkeys(("ttft", "tpot", "throughput"), _ERROR),
}
VARIANT = {
    "label": str,
    "digest": str,
    "complete": bool,
    "config": Named(object),
    "whole": {
        "input_tokens": Number,
        "hit_rate": Number,
        "lost_tokens": Number,
        "ceiling_rate": Number,
        "hit_tokens": dict.fromkeys(TIERS, Number),
    },
    "lost_by_reason": Named(Number),
    "latency_s": Maybe(dict.fromkeys(("ttft", "queue", "load", "compute", "tpot"), _SPREAD)),
    "expected_error": Maybe(EXPECTED),
    "ttft_quantiles_s": Maybe(_SERIES),
    "tpot_quantiles_s": Maybe(_SERIES),
    "slo": Maybe({"attained_rate": Maybe(Number), "goodput_requests_per_s": Maybe(Number)}),
    "output": Maybe({"tokens_per_s": Number}),
    "load": Maybe(Named(object)),
    "transfers": Named({"bytes_total": Number}),
    "evicted_pages": {"device": Number, "host": Number},
    "checks": {"level": str, "violations": Number},
    "timeline": {
        "axis": str,
        "bucket": Number,
        "series": Named(_SERIES),
    },
    "moved": Maybe(
        {
            "bucket_s": Number,
            "d2h_bytes": _SERIES,
            "h2d_bytes": _SERIES,
            "storage_read_bytes": _SERIES,
            "storage_written_bytes": _SERIES,
        }
    ),
}
_CURVE = {
    "capacities_tokens": _SERIES,
    "capacities_bytes": Maybe(_SERIES),
    "working_set_tokens": Maybe(Number),
    "policies": Named({"hit_rates": _SERIES}),
}
_BUY = {"resource": str, "sentence": str}
_EVIDENCE = {"name": str, "value": Maybe(object), "unit": Maybe(str), "label": Maybe(str)}
_VERDICT = {
    "sentences": [str],
    "limits": [_BUY | {"evidence": [_EVIDENCE]}],
    "buys": [_BUY],
    "best": Maybe(str),
    "break_even": Maybe({"sentence": str}),
}
_EDGE = {
    **dict.fromkeys(("id", "parent", "end_tokens", "tokens", "requests"), Number),
    **dict.fromkeys(("reusable_tokens", "first_request"), Number),
    "hit_tokens": Maybe(Number),
}
_TRACE = {"path": str, "format": str, "requests": Number, "input_tokens": Number}
_CANDIDATE = {
    **dict.fromkeys(("label", "hardware", "why"), str),
    "cost_per_hour": Number,
    **dict.fromkeys(("ttft_p50_s", "ttft_p90_s", "ttft_p99_s", "attained_rate"), Maybe(Number)),
    **dict.fromkeys(("goodput_requests_per_s", "goodput_per_cost"), Maybe(Number)),
    "served": Maybe(bool),
}
_DECISION = {
    "answer": Maybe(_CANDIDATE),
    "prices": {"currency": str},
    "candidates": [_CANDIDATE],
}
_REPORT = {
    "hicache_version": str,
    "command": str,
    "complete": bool,
    "title": str,
    "trace": _TRACE,
    "slo": Maybe({"ttft_s": Maybe(Number), "tpot_s": Maybe(Number)}),
    "verdict": Maybe(_VERDICT),
    "decision": Maybe(_DECISION),
    "curve": Maybe(_CURVE),
    "variants": [VARIANT],
    "prefixes": Maybe(
        {"page_size": Number, "edges": [_EDGE], "left_out": Number, "left_out_tokens": Number}
    ),
    "warnings": [str],
    "estimates": [str],
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
            found = json.loads(line, object_pairs_hook=once)
        except (ValueError, RecursionError) as error:
            reason = str(error).partition(": line ")[0]
            raise CallerError(
                f"{path}:{number}: expected a {what}, found no JSON ({reason}); name another"
            ) from None
        if not isinstance(found, dict):
            raise CallerError(
                f"{path}:{number}: expected a {what}, found {shown(found)}; name another"
            )
        yield found


def _of_sweep(path: str, documents: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The report of the points of a sweep, in the order in which they were done."""
    points = [one for one in documents if isinstance(one.get("variant"), dict)]
    if not points:
        raise CallerError(f"{path}: expected a sweep with points, found none; run the sweep")
    trace = fit(path, ".trace", points[0].get("trace"), _TRACE)
    name = os.path.basename(trace["path"])
    command = fit(path, ".command", documents[0].get("command"), str)
    return report(f"Sweep of {name}", command, trace, [one["variant"] for one in points])


def checked(path: str, document: object) -> dict[str, Any]:
    """The document with null for what is missing. path: named in the error."""
    kind = document.get("kind") if isinstance(document, dict) else None
    if kind != KIND:
        what = f"a document of kind {shown(kind)}" if kind else "another document"
        raise CallerError(
            f"{path}: expected a {WHAT}, found {what}; `hicache replay --html` and `hicache size` "
            "write reports"
        )
    assert isinstance(document, dict)
    schema = document.get("schema")
    if schema != SCHEMA:
        raise CallerError(
            f"{path}: expected schema {SCHEMA} of a report, found {shown(schema)}; make "
            "the report again with this version"
        )
    found: dict[str, Any] = fit(path, "", document, _REPORT)
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
        whole["verdict"] = {
            "sentences": list(sentences),
            "limits": [],
            "buys": [],
            "best": None,
            "break_even": None,
        }
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
            wrong(path, ".curve", f"{size or 'some'} values in each list", "others")
        rates = [rate for one in curve["policies"].values() for rate in one["hit_rates"]]
        if not all(0 <= rate <= 1 for rate in rates):
            wrong(path, ".curve.policies", "hit rates from 0 to 1", "others")
    for place, variant in enumerate(document["variants"]):
        at = f".variants[{place}]"
        timeline, moved = variant["timeline"], variant["moved"]
        if min(timeline["bucket"], moved["bucket_s"] if moved else 1) < _LEAST_BUCKET:
            wrong(path, at, f"buckets of at least {_LEAST_BUCKET}", "others")
        if variant["ttft_quantiles_s"] is not None and variant["latency_s"] is None:
            wrong(path, at, "latency_s beside ttft_quantiles_s", None)
        for times in (variant["ttft_quantiles_s"], variant["tpot_quantiles_s"]):
            if times is not None and len(times) != QUANTILES:
                wrong(path, at, f"{QUANTILES} quantiles", len(times))
    for limit in (document["verdict"] or {}).get("limits", ()):
        for fact in limit["evidence"]:
            if isinstance(fact["value"], int | float) and not isinstance(fact["value"], bool):
                fit(path, f".verdict: {fact['name']}", fact["value"], Number)
    if prefixes:
        edges = prefixes["edges"]
        if len(edges) > MOST_PREFIXES:
            wrong(path, ".prefixes.edges", f"at most {MOST_PREFIXES}", len(edges))
        for place, edge in enumerate(edges):
            if edge["id"] != place or edge["parent"] not in range(-1, place):
                wrong(path, f".prefixes.edges[{place}]", "an edge behind its parent", edge["id"])
