"""What storage did in a replay: the table of prefetches, the rows of its transfers, a sentence.

Does not count anything; see traces/replaying.
"""

from __future__ import annotations

from rich.table import Table

from ..replaying.account import Share
from ..replaying.following import caps
from ..replaying.following.prefetches import WHOLE
from ..replaying.run import NS_PER_S, Run
from ..replaying.settings import Settings
from ..terminal.tables import percent, table
from ..terminal.text import name as shown
from . import losses
from .amounts import gigabytes

_ENDS = {
    WHOLE: "brought what it asked for",
    "miss": "storage had fewer pages, or did not say",
    "too_short": "fewer tokens than the threshold",
    "budget": "too many tokens under way",
    "no_host_pages": "no room on host",
    "short": "storage delivered less than it said",
    "late": "the request did not wait longer",
    "flushed": "the cache was flushed",
    "detached": "storage was detached",
}

_REASONS = {
    caps.NOT_READY: "still being computed by another request",
    caps.EVICTED: "evicted, also from storage",
    caps.NEVER_BACKED_UP: "evicted from the device, never copied to host",
    caps.NEVER_STORED: "evicted from host before it was stored",
    caps.STORE_FAILED: "storage did not take it",
    caps.WAITING: "evicted while the request waited",
    "too_short": "too few tokens to fetch (--prefetch-threshold)",
    "budget": "too many tokens being fetched (--prefetch-budget)",
    "no_host_pages": "no room on host to fetch it",
    "late": "fetched too late",
    "flushed": "the cache was flushed",
    "detached": "storage was detached",
    "short_read": "storage said that it has it, and did not",
    "corrupt": "storage had it, and it did not verify",
    "failed": "storage failed or did not answer",
    "evicted_from_storage": "evicted from storage (--storage-size)",
    "lost_in_storage": "storage took it and lost it",
    "deleted": "deleted from storage",
    "not_loaded": "on host, not loaded (--load-threshold, --load-quota)",
    "together": "no boundary suits all components",
    "complete": "computed for its logits",
}


def setting_rows(settings: Settings) -> list[tuple[str, str]]:
    """The rows of the head of a report."""
    rows = []
    storage, core = settings.storage, settings.core
    if storage is not None:
        link = storage.options
        size = f"{link.size_bytes / 1e9:,.4g} GB" if link.size_bytes else "no limit"
        speed = (
            f"{link.read_bytes_per_s / 1e9:g} GB/s read, {link.write_bytes_per_s / 1e9:g} written"
        )
        if settings.mode == "hits":
            speed = "no clock"
        rows = [
            ("storage", f"{shown(storage.address)}: {size}, {speed}"),
            ("prefetch", f"{storage.policy}, {core.prefetch_threshold_tokens:,} tokens or more"),
        ]
    if settings.flushed:
        tiers = " and ".join(tier.name.lower() for tier in settings.flushed)
        rows.append(("rounds", f"{tiers} emptied between rounds"))
    return rows


def prefetch_table(settings: Settings, run: Run) -> Table | None:
    """How prefetches ended; None without storage."""
    if run.storage is None:
        return None
    result = table("Prefetches", "", "requests", "tokens asked", "found", "fetched")
    size, ended = settings.core.page_size, run.storage.prefetches.ended
    for reason in sorted(ended, key=lambda one: [*_ENDS].index(one)):
        one = ended[reason]
        pages = (one.asked_pages, one.found_pages, one.fetched_pages)
        cells = [f"{count * size:,}" for count in pages]
        result.add_row(_ENDS[reason], f"{one.requests:,}", *cells)
    result.add_section()
    result.add_row("lookups begun", f"{run.storage.prefetches.begun:,}", "", "", "")
    return result


def lost_by_reason(run: Run) -> dict[str, tuple[int, int]]:
    """(requests, tokens) that had been seen before and were not hit, by reason; with storage."""
    history = run.history
    if history is None:
        return {}
    rows = [(row.request, row.lost) for row in run.account.rows()]
    return caps.lost_by_reason(rows, lambda one: history.misses[one].ended_by, history.caps)


def lost_table(run: Run) -> Table | None:
    """What tokens were lost to; None without storage, or if none were lost."""
    lost = lost_by_reason(run) if run.storage is not None else {}
    if not lost:
        return None
    result = table("Tokens lost to", "", "requests", "tokens")
    for reason, (requests, tokens) in lost.items():
        result.add_row(reason_in_words(reason), f"{requests:,}", f"{tokens:,}")
    return result


def reason_in_words(reason: str) -> str:
    """The words of a table for a reason; a component's own name for a component."""
    return _REASONS.get(reason, f"no {reason} to continue from")


def transfer_rows(run: Run) -> list[tuple[str, str, str, str]]:
    """(what, values, gigabytes, busy seconds) of storage, for the table of tiers."""
    use = run.storage
    if use is None:
        return []
    rows = []
    for what, moved, ends in (
        ("host to storage", use.written, use.written_ends),
        ("storage to host", use.read, use.read_ends),
    ):
        busy = "-" if moved.busy_ns is None else f"{moved.busy_ns / NS_PER_S:,.3f}"
        rows.append((what, f"{ends.get('done', 0):,}", f"{moved.bytes / 1e9:,.2f}", busy))
        wrong = sorted((end, count) for end, count in ends.items() if end != "done")
        rows += [(f"  {end}", f"{count:,}", "", "") for end, count in wrong]
    return rows


def served(share: Share, settings: Settings, run: Run) -> list[str]:
    """The sentences about storage; empty without one."""
    return [*_served(share, settings, run), *losses.sentences(run)]


def _served(share: Share, settings: Settings, run: Run) -> list[str]:
    use = run.storage
    if use is None:
        return []
    if share.storage:
        return [
            f"Storage served {share.storage:,} prompt tokens that neither the device nor host "
            f"memory held ({percent(share.rate(share.storage), 1)} of all)."
        ]
    if use.losses.lookups_unanswered or use.losses.reads_failed:
        return ["Storage served nothing, and it failed."]
    written = use.written_ends.get("done", 0)
    if not written:
        return ["Storage served nothing, and nothing was written to it."]
    if not use.prefetches.begun:
        return ["Storage served nothing: every prefetch was below the threshold or the budget."]
    found = sum(one.found_pages for one in use.prefetches.ended.values())
    if found:
        return ["Storage served nothing: what it had came too late, or found no room on host."]
    assert settings.storage is not None
    if use.evicted:
        return [
            "Storage served nothing: what requests lacked when they arrived was not in it any more "
            f"or had not been written to it. {use.evicted:,} of its values had to make room so far."
        ]
    full = ", or had made room (--storage-size)" if settings.storage.options.size_bytes else ""
    return [
        "Storage served nothing: what requests lacked when they arrived had not been written to "
        f"it{full}."
    ]


def advice(settings: Settings, run: Run) -> str:
    """What to try next if one reason of storage explains half of the lost tokens; else empty."""
    storage, lost = settings.storage, lost_by_reason(run)
    if storage is None or not lost:
        return ""
    reason, (_, tokens) = next(iter(lost.items()))
    if 2 * tokens < sum(one for _, one in lost.values()):
        return ""
    size = 2 * storage.options.size_bytes
    room = "a disk or server with more room for the store, which has no --storage-size of its own"
    longer = "--prefetch wait_complete" if storage.limit is None else "a longer --prefetch-limit"
    tried = {
        "too_short": "--prefetch-threshold 0, which fetches every hit",
        "budget": "a larger --prefetch-budget",
        "late": longer,
        "evicted_from_storage": f"--storage-size {gigabytes(size, '')}, twice the storage"
        if size
        else room,
        caps.NEVER_BACKED_UP: "--write-policy write_through, which copies every page to host",
    }.get(reason)
    return f"Try {tried}." if tried else ""
