"""Content of pages: a tag names a prefix."""

from itertools import product

from hicache.core.types import Key
from sim import content


def test_tags_name_a_prefix() -> None:
    """Equal prefixes of a namespace have equal tags, and nothing else has."""
    seen: dict[tuple[int, int], tuple[str, bytes]] = {}
    for stride, space in product((8, 32, 3, 5), ("", "a", "tenant")):
        for text in (bytes(4 * stride), bytes(range(4 * stride)), bytes(range(stride)) * 4):
            key = Key(text, stride, space)
            tags = content.prefix_tags(key).tolist()
            for pages in range(5):
                assert content.prefix_tags(key.first(pages)).tolist() == tags[:pages]
            for page, tag in enumerate(tags, 1):
                name = space, text[: page * stride]
                assert seen.setdefault((stride, tag), name) == name
    assert len(seen) == 12 * (4 + 4 + 3)
    assert content.partial_tag(7, 12) != content.partial_tag(7, 13)
