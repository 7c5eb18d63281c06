"""The records of a report: one JSON document, from which the HTML file is made.

`report` puts it together, and `check` says whether a document that was read from a file is one.
docs/json.md describes every key. Does not measure anything (see collecting) or draw (see render).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

from hicache.version import VERSION

from ..results.record import Figures, Needed

Document: TypeAlias = Mapping[str, Any]

KIND = "report"
SCHEMA = 1  # grows when a key changes its meaning or goes
MOST_BUCKETS = 200
QUANTILES = 101  # from the least to the largest, one per cent apart
MOST_PREFIXES = 300

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
    """One edge of the tree of prefixes: the pages that the same requests share.

    id: its place in the list. parent: the id of the edge above, -1 at the root. end_tokens: depth
    of its end. tokens: of the edge alone. requests: those with it in their prompt or their answer.
    reusable_tokens: what their prompts could reuse of it. hit_tokens: what they did; None without a
    replay. first_request: who brought it.
    """

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
    verdict: Mapping[str, Any] | None = None,
    decision: Mapping[str, Any] | None = None,
    curve: Mapping[str, Any] | None = None,
    prefixes: Prefixes | None = None,
    slo: Mapping[str, float | None] | None = None,
    warnings: Sequence[str] = (),
    estimates: Sequence[str] = (),
    complete: bool = True,
) -> dict[str, Any]:
    """The document of a report.

    trace: `path`, `format`, `requests`, `input_tokens`. variants: of `Variant.document`, the first
    is the one that the others are compared with. verdict: of traces/deciding. decision: of
    traces/sizing/buying. curve: of traces/curves. slo: `ttft_s` and `tpot_s`, where they were asked
    for. estimates: sentences that say which figures are estimates, and how good they are.
    """
    return {
        "schema": SCHEMA,
        "kind": KIND,
        "hicache_version": VERSION,
        "command": command,
        "complete": complete,
        "title": title,
        "trace": dict(trace),
        "slo": dict(slo) if slo else None,
        "verdict": dict(verdict) if verdict else None,
        "decision": dict(decision) if decision else None,
        "curve": dict(curve) if curve else None,
        "variants": [dict(variant) for variant in variants],
        "prefixes": asdict(prefixes) if prefixes is not None else None,
        "warnings": list(warnings),
        "estimates": list(estimates),
    }
