"""The options that a trace that is read once cannot have: each is refused in one line."""

from __future__ import annotations

from hicache.core.errors import CallerError

from ...terminal.options import UNBOUNDED
from ..options import ReplayOptions
from ..unread import flag

_WHOLE = (
    *("html", "plot", "why", "compare_eviction", "sample", "skip_too_large"),
    *("exclusive", "pin", "storage", "flush_host_every_round", "flush_device_every_round"),
    *("replicas", "prefill_replicas", "decode_replicas", "slo", "arrivals", "request_rate"),
    *("spread", "closed_loop", "think_time"),
)


def check(options: ReplayOptions) -> None:
    """Raises CallerError for an option that needs the whole trace, or each request at the end."""
    for name in _WHOLE:
        if getattr(options, name):
            raise CallerError(
                f"{flag(name)}: expected a trace that is held, found one that is read once "
                f"({options.trace}); leave the option out, or write the trace to a file and "
                "replay it without --stream"
            )
    if options.device_pages == UNBOUNDED:
        raise CallerError(
            "--device-pages: expected a number for a trace that is read once, found unbounded; "
            "give one"
        )
    if options.check == "every":
        raise CallerError(
            "--check: expected sampled or off for a trace that is read once, found every, which "
            "counts every request a second time; give one of them"
        )
