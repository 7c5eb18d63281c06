"""How a native trace says in which way the client of a benchmark sends its requests.

Lives here: the field `sender` of the header, written and read. Does not send anything (see
sim/sending).
"""

from __future__ import annotations

from typing import Any

from sim.sending import DISTRIBUTIONS, POLICIES, SenderOptions

from . import base
from .base import Lines, Record

_NS_PER_S = 1_000_000_000
_LEAST_RATE, _MOST_RATE = 1e-6, 1e6  # requests per second
_MOST = (1 << 31) - 1
_FIELDS = {
    "request_rate",
    "distribution",
    "max_parallel",
    "ready_queue_policy",
    "round_barrier",
    "barrier_pause_ms",
    "seed",
}


def written(options: SenderOptions) -> Record:
    """The field. Without a rate everything that is ready is sent at once."""
    record: Record = {
        "max_parallel": options.max_parallel,
        "ready_queue_policy": options.policy,
        "round_barrier": options.barrier,
        "barrier_pause_ms": options.pause_ns / base.NS_PER_MS,
        "seed": options.seed,
    }
    if options.gap_ns:
        record["request_rate"] = _NS_PER_S / options.gap_ns
        record["distribution"] = options.distribution
    return record


def read(lines: Lines, header: Record) -> SenderOptions | None:
    """The field of a header; None without one. Raises CallerError with the line."""
    if "sender" not in header:
        return None
    found = header["sender"]
    if type(found) is not dict or not found.keys() <= _FIELDS:
        known = ", ".join(sorted(_FIELDS))
        lines.wrong_field(header, "sender", f"an object with no fields but {known}")
    plain = SenderOptions()
    gap_ns = 0
    if "request_rate" in found:
        rate = found["request_rate"]
        if type(rate) not in (int, float) or not _LEAST_RATE <= rate <= _MOST_RATE:
            expected = f"requests per second, {_LEAST_RATE:g} to {_MOST_RATE:g}"
            lines.wrong_field(found, "request_rate", expected)
        gap_ns = max(1, round(_NS_PER_S / rate))
    barrier = found.get("round_barrier", plain.barrier)
    if type(barrier) is not bool:
        lines.wrong_field(found, "round_barrier", "true or false")
    pause_ns = 0
    if "barrier_pause_ms" in found:
        pause_ns = base.nanoseconds(lines, found, "barrier_pause_ms")
    return SenderOptions(
        gap_ns=gap_ns,
        distribution=_one_of(lines, found, "distribution", DISTRIBUTIONS, plain.distribution),
        max_parallel=_number(lines, found, "max_parallel", plain.max_parallel),
        policy=_one_of(lines, found, "ready_queue_policy", POLICIES, plain.policy),
        barrier=barrier,
        pause_ns=pause_ns,
        seed=_number(lines, found, "seed", plain.seed),
    )


def _number(lines: Lines, found: Record, field: str, usual: int) -> int:
    return base.integer(lines, found, field, 0, _MOST) if field in found else usual


def _one_of(lines: Lines, found: Record, field: str, known: tuple[str, ...], usual: str) -> str:
    value: Any = found.get(field, usual)
    if value not in known:
        lines.wrong_field(found, field, f"one of {', '.join(known)}")
    return str(value)
