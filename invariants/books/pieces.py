"""The pieces of a fetch or store as moves of pages, and the digests that they are to have.

Lives here: reading actions for storage. Digests are computed again from tokens. Does not keep
anything, and does not contain checks.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from hicache.core.actions import Fetch, Piece, Store
from hicache.core.types import NO_PAGES, Key, Pages

from .kinds import Kind
from .tags import NO_TAGS, Tags, chain, chain_root
from .tickets import Move

NOTHING: Mapping[tuple[int, bytes], int] = MappingProxyType({})


def depths_of(piece: Piece) -> Pages:
    """int64[pages of the piece]: how many pages are before each of them in its prompt."""
    return np.arange(piece.first_page, piece.first_page + len(piece.pages), dtype=np.int64)


def moves_of_pieces(
    action: Fetch | Store,
    kinds: Sequence[Kind],
    tags: Tags = NO_TAGS,
    written: Mapping[tuple[int, bytes], int] = NOTHING,
) -> list[Move]:
    """The pages of a fetch or a store, joined per component. Unknown components are left out.

    A fetch brings what was stored under its digests, or, where another process stored it, the bytes
    of the prompt. tags: of the pages of that prompt. written: by component and digest.
    """
    moves = []
    for kind in kinds:
        mine = [piece for piece in action.pieces if piece.component == kind.name]
        if not mine:
            continue
        pages = np.concatenate([piece.pages for piece in mine])
        if type(action) is Store:
            moves.append(Move(kind.at, pages, NO_PAGES))
            continue
        depths = np.concatenate([depths_of(piece) for piece in mine])
        brought = [tag for piece in mine for tag in _brought(piece, kind.at, tags, written)]
        moves.append(Move(kind.at, NO_PAGES, pages, depths, np.array(brought, dtype=np.uint64)))
    return moves


def _brought(
    piece: Piece, at: int, tags: Tags, written: Mapping[tuple[int, bytes], int]
) -> Iterator[int]:
    for step, depth in enumerate(depths_of(piece).tolist()):
        usual = int(tags[depth]) if depth < len(tags) else 0
        digest = piece.digests[step] if step < len(piece.digests) else b""
        yield written.get((at, digest), usual)


def digests_of(key: Key) -> tuple[bytes, ...]:
    """The digest of each page of a key, computed from its rows."""
    return chain(chain_root(key.namespace), key.raw, key.stride)
