"""The key of a stored page, and what it depends on.

`page_keys` makes every key that is written, looked up or read: `CONTEXT/POOL/SHARD/DIGEST`. The
context is the SHA-256 of a canonical JSON text that holds everything two caches must agree on to
share pages; the text itself is stored beside the pages, under `context_key`. docs/storage.md
("Key format") describes both byte by byte.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hicache.core.errors import CallerError
from hicache.models.base import PoolDescription

FORMAT = 1  # of keys and of the bytes of values; another format has other contexts
LAYOUT = "layer,part,token,head"  # the order of the axes in a stored page, slowest first
SHARED = "all"  # the shard of a pool that is identical on all ranks
_CONTEXT_NAME = "context"
_HASH, _POOL, _OF = "[0-9a-f]{64}", "[a-z0-9][a-z0-9_.-]{0,63}", r"(?:0|[1-9]\d{0,5})of[1-9]\d{0,5}"
_KEY = re.compile(f"({_HASH})/(?:{_CONTEXT_NAME}|({_POOL})/((?:all|{_OF})(?:-{_OF})?)/({_HASH}))")
_MOST_TEXT = 256  # characters of a model's name or revision
# The fields of a pool that decide what its bytes mean.
_GEOMETRY = (
    *("component", "kind", "dtype", "parts", "heads", "head_elements", "layers"),
    *("compression", "page_rows", "scale_group", "scale_bytes", "tail_bytes"),
)


@dataclass(frozen=True, slots=True)
class Context:
    """What two caches must have in common to share pages.

    model, revision: of the weights. rows: tokens, bigrams or ids, as those of a `Key`. pools: of
    the whole model, not of a rank; those without bytes (`logical`) are not stored and do not count.
    """

    model: str
    revision: str
    page_size: int
    rows: str
    pools: tuple[PoolDescription, ...]

    def __post_init__(self) -> None:
        """Raises CallerError for a value that a context cannot have."""
        for field, text in (("model", self.model), ("revision", self.revision)):
            if not text.isprintable() or len(text) > _MOST_TEXT or (field == "model" and not text):
                raise CallerError(
                    f"{field}: expected 1 to {_MOST_TEXT} printable characters, found "
                    f"{text[:40]!a}; rename it"
                )
        for pool in self.pools:
            if not re.fullmatch(_POOL, pool.name):
                raise CallerError(
                    f"pool {pool.name[:80]!a}: expected 1 to 64 of a-z, 0-9, '_', '.' and '-', the "
                    "first a letter or digit; rename the pool to store its pages"
                )

    @property
    def text(self) -> str:
        """The canonical JSON: ASCII, keys sorted, no spaces, no fractions."""
        pools = {
            pool.name: {field: getattr(pool, field) for field in _GEOMETRY}
            for pool in self.pools
            if pool.kind != "logical"
        }
        document = {
            "format": FORMAT,
            "layout": LAYOUT,
            "model": self.model,
            "page_size": self.page_size,
            "pools": pools,
            "revision": self.revision,
            "rows": self.rows,
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":"))

    @property
    def digest(self) -> str:
        """What keys begin with: the SHA-256 of the text, in hexadecimal."""
        return digest_of(self.text.encode("ascii"))


class StoredKey(NamedTuple):
    """A key, taken apart. pool, shard and digest are empty for the key of the context's text."""

    context: str
    pool: str
    shard: str
    digest: str


def digest_of(text: bytes) -> str:
    """The context that a stored text belongs to."""
    return hashlib.sha256(text).hexdigest()


def shard(rank: int, ranks: int, stage: int = 0, stages: int = 1, *, shared: bool = False) -> str:
    """The part of a pool that one rank has. shared: the pool is identical on all ranks, so rank 0
    writes it for all. stage, stages: of pipeline parallelism.

    Raises CallerError for a number that is not below its count."""
    for name, number, count in (("rank", rank, ranks), ("stage", stage, stages)):
        if not 0 <= number < count:
            raise CallerError(f"{name}: expected 0 to {count - 1}, found {number}")
    own = SHARED if shared else f"{rank}of{ranks}"
    return own if stages == 1 else f"{own}-{stage}of{stages}"


def page_keys(context: str, pool: str, shard: str, digests: Sequence[bytes]) -> list[str]:
    """The keys of pages. context: `Context.digest`. pool: its name. shard: from `shard`. digests:
    of the pages, from `page_digests`."""
    return [f"{context}/{pool}/{shard}/{digest.hex()}" for digest in digests]


def context_key(context: str) -> str:
    """The key under which the text of a context is stored."""
    return f"{context}/{_CONTEXT_NAME}"


def take_apart(key: str) -> StoredKey | None:
    """The parts of a key, or None if `page_keys` and `context_key` make no such key."""
    match = _KEY.fullmatch(key)
    return StoredKey(*(part or "" for part in match.groups())) if match else None


def document_of(text: bytes, context: str) -> dict[str, Any] | None:
    """The stored document of a context, for people to read; None if it is not that context's."""
    if digest_of(text) != context:
        return None
    try:
        document: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None
