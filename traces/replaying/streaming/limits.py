"""The options that a trace that is read once cannot have: each is refused in one line."""

from __future__ import annotations

from hicache.core.errors import CallerError

from ...terminal.options import UNBOUNDED
from ...terminal.rows import flag
from ..declared.needs import Need
from ..options import ReplayOptions, that_need


def check(options: ReplayOptions) -> None:
    """Raises CallerError for an option that needs the whole trace, or each request at the end."""
    for name in that_need(Need.HELD):
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
