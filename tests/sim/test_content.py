"""Content follows from the prefix alone, and tells whose it is."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hicache.core.types import Key, Tier
from sim import content
from sim.device.memory import Memory
from sim.errors import WrongBytesError

DEVICE = (Tier.DEVICE, "full")
_WORDS = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=8).map(
    lambda words: np.array(words, dtype=np.uint64)
)


@given(_WORDS)
def test_unmix_undoes_mix(words: content.Words) -> None:
    assert (content.unmix(content.mix(words)) == words).all()
    assert (content.mix(content.unmix(words)) == words).all()


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=24),
    st.lists(st.integers(0, 3), min_size=1, max_size=24),
    st.sampled_from([1, 2, 3]),
    st.sampled_from(["", "tenant"]),
)
def test_tags_are_equal_exactly_where_prefixes_are(
    one: list[int], other: list[int], page_size: int, namespace: str
) -> None:
    left = Key.from_tokens(one, page_size)
    right = Key.from_tokens(other, page_size, namespace)
    tags = content.prefix_tags(left), content.prefix_tags(right)
    assert (len(tags[0]), len(tags[1])) == (left.pages, right.pages)
    for page in range(min(left.pages, right.pages)):
        upto = (page + 1) * page_size
        same = one[:upto] == other[:upto] and not namespace
        assert (tags[0][page] == tags[1][page]) == same


def test_a_row_determines_its_tag_and_differs_by_layer_and_component() -> None:
    tags = content.prefix_tags(Key.from_tokens(range(40), 4))
    rows = content.rows(tags, "full", 2)
    assert [content.tag_of(row, "full", 2) for row in rows] == tags.tolist()
    assert len(np.unique(np.concatenate([rows, content.rows(tags, "full", 1)]))) == rows.size * 2
    assert not np.isin(rows, content.rows(tags, "swa", 2)).any()


def test_wrong_bytes_are_named() -> None:
    memory = Memory({DEVICE: 8}, layers=2)
    tags = content.prefix_tags(Key.from_tokens(range(8), 4))
    pages = np.array([3, 5])
    memory.write(DEVICE, pages, tags, (0, 2), "prefill")
    memory.verify(DEVICE, pages, tags, (0, 2), "read")
    memory.whose = lambda tag: f"page {tags.tolist().index(tag)}"
    with pytest.raises(WrongBytesError) as caught:
        memory.verify(DEVICE, pages, tags[::-1].copy(), (1, 2), "decode of request 7")
    assert str(caught.value) == (
        "decode of request 7: device page 3 of full, layer group 1: expected page 1, found page 0; "
        "2 of 2 rows of this access are wrong"
    )
    assert caught.value.exit_code == 12


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=8))
def test_a_page_is_settled_where_every_layer_holds_what_was_last_written(
    unfinished: list[tuple[int, int]],
) -> None:
    """unfinished: page and layer of work that was issued and did not run."""
    memory = Memory({DEVICE: 4}, layers=3)
    pages, tags = np.arange(4), np.arange(1, 5, dtype=np.uint64)
    memory.claim(DEVICE, pages, tags, (0, 3))
    memory.write(DEVICE, pages, tags, (0, 3), "prefill")
    for page, layer in unfinished:
        other = np.array([9], dtype=np.uint64)
        memory.claim(DEVICE, np.array([page]), other, (layer, layer + 1))
    left = sorted({*range(4)} - {page for page, _ in unfinished})
    assert memory.settled(DEVICE).tolist() == left
