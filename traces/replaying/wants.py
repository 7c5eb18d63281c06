"""Pinned prefixes and the time to live of a replay: what the options mean for the core and the run.

Does not feed the core (see sim/wants) or parse the command line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hicache.core.components.base import Component
from hicache.core.errors import CallerError
from hicache.core.types import Tier
from sim.engine.sequence import final_length
from sim.wants import PERIODS, PinnedPrefix, WantOptions

from ..formats.base import Paged, Trace


@dataclass(frozen=True, slots=True)
class Pin:
    """A prefix to pin: the first tokens of a request's prompt. str() is what the user writes."""

    request: int
    tokens: int
    tier: Tier = Tier.DEVICE

    def __str__(self) -> str:
        return f"{self.request}:{self.tokens}{'@host' if self.tier == Tier.HOST else ''}"


class Pins(tuple[Pin, ...]):
    """The value of --pin."""

    def __str__(self) -> str:
        return ",".join(map(str, self))


def wants_of(
    pins: Pins | None, ttl_ns: int | None, trace: Trace, paged: Paged, mode: str
) -> WantOptions:
    """What the run tells the core. Raises CallerError for a pin of a prefix that the trace does not
    have, and for a time to live without times."""
    followers = trace.jobs.afters >= 0
    if ttl_ns and mode == "hits" and followers.any():
        raise CallerError(
            f"--ttl: expected a time of arrival for every request in hits mode, found "
            f"{int(followers.sum())} that follow others; use --mode timed"
        )
    found = []
    for pin in pins or ():
        if pin.request >= len(trace.jobs):
            raise CallerError(
                f"--pin: expected a request from 0 to {len(trace.jobs) - 1}, found {pin.request}"
            )
        most = paged.prompt_key(trace.jobs[pin.request]).pages
        pages = pin.tokens // paged.page_size
        if not 0 < pages <= most:
            raise CallerError(
                f"--pin {pin}: expected {paged.page_size} to {most * paged.page_size} tokens (the "
                f"whole pages of that prompt), found {pin.tokens}"
            )
        found.append(PinnedPrefix(pin.request, pages, pin.tier))
    return WantOptions(ttl_ns or 0, tuple(found))


def core_options(wants: WantOptions, components: list[Component]) -> dict[str, Any]:
    """The settings of the core: its bounds are what the pins need."""
    found: dict[str, Any] = {"ttl_periods": PERIODS} if wants.ttl_ns else {}
    for tier, name in ((Tier.DEVICE, "pin_pages"), (Tier.HOST, "pin_host_pages")):
        pins = [pin for pin in wants.pins if pin.tier == tier]
        if pins:
            found[name] = tuple(
                sum(min(pin.pages, one.window_pages) if one.positional else 1 for pin in pins)
                for one in components
            )
    return found


def check_room(wants: WantOptions, paged: Paged, device_pages: int, host_pages: int) -> None:
    """Raises CallerError if the pins leave too little room for the largest request, or for
    themselves."""
    pinned = {
        tier: sum(pin.pages for pin in wants.pins if pin.tier == tier)
        for tier in (Tier.DEVICE, Tier.HOST)
    }
    if pinned[Tier.HOST] > host_pages:
        raise CallerError(
            f"--pin: expected at most the {host_pages} pages of host, found "
            f"{pinned[Tier.HOST]}; enlarge the host pool"
        )
    if not pinned[Tier.DEVICE]:
        return
    largest = max(-(-final_length(job) // paged.page_size) for job in paged.jobs)
    if pinned[Tier.DEVICE] + largest > device_pages:
        raise CallerError(
            f"--pin: expected at most {max(0, device_pages - largest)} pages beside the largest "
            f"request's {largest}, found {pinned[Tier.DEVICE]}; pin less, or on host"
        )
