"""Bugs in the digests of pages."""

from __future__ import annotations

import hashlib

from hicache.core import types

from .base import bug

_root_digest = types.root_digest


@bug(types, "root_digest", rows=("H8",), kills="spec")
def digests_ignore_the_namespace(namespace: str) -> bytes:
    """Pages of two namespaces have the same digests."""
    return _root_digest("")


@bug(types, "chain_digests", kills="key-rt")
def digest_covers_half_of_the_one_before(parent: bytes, raw: bytes, stride: int) -> list[bytes]:
    """The digest of a page covers only half of the digest of the page before it."""
    digests = []
    for start in range(0, len(raw), stride):
        parent = hashlib.sha256(parent[:16] + raw[start : start + stride]).digest()
        digests.append(parent)
    return digests
