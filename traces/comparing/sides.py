"""What is compared: each replay of a document as one side, with the same figures under one name.

Reads the documents of `replay` and `size`, reports (JSON or HTML) and the lines of a sweep.
A figure that a document does not have is None. Does not say what changed; see changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hicache.core.errors import CallerError
from hicache.files import fit, show

from ..html.document import AGAIN, SWEEP, Variant, checked, document_text, objects
from ..html.document import KIND as REPORT
from ..results.reading import record_of, shape_of
from ..results.record import Figures, Needed, Result, TraceFigures

SCHEMA = 1
WHAT = "document of hicache replay, size or sweep, or a report"

# (name, in words, unit, place in the record of a replay), in the order of the table.
FIGURES = (
    ("hit_rate", "hit rate", "rate", "whole.hit_rate"),
    ("device_rate", "  device", "rate", "whole.hit_tokens.device"),
    ("host_rate", "  host", "rate", "whole.hit_tokens.host"),
    ("storage_rate", "  storage", "rate", "whole.hit_tokens.storage"),
    ("lost_rate", "lost", "rate", "whole.lost_tokens"),
    ("ceiling_rate", "ceiling", "rate", "whole.ceiling_rate"),
    ("ttft_mean_s", "TTFT, mean", "s", "latency_s.ttft.mean"),
    ("queue_mean_s", "  queue", "s", "latency_s.queue.mean"),
    ("load_mean_s", "  load", "s", "latency_s.load.mean"),
    ("compute_mean_s", "  compute", "s", "latency_s.compute.mean"),
    ("ttft_p50_s", "TTFT, p50", "s", "latency_s.ttft.p50"),
    ("ttft_p90_s", "TTFT, p90", "s", "latency_s.ttft.p90"),
    ("ttft_p99_s", "TTFT, p99", "s", "latency_s.ttft.p99"),
    ("tpot_p50_s", "TPOT, p50", "s", "latency_s.tpot.p50"),
    ("tokens_per_s", "output tokens/s", "count", "output.tokens_per_s"),
    ("attained_rate", "attained SLO", "rate", "slo.attained_rate"),
    ("goodput_requests_per_s", "goodput, requests/s", "count", "slo.goodput_requests_per_s"),
    ("d2h_bytes", "device to host", "bytes", "transfers.d2h.bytes_total"),
    ("h2d_bytes", "host to device", "bytes", "transfers.h2d.bytes_total"),
    ("storage_read_bytes", "storage to host", "bytes", "storage.read.bytes_total"),
    ("storage_written_bytes", "host to storage", "bytes", "storage.written.bytes_total"),
    ("evicted_device_pages", "evicted from device, pages", "count", "evicted_pages.device"),
    ("evicted_host_pages", "evicted from host, pages", "count", "evicted_pages.host"),
    ("preempted", "preempted", "count", "preempted"),
)


@dataclass(frozen=True, slots=True)
class Reasons:
    lost_by_reason: Needed[Mapping[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Point(Result):
    """A replay in a document, or in a line of a sweep."""

    label: str | None
    complete: bool | None
    variant: Reasons | None


@dataclass(frozen=True, slots=True)
class Side:
    """One replay. input_tokens: of the requests that were served; None where it is not known.
    figures: by name, see FIGURES. lost_by_reason: as rates of the prompt tokens; None where the
    document has no reasons. expected_error: as in the document."""

    path: str
    label: str
    version: str
    digest: str
    trace: Mapping[str, Any]
    input_tokens: int | None
    config: Mapping[str, Any]
    figures: Mapping[str, float | None]
    lost_by_reason: Mapping[str, float] | None
    expected_error: Mapping[str, Any] | None = None


def read_sides(path: str) -> list[Side]:
    """The replays of a file, in its order. Raises CallerError with one line."""
    documents = list(objects(path, document_text(path, WHAT), WHAT))
    first, *points = documents
    kind = first.get("kind")
    if kind == REPORT:
        return _of_report(path, checked(path, first))
    if isinstance(first.get("report"), dict):  # a document that has its report inside
        return _of_report(path, checked(path, first["report"]))
    _check_head(path, first)
    if kind == SWEEP:
        return [_of_replay(path, first, one) for one in points if one.get("kind") != SWEEP]
    if points:
        raise CallerError(f"{path}: expected a {WHAT}, found JSON lines of another kind; name one")
    return [_of_replay(path, first, first)]


def _check_head(path: str, head: Mapping[str, Any]) -> None:
    known = head.get("kind") == SWEEP or "whole" in head
    if not known or "hicache_version" not in head:
        keys = ", ".join(list(head)[:3])[:60]
        raise CallerError(f"{path}: expected a {WHAT}, found an object with {keys}; name another")
    schema = head.get("schema")
    if schema != SCHEMA:
        raise CallerError(
            f"{path}: expected schema {SCHEMA}, found {show(schema)}; run it again with this "
            "version"
        )


def _check_complete(path: str, label: str, complete: object) -> None:
    if complete is False:
        raise CallerError(
            f"{path}: expected whole replays, found {label}, which was interrupted; run it again"
        )


def _of_report(path: str, report: Mapping[str, Any]) -> list[Side]:
    sides = []
    for document in report["variants"]:
        found = record_of(Variant, document)
        _check_complete(path, found.label, found.complete)
        figures = _figures(found)
        for way in ("read", "written"):
            moved = sum(getattr(found.moved, f"storage_{way}_bytes")) if found.moved else 0
            figures[f"storage_{way}_bytes"] = moved or None
        version, trace = str(report["hicache_version"]), report["trace"]
        sides.append(_side(path, found.label, version, trace, found, figures, found.lost_by_reason))
    return sides


def _of_replay(path: str, head: Mapping[str, Any], point: object) -> Side:
    document = fit(point, shape_of(Point), path, AGAIN)
    found = record_of(Point, document)
    label = found.label or path
    _check_complete(path, label, found.complete)
    trace = document["trace"] or fit(
        head.get("trace"), shape_of(TraceFigures), path, AGAIN, ".trace"
    )
    lost = found.variant.lost_by_reason if found.variant else None
    if found.storage:
        lost = {reason: one.tokens for reason, one in found.storage.lost_tokens.items()}
    version = str(head["hicache_version"])
    return _side(path, label, version, trace, found, _figures(found), lost)


def _side(
    path: str,
    label: str,
    version: str,
    trace: Mapping[str, Any],
    found: Figures,
    figures: Mapping[str, float | None],
    lost: Mapping[str, int] | None,
) -> Side:
    total = found.whole.input_tokens or 1
    rates = None if lost is None else {name: tokens / total for name, tokens in lost.items()}
    return Side(
        path,
        label,
        version,
        found.digest,
        trace,
        found.whole.input_tokens,
        found.config,
        figures,
        rates,
        found.expected_error,
    )


def _figures(found: Figures) -> dict[str, float | None]:
    return {name: _at(found, place) for name, _, _, place in FIGURES}


def _at(found: Figures, place: str) -> float | None:
    """A figure of the record; None for one that it has not. Tokens are rates of the prompts."""
    value: Any = found
    for name in place.split("."):
        value = value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)
    if value is not None and place.startswith("whole.") and not place.endswith("_rate"):
        return found.whole.rate(value)
    return value  # type: ignore[no-any-return]
