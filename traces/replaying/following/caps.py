"""What capped the hit of a request in each tier and pool, and what its lost tokens were lost to.

A cap is about the first page behind the hit, in one tier and component:

    there            the tier has it; another tier or component ended the hit
    first_seen       no earlier request of the trace has it
    not_ready        an earlier request still computes it, or waits for that
    never_backed_up  it was on device and was never copied to host (`--write-policy`)
    never_stored     it was on host and was never made durable
    store_failed     storage did not take it
    evicted          it was there before

The lost tokens of a request have one reason: why the last tier, storage, did not bring that page.
Besides those above, and the ends of a prefetch (`too_short`, `budget`, `no_host_pages`, `late`,
`flushed`, `detached`):

    short_read, corrupt, failed  storage said that it has the page, and did not deliver it; failed
                                 also if it did not say whether it has it
    evicted_from_storage, lost_in_storage, deleted  it was stored, and is gone
    evicted_while_waiting        it was cached when the request arrived, or its prefetch brought it,
                                 and it was evicted before the request was admitted

Reads what history followed; does not observe a run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from hicache.core.actions import Admitted, Fetch, Lookup, Prefetched
from hicache.core.types import BACKBONE, Pages, Tier
from hicache.storage.base import Status
from sim.storage.contents import Fate

from .page_fates import PageFates

THERE, FIRST_SEEN, NOT_READY, EVICTED = "there", "first_seen", "not_ready", "evicted"
NEVER_BACKED_UP, NEVER_STORED = "never_backed_up", "never_stored"
STORE_FAILED, WAITING = "store_failed", "evicted_while_waiting"
_ENDS = ("too_short", "budget", "no_host_pages", "late", "flushed", "detached")
_SHORT = {Status.CORRUPT: "corrupt", Status.MISSING: "short_read"}
_FATES = {
    Fate.EVICTED: "evicted_from_storage",
    Fate.LOST: "lost_in_storage",
    Fate.CORRUPT: "corrupt",
    Fate.DELETED: "deleted",
}


class Caps(NamedTuple):
    """By tier and component, what capped the hit. reason: what the lost tokens were lost to; empty
    if it lost none, or if a component ended the hit whose backbone was there."""

    tiers: Mapping[str, Mapping[str, str]]
    reason: str


@dataclass(slots=True)
class Prefetch:
    """What happened to the prefetch of one request, as far as it got."""

    lookup: Lookup | None = None
    fetch: Fetch | None = None
    told: Prefetched | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """What a store can say. short: why a lookup or fetch was cut short, by flight. fate: of a value
    that is not there, by component and digest."""

    short: Callable[[int], Status | None] = lambda flight: None
    fate: Callable[[str, bytes], Fate] = lambda component, digest: Fate.NEVER


def caps_of(
    fates: PageFates,
    components: Sequence[str],
    chain: Pages,
    admitted: Admitted,
    wanted: int,
    prefetch: Prefetch,
    asked: Asked,
) -> Caps:
    """The caps of an admission. wanted: leading pages of the chain that it could have reused."""
    hits = {
        Tier.DEVICE: admitted.device_pages,
        Tier.HOST: admitted.device_pages + admitted.host_pages,
    }
    hits[Tier.STORAGE] = hit = hits[Tier.HOST]
    tiers = {
        tier.name.lower(): {
            name: _cap(fates, tier, index, int(chain[depth])) if depth < wanted else FIRST_SEEN
            for index, name in enumerate(components)
        }
        for tier, depth in hits.items()
    }
    reason = ""
    if hit < wanted:
        reason = _reason(fates, components[BACKBONE], int(chain[hit]), hit, prefetch, asked)
    return Caps(tiers, reason)


def _cap(fates: PageFates, tier: Tier, index: int, page: int) -> str:
    if fates.has(tier, index, page):
        return THERE
    if fates.had(tier, index, page):
        return EVICTED
    if tier == Tier.DEVICE:
        return NOT_READY
    if tier == Tier.HOST:
        return NEVER_BACKED_UP if fates.had(Tier.DEVICE, index, page) else NOT_READY
    if fates.store_failed(index, page):
        return STORE_FAILED
    return (
        NEVER_STORED if fates.had(Tier.HOST, index, page) else _cap(fates, Tier.HOST, index, page)
    )


def _reason(
    fates: PageFates, backbone: str, page: int, hit: int, prefetch: Prefetch, asked: Asked
) -> str:
    if fates.has(Tier.DEVICE, BACKBONE, page) or fates.has(Tier.HOST, BACKBONE, page):
        return ""
    local = _cap(fates, Tier.HOST, BACKBONE, page)
    if local == NOT_READY:
        return NOT_READY
    told = prefetch.told
    if told is None or hit < told.first_page + told.fetched_pages:
        return WAITING
    if told.reason in _ENDS:
        return str(told.reason)
    if told.reason == "short":
        status = asked.short(prefetch.fetch.flight) if prefetch.fetch is not None else None
        return _SHORT.get(status, "failed") if status is not None else "failed"
    lookup = prefetch.lookup
    cap = _cap(fates, Tier.STORAGE, BACKBONE, page)
    if cap == STORE_FAILED:
        return cap
    if lookup is not None and asked.short(lookup.flight) is not None:
        return "failed"  # nobody knows what it has
    if cap == THERE:  # the lookup failed, or the core does not trust the page any more
        cap = "failed"
    if lookup is not None and lookup.first_page <= hit < lookup.first_page + len(lookup.digests):
        fate = asked.fate(backbone, lookup.digests[hit - lookup.first_page])
        return _FATES.get(fate, cap)
    return WAITING if hit >= told.first_page + told.asked_pages else cap


def lost_by_reason(
    rows: Iterable[tuple[int, int]], ended_by: Callable[[int], str], caps: Mapping[int, Caps]
) -> dict[str, tuple[int, int]]:
    """(requests, tokens) by reason, the largest first. rows: requests and the tokens that they
    lost. ended_by: what ended the hit, for those without a reason of storage."""
    found: dict[str, tuple[int, int]] = {}
    for request, tokens in rows:
        if tokens:
            reason = lost_to(request, ended_by, caps)
            requests, before = found.get(reason, (0, 0))
            found[reason] = requests + 1, before + tokens
    return dict(sorted(found.items(), key=lambda item: -item[1][1]))


def lost_to(request: int, ended_by: Callable[[int], str], caps: Mapping[int, Caps]) -> str:
    """The reason of one request; see `lost_by_reason`."""
    told = caps.get(request)
    return (told.reason if told is not None else "") or ended_by(request)
