"""What a store holds: its values counted by context, pool and shard, and what each context is.

Shared by the actions that look into a store, with how they tell what they found. Does not delete.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hicache.core.errors import CallerError
from hicache.storage import keys
from hicache.storage.address import open_storage, parse, shown
from hicache.storage.base import Entry, Status, Storage, StorageOptions
from hicache.storage.verified import HEADER_BYTES, Verified

from ..reporting.head import head
from ..terminal import options as read
from ..terminal.options import OptionRecord
from ..terminal.output import check_outputs, write_json
from ..terminal.rows import option
from ..terminal.streams import ignore_broken_pipe, print_error
from ..terminal.tables import console

OTHER = ""  # the context of values whose keys are not of this format
_TIMEOUT_S = 10.0


@dataclass
class Part:
    """The values of one pool and shard. used_at_s: the latest use, 0 if the store does not say."""

    pool: str
    shard: str
    values: int = 0
    bytes: int = 0
    used_at_s: float = 0.0

    def add(self, entry: Entry) -> None:
        self.values += 1
        self.bytes += entry.size_bytes
        self.used_at_s = max(self.used_at_s, entry.used_at_s)


@dataclass
class Owner:
    """One context: its document (None if its text is not stored, or is not that of the context)
    and its values."""

    context: str
    document: dict[str, Any] | None = None
    parts: dict[tuple[str, str], Part] = field(default_factory=dict)
    pages: set[str] = field(default_factory=set)

    @property
    def values(self) -> int:
        return sum(part.values for part in self.parts.values())

    @property
    def bytes(self) -> int:
        return sum(part.bytes for part in self.parts.values())

    @property
    def used_at_s(self) -> float:
        return max((part.used_at_s for part in self.parts.values()), default=0.0)

    def named(self, field: str) -> str:
        """A field of the document for a table."""
        return "?" if self.document is None else str(self.document.get(field, "?"))


@dataclass(frozen=True, slots=True)
class OfStore(OptionRecord):
    """What every action on a store has."""

    address: str = option("the store, such as file:DIR", str, "ADDRESS", positional=True)
    json: str | None = option(
        "also write the results to this file as JSON; - is stdout", read.output, "FILE"
    )


@contextmanager
def opened(options: OfStore) -> Iterator[Storage]:
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
            f"storage: expected a store that can be listed, found: {error}; see whether it answers"
        ) from error
    finally:
        store.close()


def tell(
    options: OfStore, command: str, result: Mapping[str, object], *shown: Any, wrap: bool = True
) -> None:
    """Print what was found, and write the result as JSON if that is asked for."""
    with ignore_broken_pipe():
        out = console(sys.stderr if options.json == "-" else sys.stdout)
        for one in shown:
            out.print(one, soft_wrap=not wrap)
    if options.json:
        write_json(options.json, head(command, complete=True) | dict(result))


def owners(store: Storage) -> list[Owner]:
    """Every context that has values, the one that was used last first."""
    found: dict[str, Owner] = {}
    for entry in store.entries(""):
        parts = keys.take_apart(entry.key) or keys.StoredKey(OTHER, "", "", "")
        owner = found.setdefault(parts.context, Owner(parts.context))
        if parts.context != OTHER and not parts.pool:
            owner.document = document(store, entry)
            continue
        part = owner.parts.setdefault((parts.pool, parts.shard), Part(parts.pool, parts.shard))
        part.add(entry)
        if parts.digest:
            owner.pages.add(parts.digest)
    return sorted(found.values(), key=lambda one: (-one.used_at_s, one.context))


def document(store: Storage, entry: Entry) -> dict[str, Any] | None:
    """The document of the context whose text is stored there."""
    text = bytearray(max(0, entry.size_bytes - HEADER_BYTES))
    checked = Verified(store, delete_corrupt=False)
    if checked.read([entry.key], [(memoryview(text),)]) != [Status.DONE]:
        return None
    return keys.document_of(bytes(text), entry.key.partition("/")[0])


def check_context(store: Storage, prefix: str) -> None:
    """Raises CallerError if no context begins with `prefix`."""
    found = [owner.context for owner in owners(store)]
    if not any(one.startswith(prefix) for one in found):
        known = ", ".join(one[:12] for one in found[:5]) or "none"
        raise CallerError(
            f"context: expected the beginning of one that is stored ({known}), found {prefix!r}"
        )
