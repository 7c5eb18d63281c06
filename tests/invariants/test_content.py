"""The remembering executor, on trees and pages written by hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hicache.core.actions import Backup, Copy, Load, Prefill, StateSlots
from hicache.core.config import Config
from hicache.core.radix.node import Node, set_pages
from hicache.core.types import Tier
from invariants.fuzz.hicache.content import Content, Held, WrongContent
from tests.configs import configured

ROWS = 8


def config(names: str, window: int = 2) -> Config:
    components = tuple(names.split(","))
    sizes = (16,) * len(components)
    swa = window if "swa" in components else 0
    return configured(1, sizes, sizes, components=components, swa_window=swa)


def tree(settings: Config, *runs: tuple[list[int], str]) -> Any:
    """A chain of nodes: tokens of the run, and per component where it is ("D/H/-")."""
    root = Node(0, None, b"", b"", 0, len(settings.components))
    above, nodes, page = root, [], 0
    for tokens, sides in runs:
        raw = np.array(tokens, dtype="<i8").tobytes()
        label = raw[:ROWS] if above is not root else b"\0" * 8 + raw[:ROWS]
        node = Node(len(nodes) + 1, above, raw, label, above.end_page + len(tokens), 3)
        for index, side in enumerate(sides.split("/")):
            for letter in side.replace("-", ""):
                set_pages(node, int(letter == "H"), index, np.arange(page, page + len(tokens)))
        nodes.append(node)
        above, page = node, page + len(tokens)
    return SimpleNamespace(config=settings, nodes=lambda: iter(nodes))


def prefill(start: int, end: int, slots: StateSlots, pages: tuple[int, ...]) -> Prefill:
    table = np.array(pages, dtype=np.int64)
    return Prefill(1, 0, start, end, (table,), (), True, (slots,))


def test_a_pass_that_reads_what_another_prefix_wrote_is_found() -> None:
    content = Content(config("full,mamba"))
    mine: list[int] = []
    other: list[int] = []
    content.extend(mine, "", [1, 2, 3])
    content.extend(other, "", [1, 5])
    slots = StateSlots("mamba", -1, 0, (1, 2), 1, ((2, 1),))
    content.end_pass(prefill(0, 2, slots, (4, 5, 6)), mine)
    assert content.pages[0][1][1] == Held(mine, 2)
    follow = StateSlots("mamba", -1, 0, (1, 2), 1, ())
    content.end_pass(prefill(2, 3, follow, (4, 5, 6)), mine)
    with pytest.raises(WrongContent, match="expected content up to 2 tokens"):
        content.end_pass(prefill(2, 3, follow, (4, 5, 6)), mine)
    with pytest.raises(WrongContent, match="another prefix"):
        content.end_pass(prefill(2, 3, follow._replace(source=1), (4, 5, 6)), [*other, 7])
    with pytest.raises(WrongContent, match="there is none"):
        content.end_pass(prefill(2, 3, follow._replace(source=1), (4, -1, 6)), mine)


def test_the_source_of_a_copy_may_not_change_before_it_arrives() -> None:
    content = Content(config("full"))
    ids: list[int] = []
    content.extend(ids, "", [1, 2])
    content.pages[0][0][3] = Held(ids, 1)
    copy = (Copy("full", np.array([3]), np.array([7])),)
    content.begin_copy(Backup(1, copy))
    assert content.pages[1][0][7] is None
    content.end_copy(1, Tier.HOST, ok=True)
    assert content.pages[1][0][7] == Held(ids, 1)
    content.begin_copy(Load(2, 0, (Copy("full", np.array([7]), np.array([9])),)))
    content.pages[1][0][7] = Held(ids, 2)
    with pytest.raises(WrongContent, match="changed while it was read"):
        content.end_copy(2, Tier.DEVICE, ok=True)


def test_decode_writes_states_to_its_slots_in_turn() -> None:
    content = Content(config("full,mamba"))
    ids: list[int] = []
    content.extend(ids, "", [1, 2, 3, 4, 5])
    first = StateSlots("mamba", -1, 0, (1, 2), 2, ())
    content.end_pass(prefill(0, 1, first, (4, 5, 6, 7, 8)), ids)
    table = np.array((4, 5, 6, 7, 8))
    content.tables[0], content.states[0] = (table,), (first,)
    content.decode(0, ids, 1, 5)
    held = [content.pages[0][1][slot] for slot in (0, 1, 2)]
    assert held == [Held(ids, 5), Held(ids, 4), Held(ids, 2)]


def test_a_cached_page_of_another_prefix_is_found() -> None:
    settings = config("full")
    view = tree(settings, ([1, 2], "D"))
    content = Content(settings)
    ids: list[int] = []
    content.extend(ids, "", [1, 2])
    content.pages[0][0][0], content.pages[0][0][1] = Held(ids, 1), Held(ids, 2)
    content.audit(view)
    wrong: list[int] = []
    content.extend(wrong, "", [1, 3])
    content.pages[0][0][1] = Held(wrong, 2)
    with pytest.raises(WrongContent, match="another prefix"):
        content.audit(view)
