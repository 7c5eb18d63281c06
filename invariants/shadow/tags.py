"""A 64-bit tag per prefix, which stands for the bytes of a page.

    tag(prefix) = seed(namespace) + sum over its pages i of mix(row_hash(i) + (i + 1) * golden)

Equal prefixes have equal tags; different prefixes have equal tags with probability 2**-64. All
pages of a key are computed at once, starting from the tag of the prefix above, so the cost is
proportional to the new pages. This code is independent of the core's SHA-256 chains.
"""

import hashlib
from functools import cache

import numpy as np
from numpy.typing import NDArray

from hicache.core.types import Key, Rows

Tags = NDArray[np.uint64]

NO_TAGS: Tags = np.empty(0, dtype=np.uint64)
POISON = np.uint64(0)  # content of a page that was not written since it was free

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31 = np.uint64(30), np.uint64(27), np.uint64(31)


def _mix(values: Tags) -> Tags:
    """The finaliser of splitmix64 (Steele, Lea and Flood, OOPSLA 2014)."""
    values = (values ^ (values >> _S30)) * _FIRST
    values = (values ^ (values >> _S27)) * _SECOND
    return values ^ (values >> _S31)


@cache
def _weights(width: int) -> Tags:
    return _mix(np.arange(1, width + 1, dtype=np.uint64) * _GOLDEN) | np.uint64(1)


@cache
def seed_of(namespace: str) -> np.uint64:
    """The tag of the empty prefix of a namespace."""
    digest = hashlib.blake2b(namespace.encode(), digest_size=8).digest()
    return np.uint64(int.from_bytes(digest, "little"))


def run_tags(raw: Rows, stride: int, start: int, seed: np.uint64) -> Tags:
    """Returns the tags of the pages in `raw`: uint64[len(raw) // stride].

    start: depth of the first page. seed: tag of the prefix above. Rows are padded with zeros to a
    multiple of 8 bytes.
    """
    if not raw:
        return NO_TAGS
    if stride % 8:
        rows = np.frombuffer(raw, dtype=np.uint8).reshape(-1, stride)
        padded = np.zeros((len(rows), -(-stride // 8) * 8), dtype=np.uint8)
        padded[:, :stride] = rows
        words = padded.view("<u8")
    else:
        words = np.frombuffer(raw, dtype="<u8").reshape(-1, stride // 8)
    width = words.shape[1]
    hashed = words[:, 0] * _weights(1)[0] if width == 1 else words @ _weights(width)
    depths = np.arange(start + 1, start + len(words) + 1, dtype=np.uint64)
    tags: Tags = np.cumsum(_mix(hashed + depths * _GOLDEN), dtype=np.uint64)
    tags += seed
    return tags


def tags_of(key: Key) -> Tags:
    """The tag of each prefix of a key that ends with a page."""
    return run_tags(key.raw, key.stride, 0, seed_of(key.namespace))


def chain(parent: bytes, raw: bytes, stride: int) -> tuple[bytes, ...]:
    """Returns the SHA-256 chain of the pages in `raw` below `parent`, as in published KV events."""
    digests = []
    for start in range(0, len(raw), stride):
        parent = hashlib.sha256(parent + raw[start : start + stride]).digest()
        digests.append(parent)
    return tuple(digests)


def chain_root(namespace: str) -> bytes:
    return hashlib.sha256(b"hicache\0" + namespace.encode()).digest()


def digests_of(key: Key) -> tuple[bytes, ...]:
    """The digest of each page of a key, computed from its rows."""
    return chain(chain_root(key.namespace), key.raw, key.stride)
