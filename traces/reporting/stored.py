"""What storage did in a replay, and what it did not do: tables, rows, sentences, advice.

Does not count anything; see traces/replaying.
"""

from __future__ import annotations

from rich.table import Table

from hicache.storage.base import Losses

from ..replaying.following import caps
from ..replaying.following.prefetches import WHOLE
from ..replaying.settings import Settings
from ..results.record import Result, Share, Storage
from ..terminal.tables import percent, table
from ..terminal.text import name as shown
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


def prefetch_table(storage: Storage) -> Table:
    """How prefetches ended."""
    result = table("Prefetches", "", "requests", "tokens asked", "found", "fetched")
    ended = storage.prefetches.ended
    for reason in sorted(ended, key=lambda one: [*_ENDS].index(one)):
        one = ended[reason]
        tokens = (one.asked_tokens, one.found_tokens, one.fetched_tokens)
        result.add_row(_ENDS[reason], f"{one.requests:,}", *(f"{count:,}" for count in tokens))
    result.add_section()
    result.add_row("lookups begun", f"{storage.prefetches.begun:,}", "", "", "")
    return result


def lost_table(storage: Storage) -> Table | None:
    """What tokens were lost to; None if none were lost."""
    if not storage.lost_tokens:
        return None
    result = table("Tokens lost to", "", "requests", "tokens")
    for reason, lost in storage.lost_tokens.items():
        result.add_row(reason_in_words(reason), f"{lost.requests:,}", f"{lost.tokens:,}")
    return result


def reason_in_words(reason: str) -> str:
    """The words of a table for a reason; a component's own name for a component."""
    return _REASONS.get(reason, f"no {reason} to continue from")


def transfer_rows(storage: Storage | None) -> list[tuple[str, str, str, str]]:
    """(what, values, gigabytes, busy seconds) of storage, for the table of tiers."""
    if storage is None:
        return []
    rows = []
    for what, moved in (("host to storage", storage.written), ("storage to host", storage.read)):
        busy = "-" if moved.busy_s is None else f"{moved.busy_s:,.3f}"
        done = f"{moved.values.get('done', 0):,}"
        rows.append((what, done, f"{moved.bytes_total / 1e9:,.2f}", busy))
        wrong = sorted((end, count) for end, count in moved.values.items() if end != "done")
        rows += [(f"  {end}", f"{count:,}", "", "") for end, count in wrong]
    return rows


def served(settings: Settings, found: Result) -> list[str]:
    """The sentences about storage; empty without one."""
    return [*_served(settings, found.whole, found.storage), *losses_told(found.storage)]


def _served(settings: Settings, share: Share, use: Storage | None) -> list[str]:
    if use is None:
        return []
    if hits := share.hit_tokens.storage:
        return [
            f"Storage served {hits:,} prompt tokens that neither the device nor host "
            f"memory held ({percent(share.rate(hits), 1)} of all)."
        ]
    if use.losses.lookups_unanswered or use.losses.reads_failed:
        return ["Storage served nothing, and it failed."]
    written = use.written.values.get("done", 0)
    if not written:
        return ["Storage served nothing, and nothing was written to it."]
    if not use.prefetches.begun:
        return ["Storage served nothing: every prefetch was below the threshold or the budget."]
    found = sum(one.found_tokens for one in use.prefetches.ended.values())
    if found:
        return ["Storage served nothing: what it had came too late, or found no room on host."]
    assert settings.storage is not None
    if use.evicted_values:
        return [
            "Storage served nothing: what requests lacked when they arrived was not in it any more "
            f"or had not been written to it. {use.evicted_values:,} of its values had to make room "
            "so far."
        ]
    full = ", or had made room (--storage-size)" if settings.storage.options.size_bytes else ""
    return [
        "Storage served nothing: what requests lacked when they arrived had not been written to "
        f"it{full}."
    ]


def advice(settings: Settings, use: Storage | None) -> str:
    """What to try next if one reason of storage explains half of the lost tokens; else empty."""
    storage = settings.storage
    if storage is None or use is None or not use.lost_tokens:
        return ""
    reason, most = next(iter(use.lost_tokens.items()))
    if 2 * most.tokens < sum(lost.tokens for lost in use.lost_tokens.values()):
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


_LOSSES = {
    "outages": "times that it stopped answering",
    "write_outages": "times that it stopped taking writes",
    "lookups_unanswered": "look-ups without an answer",
    "reads_failed": "reads that failed",
    "reads_missing": "values that it said it has, and had not",
    "reads_corrupt": "values that did not verify",
    "writes_refused": "writes that it did not take",
    "deletes_failed": "deletes that failed",
    "late": "answers that came too late",
    "waited_s": "seconds in calls that failed",
}


def losses_table(losses: Losses) -> Table | None:
    """What the store did not do; None if it did everything. Those of a real store are counted in
    values as it has them (see hicache/storage/base), those of a simulated one in pages."""
    if losses == Losses():
        return None
    result = table("Not done by storage", "", "")
    for name, words in _LOSSES.items():
        if count := getattr(losses, name):
            result.add_row(words, f"{count:,.1f}" if name == "waited_s" else f"{count:,}")
    return result


def losses_told(storage: Storage | None) -> list[str]:
    """What the store did not do, and what follows from that; empty if it did everything."""
    if storage is None:
        return []
    found = storage.losses
    told = [
        f"{words} {count:,} {unit}"
        for words, count, unit in (
            ("did not say whether it has", found.lookups_unanswered, "values"),
            ("did not deliver", found.reads_failed, "values"),
            ("promised and did not have", found.reads_missing, "values"),
            ("delivered", found.reads_corrupt, "values that did not verify"),
            ("did not take", found.writes_refused, "values"),
        )
        if count
    ]
    if not told:
        return []
    *first, last = told
    parts = f"{', '.join(first)} and {last}" if first else last
    times = [
        f"{words} {'once' if count == 1 else f'{count:,} times'}"
        for words, count in (
            ("stopped answering", found.outages),
            ("stopped taking writes", found.write_outages),
        )
        if count
    ]
    out = f" (it {' and '.join(times)})" if times else ""
    follows = (
        ["what it might have served was computed"] if len(told) > bool(found.writes_refused) else []
    )
    follows += ["later runs lack what it did not take"] if found.writes_refused else []
    return [f"Storage {parts}{out}: {', and '.join(follows)}."]
