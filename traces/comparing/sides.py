"""What is compared: each replay of a document as one side, with the same figures under one name.

Reads the documents of `replay` and `size`, reports (JSON or HTML) and the lines of a sweep.
A figure that a document does not have is None. Does not say what changed; see changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hicache.core.errors import CallerError
from hicache.files import ANY, FLAG, NUMBER, TEXT, Maybe, Named, fit, show

from ..html.document import KIND as REPORT
from ..html.document import TIERS
from ..html.reading import AGAIN, EXPECTED, SWEEP, checked, document_text, objects

SCHEMA = 1
WHAT = "document of hicache replay, size or sweep, or a report"

_SPREAD = {"mean": NUMBER, "p50": NUMBER, "p90": NUMBER, "p99": NUMBER}
_LATENCY = dict.fromkeys(("ttft", "queue", "load", "compute", "tpot"), _SPREAD)
_TRACE = {"path": TEXT, "requests": NUMBER, "input_tokens": Maybe(NUMBER)}
_POINT = {
    "label": Maybe(TEXT),
    "digest": TEXT,
    "complete": Maybe(FLAG),
    "trace": Maybe(_TRACE),
    "config": Named(ANY),
    "whole": {
        "input_tokens": NUMBER,
        "hit_rate": NUMBER,
        "ceiling_rate": NUMBER,
        "lost_tokens": NUMBER,
        "hit_tokens": dict.fromkeys(TIERS, NUMBER),
    },
    "latency_s": Maybe(_LATENCY),
    "expected_error": Maybe(EXPECTED),
    "output": Maybe({"tokens_per_s": NUMBER}),
    "slo": Maybe({"attained_rate": Maybe(NUMBER), "goodput_requests_per_s": Maybe(NUMBER)}),
    "preempted": Maybe(NUMBER),
    "transfers": Named({"bytes_total": NUMBER}),
    "evicted_pages": {"device": NUMBER, "host": NUMBER},
    "variant": Maybe({"lost_by_reason": Named(NUMBER)}),
    "storage": Maybe(
        {
            "read": {"bytes_total": NUMBER},
            "written": {"bytes_total": NUMBER},
            "lost_tokens": Named({"tokens": NUMBER}),
        }
    ),
}
_HOST_POINT = {
    "host_bytes": NUMBER,
    **dict.fromkeys(("device_hit_rate", "host_hit_rate", "hit_rate", "ceiling_rate"), NUMBER),
    "ttft_s": Maybe({"mean": NUMBER, "p50": NUMBER, "p90": NUMBER, "p99": NUMBER}),
    "digest": TEXT,
    "expected_error": Maybe(EXPECTED),
}


@dataclass(frozen=True, slots=True)
class Side:
    """One replay. input_tokens: of the requests that were served; None where it is not known.
    figures: by name, see changes. lost_by_reason: as rates of the prompt tokens; None where the
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
    if isinstance(first.get("points"), list) and not points:
        return _of_points(path, first)
    if points:
        raise CallerError(f"{path}: expected a {WHAT}, found JSON lines of another kind; name one")
    return [_of_replay(path, first, first)]


def _check_head(path: str, head: Mapping[str, Any]) -> None:
    known = head.get("kind") == SWEEP or "points" in head or "whole" in head
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
    for variant in report["variants"]:
        _check_complete(path, variant["label"], variant["complete"])
        figures = _figures(variant)
        for way in ("read", "written"):
            moved = variant["moved"]
            found = sum(moved[f"storage_{way}_bytes"]) if moved else 0
            figures[f"storage_{way}_bytes"] = found or None
        total = variant["whole"]["input_tokens"] or 1
        lost = {reason: tokens / total for reason, tokens in variant["lost_by_reason"].items()}
        sides.append(
            Side(
                path,
                variant["label"],
                str(report["hicache_version"]),
                variant["digest"],
                report["trace"],
                variant["whole"]["input_tokens"],
                variant["config"],
                figures,
                lost,
                variant.get("expected_error"),
            )
        )
    return sides


def _of_replay(path: str, head: Mapping[str, Any], point: object) -> Side:
    found = fit(point, _POINT, path, AGAIN)
    label = found["label"] or path
    _check_complete(path, label, found["complete"])
    trace = found["trace"] or fit(head.get("trace"), _TRACE, path, AGAIN, ".trace")
    total = found["whole"]["input_tokens"] or 1
    figures, lost = _figures(found), None
    if found["variant"]:
        known = found["variant"]["lost_by_reason"]
        lost = {reason: tokens / total for reason, tokens in known.items()}
    figures["preempted"] = found["preempted"]
    if storage := found["storage"]:
        for way in ("read", "written"):
            figures[f"storage_{way}_bytes"] = storage[way]["bytes_total"]
        lost = {reason: one["tokens"] / total for reason, one in storage["lost_tokens"].items()}
    return Side(
        path,
        label,
        str(head["hicache_version"]),
        found["digest"],
        trace,
        found["whole"]["input_tokens"],
        found["config"],
        figures,
        lost,
        found["expected_error"],
    )


def _of_points(path: str, head: Mapping[str, Any]) -> list[Side]:
    """The sizes of `hicache size --host-only`, or points that are whole documents."""
    points = head["points"]
    if points and isinstance(points[0], dict) and "whole" in points[0]:
        return [_of_replay(path, head, point) for point in points]
    _check_complete(path, "its last sizes", head.get("complete"))
    config = fit(head.get("config"), Named(ANY), path, AGAIN, ".config")
    trace = fit(head.get("trace"), _TRACE, path, AGAIN, ".trace")
    sides = []
    for place, one in enumerate(points):
        found = fit(one, _HOST_POINT, path, AGAIN, f".points[{place}]")
        size = found["host_bytes"]
        figures: dict[str, float | None] = {
            "hit_rate": found["hit_rate"],
            "device_rate": found["device_hit_rate"],
            "host_rate": found["host_hit_rate"],
            "lost_rate": found["ceiling_rate"] - found["hit_rate"],
            "ceiling_rate": found["ceiling_rate"],
        }
        for name, value in (found["ttft_s"] or {}).items():
            figures[f"ttft_{name}_s"] = value
        own = {key: value for key, value in config.items() if not key.startswith("host_")}
        sides.append(
            Side(
                path,
                f"host {size / 1e9:g} GB",
                str(head["hicache_version"]),
                found["digest"],
                trace,
                None,
                own | {"host_bytes": size, "host_bandwidth": config.get("host_bandwidth")},
                figures,
                None,
                found["expected_error"],
            )
        )
    return sides


def _figures(found: Mapping[str, Any]) -> dict[str, float | None]:
    """The figures of a replay's document, or of a variant's."""
    whole, latency = found["whole"], found["latency_s"]
    total, output, slo = whole["input_tokens"] or 1, found["output"] or {}, found["slo"] or {}
    figures: dict[str, float | None] = {"hit_rate": whole["hit_rate"]}
    for tier in TIERS:
        figures[f"{tier}_rate"] = whole["hit_tokens"][tier] / total
    figures["lost_rate"] = whole["lost_tokens"] / total
    figures["ceiling_rate"] = whole["ceiling_rate"]
    if latency:
        for name in ("mean", "p50", "p90", "p99"):
            figures[f"ttft_{name}_s"] = latency["ttft"][name]
        for part in ("queue", "load", "compute"):
            figures[f"{part}_mean_s"] = latency[part]["mean"]
        figures["tpot_p50_s"] = latency["tpot"]["p50"]
    figures["tokens_per_s"] = output.get("tokens_per_s")
    figures["attained_rate"] = slo.get("attained_rate")
    figures["goodput_requests_per_s"] = slo.get("goodput_requests_per_s")
    for way in ("d2h", "h2d"):
        figures[f"{way}_bytes"] = found["transfers"].get(way, {}).get("bytes_total")
    for tier in ("device", "host"):
        figures[f"evicted_{tier}_pages"] = found["evicted_pages"][tier]
    return figures
