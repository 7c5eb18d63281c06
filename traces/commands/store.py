"""`hicache store`: what a store of pages holds; verifies it and cleans it up."""

from __future__ import annotations

import re
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from hicache.core.errors import CallerError
from hicache.storage import keys
from hicache.storage.address import open_storage, parse, shown
from hicache.storage.base import Entry, Status, Storage, StorageOptions, listening
from hicache.storage.verified import HEADER_BYTES, Verified

from ..reporting.head import head
from ..terminal import options as read
from ..terminal.options import OptionRecord, option
from ..terminal.output import check_outputs, write_json
from ..terminal.streams import ignore_broken_pipe, print_error
from ..terminal.tables import console, pairs, progress, table

WRONG_BYTES = 12
OTHER = ""  # the context of values whose keys are not of this format
_TIMEOUT_S = 10.0
_CHECKED_AT_ONCE, _BYTES_AT_ONCE, _DELETED_AT_ONCE = 64, 64 << 20, 256
_SHOWN = 20  # corrupt keys
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def duration(text: str) -> int:
    """Seconds of a text such as 90s, 30m, 12h or 7d."""
    match = re.fullmatch(r"(\d{1,9})([smhd])", text, re.ASCII)
    if match is None:
        raise ValueError(f"expected a time such as 12h or 7d, found {text!r}")
    return int(match[1]) * _UNITS_S[match[2]]


@dataclass(frozen=True, slots=True)
class OfStore(OptionRecord):
    """What every action on a store has."""

    address: str = option("the store, such as file:DIR", str, "ADDRESS", positional=True)
    json: str | None = option(
        "also write the results to this file as JSON; - is stdout", read.output, "FILE"
    )


@dataclass(frozen=True, slots=True)
class Check(OfStore):
    delete: bool = option("delete what does not verify", default=False)


@dataclass(frozen=True, slots=True)
class Gc(OfStore):
    """size: bytes. unused_for: seconds."""

    size: int | None = option("keep at most this much, such as 20GB", read.byte_size, "BYTES")
    unused_for: int | None = option(
        "delete what was not used for this long, such as 12h or 7d", duration, "TIME"
    )
    context: str | None = option(
        "delete pages of this context alone (see hicache store list); all of them without --size "
        "and --unused-for",
        str,
        "BEGINNING",
    )
    dry_run: bool = option("only say what would be deleted", default=False)


@contextmanager
def _opened(options: OfStore) -> Iterator[Storage]:
    """The store at the address, which must be there. Raises CallerError."""
    check_outputs({}, json=options.json)
    address = parse(options.address)
    store = open_storage(address, StorageOptions(timeout_s=_TIMEOUT_S, create=False))
    if wrong := store.troubles():
        print_error(f"storage: {shown(address)}: {wrong}")
    try:
        yield store
    except OSError as error:
        raise CallerError(
            f"storage: expected a store that can be listed, found: {error.strerror or error}; see "
            "whether it answers"
        ) from error
    finally:
        store.close()


def _tell(options: OfStore, command: str, result: Mapping[str, object], *parts: Any) -> None:
    """Print what was found, and write the result as JSON if that is asked for."""
    with ignore_broken_pipe():
        out = console(sys.stderr if options.json == "-" else sys.stdout)
        for part in parts:
            out.print(part, soft_wrap=isinstance(part, str))
    if options.json:
        write_json(options.json, head(command, complete=True) | dict(result))


@dataclass
class Part:
    """The values of one pool and shard. used_at_s: the latest use, 0 if the store does not say."""

    pool: str
    shard: str
    values: int = 0
    bytes: int = 0
    used_at_s: float = 0.0


@dataclass
class Owner:
    """One context: its document (None if its text is not stored, or is not that of the context)
    and its values. pages: digests."""

    context: str
    document: dict[str, Any] | None = None
    parts: dict[tuple[str, str], Part] = field(default_factory=dict)
    pages: set[str] = field(default_factory=set)

    @property
    def used_at_s(self) -> float:
        return max((part.used_at_s for part in self.parts.values()), default=0.0)

    @property
    def name(self) -> str:
        """Its beginning, for a table and for `gc --context`."""
        return self.context[:12] or "(other keys)"

    def named(self, *fields: str) -> str:
        """Fields of the document for a table."""
        known = self.document or {}
        return " ".join(str(known[one]) for one in fields if known.get(one)) or "?"


def _owners(store: Storage) -> list[Owner]:
    """Every context that has values, the one that was used last first."""
    found: dict[str, Owner] = {}
    for entry in store.entries(""):
        key = keys.take_apart(entry.key) or keys.StoredKey(OTHER, "", "", "")
        owner = found.setdefault(key.context, Owner(key.context))
        if key.context != OTHER and not key.pool:
            owner.document = _document(store, entry)
            continue
        part = owner.parts.setdefault((key.pool, key.shard), Part(key.pool, key.shard))
        part.values += 1
        part.bytes += entry.size_bytes
        part.used_at_s = max(part.used_at_s, entry.used_at_s)
        if key.digest:
            owner.pages.add(key.digest)
    return sorted(found.values(), key=lambda one: (-one.used_at_s, one.context))


def _document(store: Storage, entry: Entry) -> dict[str, Any] | None:
    """The document of the context whose text is stored there."""
    text = bytearray(max(0, entry.size_bytes - HEADER_BYTES))
    checked = Verified(store, delete_corrupt=False)
    if checked.read([entry.key], [(memoryview(text),)]) != [Status.DONE]:
        return None
    return keys.document_of(bytes(text), entry.key.partition("/")[0])


def _list(options: OfStore, command: str) -> int:
    with _opened(options) as store:
        found = _owners(store)
    shown_rows = table("Contexts", "context", "model", "page", "pages", "MB", "last used")
    for column in (0, -1):
        shown_rows.columns[column].no_wrap = True
    shown_rows.columns[1].justify = "left"
    contexts = []
    for owner in found:
        size = sum(part.bytes for part in owner.parts.values())
        contexts.append(
            {
                "context": owner.context,
                "document": owner.document,
                "pages": len(owner.pages),
                "values": sum(part.values for part in owner.parts.values()),
                "bytes": size,
                "used_at_s": owner.used_at_s,
            }
        )
        used = f"{datetime.fromtimestamp(owner.used_at_s):%Y-%m-%d %H:%M}"
        shown_rows.add_row(
            owner.name,
            owner.named("model", "revision"),
            owner.named("page_size"),
            f"{len(owner.pages):,}",
            f"{size / 1e6:,.1f}",
            used if owner.used_at_s else "?",
        )
    _tell(options, command, {"contexts": contexts}, shown_rows if found else "The store is empty.")
    return 0


def _stats(options: OfStore, command: str) -> int:
    with _opened(options) as store:
        found, figures = _owners(store), store.stats()
    parts = [(owner, part) for owner in found for part in owner.parts.values()]
    figure_rows = [
        (name.replace("_", " "), f"{value:,}" if isinstance(value, int) else str(value))
        for name, value in figures.items()
    ]
    shown_rows = table("Values", "context", "model", "pool", "shard", "values", "MB")
    shown_rows.columns[0].no_wrap = True
    for owner, part in parts:
        figures_of = (f"{part.values:,}", f"{part.bytes / 1e6:,.1f}")
        shown_rows.add_row(owner.name, owner.named("model"), part.pool, part.shard, *figures_of)
    result = [{"context": owner.context, **asdict(part)} for owner, part in parts]
    both = {"store": figures, "parts": result}
    _tell(options, command, both, pairs("Store", figure_rows), shown_rows)
    return 0


def _check(options: Check, command: str) -> int:
    """Reads every value. Code 12 if one is not what was written and stays where it is."""
    with _opened(options) as store:
        entries = sorted(store.entries(""))
        with progress("check", len(entries), "values") as report:
            found = _verify(store, entries, options.delete, report)
    wrong = [key for key, status in found.items() if status is Status.CORRUPT]
    counts = Counter(found.values())
    result = {
        "values": len(entries),
        "bytes": sum(entry.size_bytes for entry in entries),
        "verified": counts[Status.DONE],
        "corrupt": wrong,
        "gone": counts[Status.MISSING],
        "unread": counts[Status.FAILED],
        "deleted": options.delete,
    }
    told = [f"{counts[Status.DONE]:,} of {len(entries):,} values are what was written."]
    told += [f"corrupt: {key}" for key in wrong[:_SHOWN]]
    if wrong:
        told += [f"... and {len(wrong) - _SHOWN:,} more"] * (len(wrong) > _SHOWN)
        told.append("deleted" if options.delete else "read as missing; --delete deletes them")
    if counts[Status.MISSING]:
        told.append(f"{counts[Status.MISSING]:,} went away meanwhile")
    _tell(options, command, result, *told)
    if counts[Status.FAILED]:
        raise CallerError(
            f"storage: expected a store that answers, found {counts[Status.FAILED]:,} values that "
            "could not be read; try again when it does"
        )
    return WRONG_BYTES if wrong and not options.delete else 0


def _verify(
    store: Storage, entries: Sequence[Entry], delete: bool, report: Callable[[int], None]
) -> dict[str, Status]:
    """What became of reading each value."""
    checked = Verified(store, delete_corrupt=delete)
    found: dict[str, Status] = {}
    first = 0
    while first < len(entries):
        some, size = [entries[first]], entries[first].size_bytes
        for entry in entries[first + 1 : first + _CHECKED_AT_ONCE]:
            size += entry.size_bytes
            if size > _BYTES_AT_ONCE:
                break
            some.append(entry)
        values = [memoryview(bytearray(max(0, one.size_bytes - HEADER_BYTES))) for one in some]
        statuses = checked.read([one.key for one in some], [(value,) for value in values])
        for entry, value, status in zip(some, values, statuses, strict=True):
            key = keys.take_apart(entry.key)
            if status is Status.DONE and key is not None and not key.pool:
                right = keys.document_of(bytes(value), key.context) is not None
                status = Status.DONE if right else Status.CORRUPT
            found[entry.key] = status
        first += len(some)
        report(first)
    return found


@dataclass(frozen=True, slots=True)
class Page:
    """The values that are useless without each other, of every pool and shard. context: empty
    for a value whose key is not of this format."""

    context: str
    values: tuple[Entry, ...]

    @property
    def bytes(self) -> int:
        return sum(entry.size_bytes for entry in self.values)

    @property
    def used_at_s(self) -> float:
        return max(entry.used_at_s for entry in self.values)


def _gc(options: Gc, command: str) -> int:
    """Deletes pages until the store is small or fresh enough, least used first. The text of a
    context goes with its last page."""
    if options.size is None and options.unused_for is None and not options.context:
        raise CallerError("store gc: expected --size, --unused-for or --context, found none")
    with _opened(options) as store:
        pages = sorted(_pages(store, options.context or ""), key=lambda page: page.used_at_s)
        if options.context and not pages:
            _check_context(store, options.context)
        gone = list(_too_much(pages, options, time.time()))
        failed, why = set[str](), ""
        if not options.dry_run:
            failed, why = _delete(store, gone, {*pages} - {*gone})
    gone = [page for page in gone if failed.isdisjoint(entry.key for entry in page.values)]
    size, deleted = (sum(page.bytes for page in some) for some in (pages, gone))
    result = {
        "dry_run": options.dry_run,
        "pages": len(pages),
        "bytes": size,
        "deleted_pages": len(gone),
        "deleted_bytes": deleted,
        "failed_values": len(failed),
    }
    told = (
        f"{'Would delete' if options.dry_run else 'Deleted'} {len(gone):,} of {len(pages):,} "
        f"pages, {deleted / 1e6:,.1f} MB of {size / 1e6:,.1f} MB."
    )
    _tell(options, command, result, told)
    if failed:
        raise CallerError(
            f"storage: expected a store that deletes, found {len(failed):,} values that it kept"
            f"{why and f' ({why})'}; see whether it can be written"
        )
    return 0


def _check_context(store: Storage, prefix: str) -> None:
    """Raises CallerError if no context begins with `prefix`."""
    found = _owners(store)
    if not any(owner.context.startswith(prefix) for owner in found):
        known = ", ".join(owner.name for owner in found[:5]) or "none"
        raise CallerError(
            f"context: expected the beginning of one that is stored ({known}), found {prefix!r}"
        )


def _pages(store: Storage, context: str) -> Iterator[Page]:
    families: defaultdict[tuple[str, str], list[Entry]] = defaultdict(list)
    for entry in store.entries(context):
        key = keys.take_apart(entry.key)
        if key is None:
            families[OTHER, entry.key].append(entry)
        elif key.pool:
            families[key.context, key.digest].append(entry)
    for (owner, _), values in families.items():
        yield Page(owner, tuple(values))


def _too_much(pages: Sequence[Page], options: Gc, now_s: float) -> Iterator[Page]:
    """Which of the pages go; they are sorted by their last use."""
    left = sum(page.bytes for page in pages)
    everything = options.size is None and options.unused_for is None
    for page in pages:
        large = options.size is not None and left > options.size
        unused_s = now_s - page.used_at_s if page.used_at_s else 0
        old = options.unused_for is not None and unused_s > options.unused_for
        if everything or large or old:
            left -= page.bytes
            yield page


def _delete(store: Storage, gone: Sequence[Page], kept: Iterable[Page]) -> tuple[set[str], str]:
    """Delete the pages, and the texts of contexts of which nothing is kept; the values that the
    store did not delete, and why."""
    empty = {page.context for page in gone} - {page.context for page in kept} - {OTHER}
    names = [entry.key for page in gone for entry in page.values]
    names += [keys.context_key(context) for context in sorted(empty)]
    failed: set[str] = set()
    with progress("gc", len(names), "values") as report, listening() as heard:
        for first in range(0, len(names), _DELETED_AT_ONCE):
            some = names[first : first + _DELETED_AT_ONCE]
            found = zip(some, store.delete(some), strict=True)
            failed |= {key for key, one in found if one not in (Status.DONE, Status.MISSING)}
            report(first + len(some))
    return failed, "".join(heard)


class Action(NamedTuple):
    SUMMARY: str
    Options: type[OptionRecord]
    run: Callable[[Any, str], int]


def actions() -> dict[str, Action]:
    return {
        "check": Action("read and verify every value in a store", Check, _check),
        "gc": Action("delete the least recently used pages, down to a size or an age", Gc, _gc),
        "list": Action("list whose pages a store holds: model, page size, pools", OfStore, _list),
        "stats": Action("count pages and bytes by context, pool and shard", OfStore, _stats),
    }
