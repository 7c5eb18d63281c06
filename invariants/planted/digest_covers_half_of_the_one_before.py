"""Planted: see TITLE."""

from __future__ import annotations

import hashlib

from hicache.core import types

from .base import Patch

ROWS: tuple[str, ...] = ()
TITLE = "The digest of a page covers only half of the digest of the page before it."
KILLS = "key-rt"


def _half(parent: bytes, raw: bytes, stride: int) -> list[bytes]:
    digests = []
    for start in range(0, len(raw), stride):
        parent = hashlib.sha256(parent[:16] + raw[start : start + stride]).digest()
        digests.append(parent)
    return digests


def plant(patch: Patch) -> None:
    patch(types, "chain_digests", _half)
