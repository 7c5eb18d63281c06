"""A report as one JSON document, reading it from JSON, its HTML, a replay or the file of a
sweep, and its page: the same document gives the same bytes.

A file is checked whole before it is used, so a broken or hostile one is one line and never half a
page. page.html.jinja has text and tables and escapes whatever it shows, page.js draws, page.css has
the looks. The page has everything in it, also plotly (as published and packed, see PLOTLY) and the
document; its policy (CSP) lets a browser load nothing and run only the two scripts in it.
"""

import base64
import gzip
import hashlib
import html
import json
import os
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from hicache import files
from hicache.core.errors import CallerError
from hicache.files import show
from hicache.version import VERSION

from ..curves import CurveFigures
from ..error_bars import together
from ..reporting import count, percent, reason_name, seconds, short
from ..results.record import (
    NOT_FOLLOWED,
    QUANTILES,
    SCHEMA,
    Float,
    Result,
    TraceFigures,
    document,
    record_of,
    upgraded,
)
from ..terminal.streams import visible

KIND, SWEEP = "report", "sweep"  # of a report, and of the header of a sweep's file
WHAT = "document of hicache replay, size or sweep, or a report (JSON or HTML)"
_MOST_BYTES = 256 << 20
_SCRIPT = re.compile(r'<script type="application/json" id="document">(.*?)</script>', re.DOTALL)
_MOST_WAITING = 20  # candidates without a replay
_MOST_LABEL = 40  # characters in a chart

Chart: TypeAlias = dict[str, Any]


class Verdict(Struct, frozen=True):
    """What the report says first.

    best: label of the best variant
    """

    sentences: Sequence[str]
    best: str | None = None


class Candidate(Struct, frozen=True):
    """A machine that can be bought.

    why: why not, where it was not replayed to the end
    served: whether it keeps the limits
    """

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


class PriceList(Struct, frozen=True):
    """Of an accelerator, and of a gigabyte of `host`."""

    currency: str
    per_hour: Mapping[str, Float] | None = None


class Decision(Struct, frozen=True):
    """What the page shows of the decision of `hicache size`."""

    prices: PriceList
    candidates: Sequence[Candidate]
    answer: Candidate | None = None


class Report(Struct, frozen=True, kw_only=True):
    """The document of `hicache report`, and what an HTML report contains (the script with the id
    `document`).

    decision: of [hicache size](#hicache-size)
    curve: of [hicache curve](#hicache-curve)
    variants: the first is the one that the others are compared with
    """

    schema: Literal[2]
    kind: Literal["report"]
    hicache_version: str
    command: str
    complete: bool
    title: str
    trace: TraceFigures
    verdict: Verdict | None
    decision: Decision | None
    curve: CurveFigures | None
    variants: Sequence[Result]
    warnings: Sequence[str]
    estimates: Sequence[str]


def report(
    title: str,
    command: str,
    trace: Mapping[str, Any],
    variants: Sequence[Mapping[str, Any]],
    **parts: Any,
) -> dict[str, Any]:
    """The document of a report. trace: as in TraceFigures. variants: documents of `Result`. parts:
    any other key of `Report`."""
    return {
        "schema": SCHEMA,
        "kind": KIND,
        "hicache_version": VERSION,
        "command": command,
        "complete": True,
        "title": title,
        "trace": trace,
        **dict.fromkeys(("verdict", "decision", "curve")),
        "variants": variants,
        "warnings": [],
        "estimates": [],
        **parts,
    }


# -- reading


def read_report(path: str) -> dict[str, Any]:
    """The checked document of a report, or one of the document of a replay, or of the points of a
    sweep in the order in which they were done. Raises CallerError with one line."""
    first, *points = _objects(path)
    if first.get("schema") == 1:
        first, *points = upgraded([first | {"schema": SCHEMA}, *points])
    if first.get("kind") == KIND and not points:
        record_of(Report, first, path)
        return first
    is_sweep = first.get("kind") == SWEEP
    if not (is_sweep or "total" in first) or "hicache_version" not in first:
        kind = f"a document of kind {show(first['kind'])}" if first.get("kind") else "another one"
        raise CallerError(f"{path}: expected a {WHAT}, found {kind}; name another")
    if (schema := first.get("schema")) != SCHEMA:
        raise CallerError(
            f"{path}: expected schema {SCHEMA}, found {show(schema)}; run it again with this "
            "version"
        )
    if points and not is_sweep:
        raise CallerError(f"{path}: expected a {WHAT}, found JSON lines of another kind; name one")
    results = [] if is_sweep else [record_of(Result, {"label": path} | first, path)]
    for point in points:
        if point.get("kind") != SWEEP and point.get("complete") is not False:
            varied = point["point"] if isinstance(point.get("point"), dict) else {}
            options = {name.replace("_", "-"): value for name, value in varied.items()}
            results.append(replace(record_of(Result, point, path), options=options))
    if not results:
        raise CallerError(f"{path}: expected a sweep with points, found none; run the sweep")
    trace = results[0].trace
    return report(
        f"Replays of {os.path.basename(trace.path)}",
        str(first.get("command")),
        document(trace),
        [document(result) for result in results],
        hicache_version=str(first["hicache_version"]),
    )


def check_same_trace(
    path: str, trace_figures: TraceFigures, first: TraceFigures, first_path: str
) -> None:
    """Raises CallerError for a replay of other requests than those of the first document."""
    for key in ("requests", "input_tokens"):
        before, now = getattr(first, key), getattr(trace_figures, key)
        if before != now:
            raise CallerError(
                f"{path}: expected replays of the trace of {first_path} ({before:,} "
                f"{key.replace('_', ' ')}), found {now:,}; compare replays of one trace"
            )


def _objects(path: str) -> list[dict[str, Any]]:
    """The JSON objects of a file, or of the document in an HTML report: one, or one a line. Raises
    CallerError if there is none."""
    text = files.text_of(path, WHAT, _MOST_BYTES)
    if (inside := _SCRIPT.search(text)) is not None:
        text = inside[1]
    try:
        json.loads(text)
        lines = [text]
    except (ValueError, RecursionError):
        lines = text.splitlines()
    objects = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            parsed = files.parsed(line)
            message = show(parsed)
        except ValueError as error:
            parsed, message = None, f"no JSON ({str(error).partition(': line ')[0]})"
        if not isinstance(parsed, dict):
            raise CallerError(f"{path}:{number}: expected a {WHAT}, found {message}; name another")
        objects.append(parsed)
    if not objects:
        raise CallerError(f"{path}: expected a {WHAT}, found an empty file; name another")
    return objects


def joined(reports: Sequence[dict[str, Any]], title: str | None, command: str) -> dict[str, Any]:
    """One report with the variants of all. Everything else is that of the first; the sentences of
    verdicts stand below each other, warnings and estimates once."""
    full = reports[0] | {"title": title or reports[0]["title"]}
    if len(reports) == 1:
        return full
    for field in ("warnings", "estimates"):
        full[field] = list(dict.fromkeys(item for each in reports for item in each[field]))
    variants = [item for each in reports for item in each["variants"]]
    labels = named([variant.get("label", "") for variant in variants])
    full["variants"] = [
        variant | {"label": label} for variant, label in zip(variants, labels, strict=True)
    ]
    sentences = [
        item for each in reports if each["verdict"] for item in each["verdict"]["sentences"]
    ]
    full["verdict"] = {"sentences": [*dict.fromkeys(sentences)], "best": None}
    return full | {"complete": all(report["complete"] for report in reports), "command": command}


def named(labels: Sequence[str]) -> list[str]:
    """A label that is there again gets a number."""
    again = [labels[:place].count(label) for place, label in enumerate(labels)]
    return [f"{label} ({n + 1})" if n else label for label, n in zip(labels, again, strict=True)]


# -- the page


def render(values: Mapping[str, Any]) -> str:
    """The text of the file. values: a document of `report`, `read_report` or `joined`."""
    report = record_of(Report, values, "report")
    timed = [variant for variant in report.variants if variant.latency_s]
    plotly, script = _bytes("plotly-basic.min.js.gz"), _bytes("page.js")
    reasons = dict.fromkeys(name for variant in report.variants for name in variant.lost_by_reason)
    environment = import_module("jinja2").Environment(  # here: most commands make no page
        autoescape=True, finalize=_shown, trim_blocks=True, lstrip_blocks=True
    )
    compact = {"ensure_ascii": True, "separators": (",", ":"), "allow_nan": False}
    environment.policies["json.dumps_kwargs"] = compact
    for function in (percent, seconds, count, short, reason_name):
        environment.filters[function.__name__] = function
    template = environment.from_string(_bytes("page.html.jinja").decode())
    text: str = template.render(
        source=values,
        document=report,
        css=_bytes("page.css").decode(),
        charts=_charts(report),
        scripts=[_allowed(gzip.decompress(plotly)), _allowed(script)],
        plotly=base64.b64encode(plotly).decode(),
        script=script.decode(),
        timed=timed,
        reasons=[reason for reason in reasons if reason != NOT_FOLLOWED],
        errors=[] if report.decision else together(result.expected_error for result in timed),
        candidates=_candidates(report.decision) if report.decision else [],
    )
    return text


def _shown(value: Any) -> Any:
    """Unsafe characters are shown as escapes, as on a terminal."""
    return visible(value) if type(value) is str else value


def _bytes(name: str) -> bytes:
    return Path(__file__).with_name(name).read_bytes()


def _allowed(script: bytes) -> str:
    """How the page's policy allows a script."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}'"


def chart_text(text: str) -> str:
    """Text for a label of a chart, where plotly reads tags and entities; the middle is left out."""
    line = visible(text).replace("\n", " ")
    if len(line) > _MOST_LABEL:
        line = f"{line[: _MOST_LABEL * 2 // 3]}...{line[len(line) - _MOST_LABEL // 4 :]}"
    return html.escape(line, quote=False)


def _candidates(decision: Decision) -> list[Candidate]:
    """Those that serve, the cheapest first, then those that do not, and the first of those that
    were not replayed."""
    tried = [item for item in decision.candidates if item.served is not None]
    tried.sort(key=lambda item: (not item.served, item.cost_per_hour, item != decision.answer))
    waiting = [item for item in decision.candidates if item.served is None]
    return tried + waiting[:_MOST_WAITING]


def _charts(report: Report) -> dict[str, Chart]:
    """What page.js draws, by the id of its place: lines, axes, and a mark."""
    charts = {}
    if (curve := report.curve) and any(any(policy.hit_rates) for policy in curve.policies.values()):
        tokens, in_bytes = curve.capacities_tokens, curve.capacities_bytes
        unit, scale = ("GB", 1e9) if in_bytes else ("tokens", 1)
        x = [size / scale for size in in_bytes or tokens]
        lines = [(name, x, [*hits.hit_rates]) for name, hits in curve.policies.items()]
        charts["curve"] = _chart(lines, f"capacity ({unit}, logarithmic)", "prompt tokens that hit")
    timed = [variant for variant in report.variants if variant.ttft_quantiles_s]
    if any(result.latency_s and result.latency_s.ttft.mean for result in timed):
        shares = [place / (QUANTILES - 1) for place in range(QUANTILES)]
        lines = [
            (item.label, [max(time, 1e-6) for time in item.ttft_quantiles_s or ()], shares)
            for item in timed
        ]
        limit = next((result.slo.ttft_s for result in timed if result.slo), None)
        charts["cdf"] = _chart(lines, "time to first token (s, logarithmic)", "share of requests")
        charts["cdf"]["mark"] = [f"SLO: {seconds(limit)}", limit] if limit else None
    return charts


def _chart(lines: Sequence[tuple[str, list[float], list[float]]], x: str, y: str) -> Chart:
    named_lines = [{"name": chart_text(name), "x": xs, "y": ys} for name, xs, ys in lines]
    return {"lines": named_lines, "x": x, "y": y}
