"""The simulated bytes of every pool, and what program order says they must be.

Lives here: the arrays, their comparison by SHA-256 at publish, at each hop and at each read, and
the naming of what was found instead. Must not live here: time, streams, or which page is whose in
the cache.

`claims` are updated when work is *issued*, rows when it *runs*. If every conflicting pair of
accesses is ordered the two agree whatever the timing; where they do not, bytes were overtaken.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from hicache.core.errors import About
from hicache.core.types import Pages, Tier

from .. import content
from ..content import ROW_WORDS, Words
from ..errors import WrongBytesError

Place = tuple[Tier, str]
Span = tuple[int, int]


def _nobody(tag: int) -> str:
    return f"tag {tag:#018x}"


class Memory:
    """uint64[layers, pages, ROW_WORDS] per pool. whose: turns a tag into words, for messages.

    checked: comparisons made so far (a leg, a publication or a read each count once).
    """

    def __init__(self, capacities: Mapping[Place, int], layers: int) -> None:
        self.layers = layers
        self.whose: Callable[[int], str] = _nobody
        self.checked = 0
        self._claims = {
            place: np.zeros((layers, pages), dtype=np.uint64) for place, pages in capacities.items()
        }
        self._salts = {
            component: np.stack([content.salts(component, layer) for layer in range(layers)])
            for component in dict.fromkeys(component for _, component in capacities)
        }
        # what nobody wrote holds what the claim of nobody, 0, stands for: copies of it are right
        self._rows = {
            place: self._expected(place, np.zeros(pages, dtype=np.uint64), (0, layers))
            for place, pages in capacities.items()
        }
        self._scribbles = 0

    def claim(self, place: Place, pages: Pages, tags: Words, span: Span) -> None:
        """Work was issued that leaves these tags on the pages."""
        self._claims[place][span[0] : span[1], pages] = tags

    def claim_copy(
        self, source: Place, target: Place, pages: tuple[Pages, Pages], span: Span
    ) -> Words:
        """A copy was issued; returns the tags it must deliver, uint64[layers of span, n]."""
        tags: Words = self._claims[source][span[0] : span[1], pages[0]]
        self._claims[target][span[0] : span[1], pages[1]] = tags
        return tags

    def scribble_tags(self, pages: Pages) -> Words:
        """Tags that nobody else has, for a write whose content is not told."""
        first = self._scribbles
        self._scribbles += len(pages)
        numbers = np.arange(first, first + len(pages), dtype=np.uint64)
        return content.mix(numbers + np.uint64(0x5C21BB1E00000000))

    def write(self, place: Place, pages: Pages, tags: Words, span: Span, why: str) -> None:
        """The pages now hold what the tags say; read back and compared."""
        if not len(pages):
            return
        expected = self._expected(place, tags, span)
        self._rows[place][span[0] : span[1], pages] = expected
        self._compare(place, pages, tags, expected, span, why)

    def fetch(self, place: Place, pages: Pages, words: Span, span: Span) -> Words:
        """Words [first, last) of the pages laid end to end, in each layer of the span."""
        index = np.arange(words[0], words[1])
        found: Words = self._rows[place][
            span[0] : span[1], pages[index // ROW_WORDS], index % ROW_WORDS
        ]
        return found

    def store(self, place: Place, pages: Pages, words: Span, span: Span, block: Words) -> None:
        """The other half of `fetch`."""
        index = np.arange(words[0], words[1])
        self._rows[place][span[0] : span[1], pages[index // ROW_WORDS], index % ROW_WORDS] = block

    def block(self, place: Place, pages: Pages, span: Span) -> Words:
        """A copy of what the pages hold: uint64[layers of span, n, ROW_WORDS]."""
        found: Words = self._rows[place][span[0] : span[1], pages]
        return found

    def verify(self, place: Place, pages: Pages, tags: Words, span: Span, why: str) -> None:
        """Compare what the pages hold with what the tags say: one SHA-256 when they are equal.

        tags: uint64[n], the same in every layer, or uint64[layers of span, n].
        """
        if not len(pages):
            return
        self._compare(place, pages, tags, self._expected(place, tags, span), span, why)

    def _compare(
        self, place: Place, pages: Pages, tags: Words, expected: Words, span: Span, why: str
    ) -> None:
        self.checked += 1
        found = self._rows[place][span[0] : span[1], pages]
        if content.seal(found) != content.seal(expected):
            self._accuse(place, pages, (found, expected), tags, span[0], why)

    def digest(self, place: Place, page: int) -> bytes:
        """SHA-256 of one page over all layers."""
        return content.seal(self._rows[place][:, page])

    def _expected(self, place: Place, tags: Words, span: Span) -> Words:
        salts = self._salts[place[1]][span[0] : span[1]]
        return content.mix(tags[..., None] + salts[:, None, :])

    def _accuse(
        self,
        place: Place,
        pages: Pages,
        blocks: tuple[Words, Words],
        tags: Words,
        first_layer: int,
        why: str,
    ) -> None:
        found, expected = blocks
        tags = np.broadcast_to(tags, expected.shape[:2])
        wrong = (found != expected).any(axis=2)
        depth, slot = (int(axis[0]) for axis in np.nonzero(wrong))
        layer = first_layer + depth
        tier, component = place
        got = content.tag_of(found[depth, slot], component, layer)
        whole = content.rows(np.array([got], dtype=np.uint64), component, layer)[0]
        torn = "" if (whole == found[depth, slot]).all() else " (torn: words of several writers)"
        raise WrongBytesError(
            f"{why}: {tier.name.lower()} page {int(pages[slot])} of {component}, layer group "
            f"{layer}: expected {self.whose(int(tags[depth, slot]))}, found {self.whose(got)}{torn}"
            f"; {int(wrong.sum())} of {wrong.size} rows of this access are wrong",
            "",
            About("page", int(pages[slot]), int(tier), component),
        )
