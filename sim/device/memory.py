"""The simulated bytes of every pool, the bytes that they must be by program order, and the audit.

`claims` are updated when work is issued, rows when it runs. If all conflicting accesses are
ordered, the two agree at any timing. A difference means that one access overtook another.
"""

from collections.abc import Mapping
from hashlib import sha256

import numpy as np

from hicache.core.errors import About
from hicache.core.node import Node
from hicache.core.types import Key, Pages, Tier
from hicache.core.view import CoreView

from .. import content
from ..content import ROW_WORDS, Words, prefix_tags
from ..errors import WrongBytesError

Place = tuple[Tier, str]
Span = tuple[int, int]


class Memory:
    """The rows of each pool: uint64[pages, layers, ROW_WORDS].

    checked: number of comparisons so far (a copy, a write and a read count once each).
    """

    def __init__(self, capacities: Mapping[Place, int], layers: int) -> None:
        self.layers = layers
        self.checked = 0
        self._claims = {
            place: np.zeros((layers, pages), dtype=np.uint64) for place, pages in capacities.items()
        }
        self._salts = {
            component: np.stack([content.salts(component, layer) for layer in range(layers)])
            for component in dict.fromkeys(component for _, component in capacities)
        }
        # Pages start with the rows of tag 0, their first claim, so that copies of unwritten pages
        # match.
        self._rows = {
            place: self._expected(place, np.zeros(pages, dtype=np.uint64), (0, layers))
            for place, pages in capacities.items()
        }
        self._scribbles = 0

    def claim(self, place: Place, pages: Pages, tags: Words, span: Span) -> None:
        """Records issued work that leaves these tags on the pages."""
        self._claims[place][span[0] : span[1], pages] = tags

    def claim_copy(
        self, source: Place, target: Place, pages: tuple[Pages, Pages], span: Span
    ) -> Words:
        """Records an issued copy. Returns the tags it must deliver: uint64[layers of span, n]."""
        tags: Words = self._claims[source][span[0] : span[1], pages[0]]
        self._claims[target][span[0] : span[1], pages[1]] = tags
        return tags

    @property
    def places(self) -> tuple[Place, ...]:
        """Every tier and component."""
        return tuple(self._rows)

    def claimed(self, place: Place, pages: Pages, span: Span) -> Words:
        """Returns the tags that the issued work leaves on the pages: uint64[layers of span, n]."""
        tags: Words = self._claims[place][span[0] : span[1], pages]
        return tags

    def pattern_tags(self, pages: Pages) -> Words:
        """Returns new, unique tags for a write of unknown content."""
        first = self._scribbles
        self._scribbles += len(pages)
        numbers = np.arange(first, first + len(pages), dtype=np.uint64)
        return content.mix(numbers + np.uint64(0x5C21BB1E00000000))

    def write(self, place: Place, pages: Pages, tags: Words, span: Span, why: str) -> None:
        """Writes the content of these tags, reads it back and compares. Raises WrongBytesError."""
        if not len(pages):
            return
        expected = self._expected(place, tags, span)
        self._rows[place][pages, span[0] : span[1]] = expected
        self._compare(place, pages, expected, span, why)

    def fetch(self, place: Place, pages: Pages, words: Span, span: Span) -> Words:
        """Returns words [first, last) of the pages, concatenated, in each layer of the span."""
        index = np.arange(words[0], words[1])
        result: Words = self._rows[place][
            pages[index // ROW_WORDS], span[0] : span[1], index % ROW_WORDS
        ]
        return result

    def store(self, place: Place, pages: Pages, words: Span, span: Span, block: Words) -> None:
        """Writes the words that `fetch` returned."""
        index = np.arange(words[0], words[1])
        self._rows[place][pages[index // ROW_WORDS], span[0] : span[1], index % ROW_WORDS] = block

    def block(self, place: Place, pages: Pages, span: Span) -> Words:
        """Returns a copy of the pages' content: uint64[layers of span, n, ROW_WORDS]."""
        words: Words = self._rows[place][pages, span[0] : span[1]]
        return words.swapaxes(0, 1)

    def verify(self, place: Place, pages: Pages, tags: Words, span: Span, why: str) -> None:
        """Compares the content of the pages with the tags. Raises WrongBytesError if it differs.

        tags: uint64[n], the same in every layer, or uint64[layers of span, n].
        """
        if not len(pages):
            return
        self._compare(place, pages, self._expected(place, tags, span), span, why)

    def _compare(self, place: Place, pages: Pages, expected: Words, span: Span, why: str) -> None:
        self.checked += 1
        result = self._rows[place][pages, span[0] : span[1]]
        if result.tobytes() == expected.tobytes():
            return
        wrong = (result != expected).any(axis=2)
        slot, layer = (int(axis[0]) for axis in np.nonzero(wrong))
        tier, component = place
        raise WrongBytesError(
            f"{why}: {tier.name.lower()} page {int(pages[slot])} of {component}, layer group "
            f"{span[0] + layer}: expected the content of its prefix, found other bytes; "
            f"{int(wrong.sum())} of {wrong.size} rows of this access are wrong",
            "",
            About("page", int(pages[slot]), int(tier), component),
        )

    def digest(self, place: Place, page: int) -> bytes:
        """Returns the SHA-256 of one page over all layers."""
        return sha256(self._rows[place][page].tobytes()).digest()

    def _expected(self, place: Place, tags: Words, span: Span) -> Words:
        """uint64[pages, layers of span, ROW_WORDS]: what these tags say."""
        salts = self._salts[place[1]][span[0] : span[1]]
        return content.mix((tags[None] if tags.ndim == 1 else tags).T[..., None] + salts)


def audit(view: CoreView, memory: Memory) -> None:
    """Compares all pages of both tiers. Call it when nothing is in flight.

    Raises WrongBytesError for the first page that holds the content of another prefix.
    """
    seen: dict[int, None] = {}
    for leaf in view.nodes():
        if leaf.children:
            continue
        tags = _tags(leaf)
        node = leaf
        while node.parent is not None and node.id not in seen:
            seen[node.id] = None
            _compare(view, memory, node, tags)
            node = node.parent


def _tags(leaf: Node) -> Words:
    """Tags of all pages on the path from the root to this leaf: uint64[leaf.end_page]."""
    runs, node = [leaf.key], leaf
    while node.parent is not None and node.parent.parent is not None:
        node = node.parent
        runs.append(node.key)
    stride = len(leaf.key) // (leaf.end_page - (leaf.parent.end_page if leaf.parent else 0))
    # The root labels a child by its namespace, a zero byte and its first row, or by the row alone.
    namespace = node.label[: -stride - 1].decode()
    return prefix_tags(Key(b"".join(reversed(runs)), stride, namespace))


def _compare(view: CoreView, memory: Memory, node: Node, tags: Words) -> None:
    assert node.parent is not None
    first, last, layers = node.parent.end_page, node.end_page, (0, memory.layers)
    for index, component in enumerate(view.components):
        expected = tags[first:last] if component.positional else tags[last - 1 : last]
        for tier in (Tier.DEVICE, Tier.HOST):
            pages = node.pages[tier][index]
            if pages is not None:
                place = (tier, component.name)
                memory.verify(place, pages, expected, layers, f"the end, node {node.id}")
