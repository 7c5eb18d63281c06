"""The names that a report gives to series, reasons, policies and limits, and their definitions.

Does not draw; see figures, and sections for the text around them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..reporting.stored import reason_in_words
from .document import FIRST_SEEN, LOST, REQUESTS

_SERIES = {
    "device": "device hits",
    "host": "host hits",
    "storage": "storage hits",
    FIRST_SEEN: "first seen",
}
_REASONS = {
    "evicted": "evicted",
    "evicted_or_not_ready": "evicted or not ready",
    "not_ready": "still being computed",
}
_POLICIES = {
    "lru": "LRU",
    "fifo": "FIFO",
    "lfu": "LFU",
    "s3-fifo": "S3-FIFO",
    "s3_fifo": "S3-FIFO",
    "sieve": "SIEVE",
    "slru": "SLRU",
    "optimum": "optimum (Belady)",
    "bound": "bound of any policy",
}
_ALWAYS = (
    (
        "hit rate",
        "Prompt tokens that a tier had when the request was admitted first, over all prompt "
        "tokens. Long requests count more than short ones.",
    ),
    ("device, host, storage hits", "The part of the hit tokens that each tier had."),
    (
        "first seen",
        "Prompt tokens that no earlier request of the trace has, in whole pages: no cache could "
        "have had them.",
    ),
    (
        "lost",
        "Prompt tokens that an earlier request had and that were computed again. The reason is "
        "that of the first page behind the hit.",
    ),
    (
        "ceiling",
        "The hit rate of an unbounded cache that is filled in the order of the trace: input less "
        "first seen.",
    ),
)
_TIMED = (
    (
        "time to first token (TTFT)",
        "From the arrival of a request to the end of the forward pass that made its first token, "
        "in the virtual time of the simulation. It is the sum of queue (no pass worked for the "
        "request), load (its passes waited for copies from host) and compute.",
    ),
    (
        "time per output token (TPOT)",
        "The time from the first token to the last, over the tokens after the first; of requests "
        "with two or more.",
    ),
    ("p50, p90, p99", "Observed values: this share of the requests took no longer."),
    ("transfers", "Bytes of all ranks together, counted when the copy ended."),
)
_CURVE = (
    (
        "capacity",
        "Tokens, or bytes of all ranks, that one cache of one tier holds. The curve has no clock: "
        "requests are served one by one, in the order of the trace.",
    ),
    (
        "optimum (Belady)",
        "Evicts what is needed again last, knowing the future. No real policy hits more.",
    ),
    (
        "working set",
        "The least capacity with which LRU hits all that any cache could hit.",
    ),
)
_SLO = (
    (
        "goodput",
        "Requests, or output tokens, per second of those requests that met every limit (SLO).",
    ),
    ("attained", "The share of the finished requests that met every limit."),
)
_PREFIXES = (
    (
        "hot prefix",
        "Pages that the same requests share, as one edge of the tree of all prompts. Reusable: "
        "prompt tokens of the later requests in these pages. Hit: how many of them the first "
        "replay of the report hit.",
    ),
)


NOT_JUDGED = "not validated"


def tail_judged(name: str, variants: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a tail of the time to first token (`p90`) was ever compared with published runs that
    are like these. What is judged until now is the median."""
    errors = [one["expected_error"] or {} for one in variants]
    return bool(errors) and all((one.get(f"ttft_{name}") or {}).get("runs") for one in errors)


def load_of(variant: Mapping[str, Any]) -> str:
    """The load that was played: requests a second, and how it was made of the trace."""
    config = variant["config"]
    if config.get("concurrency"):
        told = f"{_plain(config['concurrency'])} at once"
    elif config.get("closed_loop"):
        told = "closed loop"
    elif config.get("request_rate"):
        told = f"{_plain(config['request_rate'])} requests/s"
    else:
        told = f"{_plain(config.get('speed') or 1)} x the trace"
    sessions = config.get("scale_sessions") or 1
    return told if sessions == 1 else f"{told}, {_plain(sessions)} x its sessions"


def _plain(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, int | float) else str(value)


def load_told(variants: Sequence[Mapping[str, Any]]) -> str:
    """A sentence about the load of times that stand together."""
    loads = list(dict.fromkeys(load_of(one) for one in variants))
    return f"The load that was played: {'; '.join(loads)}."


def series_name(name: str) -> str:
    """The name of a series of tokens."""
    return f"lost: {reason_name(name[len(LOST) :])}" if name.startswith(LOST) else _SERIES[name]


def reason_name(reason: str) -> str:
    return _REASONS.get(reason) or reason_in_words(reason)


def policy_name(name: str) -> str:
    return _POLICIES.get(name, name)


def definitions(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(name, text) of every figure that the report shows."""
    found = list(_ALWAYS if document["variants"] else ())
    if any(one["latency_s"] for one in document["variants"]):
        found += _TIMED
    elif any(one["timeline"]["axis"] == REQUESTS for one in document["variants"]):
        found.append(("request", "The place of a request in the trace, from 0."))
    if document["slo"] or any(one["slo"] for one in document["variants"]):
        found += _SLO
    if document["curve"]:
        found += _CURVE
    if document["prefixes"]:
        found += _PREFIXES
    return found
