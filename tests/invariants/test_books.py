"""The books of the checks: equal to a recount, and what they say of single records."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hicache.core.actions import Backup, Copy
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.types import Key, Tier
from invariants.base import HARNESS, Broken
from invariants.books.book import Book
from invariants.books.mirror import NodeMirror
from invariants.books.nodes import NodeBook
from invariants.books.pages import FLIGHT, NODE, REQUEST, PageBook, code_of
from invariants.books.pins import pin
from invariants.books.tags import digests_of, tags_of
from invariants.books.tickets import Move
from invariants.checks.ends import LockBalance
from invariants.checks.requests import PeerMap
from invariants.checks.transfers import HappensBeforeWrite
from invariants.fuzz.hicache import play
from invariants.fuzz.hicache.draw import draw_swarm
from invariants.fuzz.hicache.operations import OPERATIONS
from tests.configs import configured

from .life import Life, corner

OPS = OPERATIONS


def failures(seeds: range, checks: tuple[str, ...] | None) -> list[tuple[int, str]]:
    found = []
    for seed in seeds:
        swarm = draw_swarm(seed, ("full", "swa", "mamba"))
        failure = play.generate(swarm, OPS, seed, 60, checks=checks).failure
        if failure is not None:
            found.append((failure.code, failure.kind))
    return found


def given_back_pages_are_forgotten(original: Any) -> Any:
    def retract(self: PageBook, pages: Any, code: int) -> None:
        original(self, pages[:-1], code)

    return retract


def candidates_stay_what_they_were(original: Any) -> Any:
    def refresh(self: NodeBook, mirror: Any) -> None:
        before = mirror.candidate
        original(self, mirror)
        mirror.candidate = before

    return refresh


FORGETTING: dict[str, tuple[Any, str, Callable[[Any], Any]]] = {
    "a page given back": (PageBook, "retract", given_back_pages_are_forgotten),
    "a candidate": (NodeBook, "refresh", candidates_stay_what_they_were),
}


@pytest.mark.parametrize("name", FORGETTING)
def test_incomplete_books_are_a_harness_fault(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    owner, attribute, wrong = FORGETTING[name]
    monkeypatch.setattr(owner, attribute, wrong(getattr(owner, attribute)))
    found = failures(range(2, 8), ())
    assert (HARNESS, "AUDIT") in found
    assert {code for code, _ in found} == {HARNESS}


@pytest.mark.parametrize("hybrid", [False, True])
def test_what_is_known_of_a_prompt_is_what_nodes_have(hybrid: bool) -> None:
    """Also the tags and digests of nodes, which are taken from prompts, or computed late."""
    several = {"components": ("full", "swa", "mamba"), "swa_window": 6, "mamba_interval": 4}
    width = 3 if hybrid else 1
    config = configured(4, (80,) * width, (160,) * width, **(several if hybrid else {}))
    life = Life(corner(config), 3)
    seen = 0
    for _ in range(40):
        life.run(5)
        book = life.watch.book
        assert book is not None
        cached: list[set[int]] = [set() for _ in book.pages]
        for mirror in book.nodes.by_id.values():
            path = book.nodes.path(mirror.id)[::-1]
            raw = b"".join(bytes(one.key) for one in path)
            key = Key(raw, book.nodes.stride, mirror.namespace)
            start = key.pages - mirror.span
            assert book.nodes.digests_of(mirror) == digests_of(key)[start:]
            tags = tags_of(key)[start:]
            assert mirror.tags.tolist() == tags.tolist()
            for slot, pages in enumerate(mirror.pages):
                if pages is not None:
                    whole = book.pages[slot].positional
                    cached[slot].update(tags.tolist() if whole else tags[-1:].tolist())
        for req in book.requests.by_id.values():
            known = tuple(sum(tag in there for tag in req.known.tolist()) for there in cached)
            assert book.nodes.known(req.known) == known
            seen += sum(known) > 0
    assert seen > 10


@pytest.mark.parametrize("owner", [0, code_of(REQUEST, 3), code_of(FLIGHT, 3)])
def test_a_copy_of_a_page_without_node_pins_nothing_and_is_reported(owner: int) -> None:
    book = Book(Core(Config(1, (6,), (6,))).view)
    source, target = np.array([4]), np.array([2])
    book.device.owner[4] = owner
    action = Backup(9, (Copy("full", source, target),))
    ticket = book.tickets.file(action, (Move(0, source, target),), ())
    said = pin(ticket, book.tickets, book.nodes, book.requests)
    assert said == "flight 9 reads page 4 of no node"
    assert (ticket.pins, ticket.path) == ([], 0)
    assert not book.device.locks.any()


SLOTS = ("device", "device swa", "host", "host swa")


def two_components() -> tuple[Any, Any]:
    """Books in which node 9 has pages 0 and 1 of both components on device."""
    config = configured(1, (4, 4), (4, 4), components=("full", "swa"), swa_window=2)
    book = Book(Core(config).view)
    mirror = NodeMirror(9, 2)
    for slot in range(2):
        mirror.pages[slot] = pages = np.array([0, 1])
        book.pages[slot].claim(pages, code_of(NODE, 9))
    book.nodes.by_id[9] = mirror
    return book, mirror


@pytest.mark.parametrize("slot", [0, 1])
def test_pages_of_a_node_with_unequal_locks_are_found_in_every_pool(slot: int) -> None:
    """Also where the pool before has none."""
    book, _ = two_components()
    LockBalance().audit(book, book)
    book.pages[slot].locks[1] = 1
    with pytest.raises(Broken, match=rf"node 9, {SLOTS[slot]}: .* 0 to 1 holders"):
        LockBalance().audit(book, book)


@pytest.mark.parametrize(("moved", "clashed"), [(True, False), (False, True), (False, False)])
def test_a_peer_of_another_owner_is_found_where_the_node_moved_or_pages_clash(
    moved: bool, clashed: bool
) -> None:
    book, mirror = two_components()
    mirror.moved = True
    node: Any = None
    PeerMap().node(book, mirror, node)
    book.pages[1].owner[1] = code_of(REQUEST, 3)
    mirror.moved, book.clashed = moved, clashed
    if not moved and not clashed:
        PeerMap().node(book, mirror, node)
        return
    with pytest.raises(Broken, match="its peer device swa page 1 request 3's"):
        PeerMap().node(book, mirror, node)


def test_a_second_writer_of_a_host_page_is_found() -> None:
    """The bug of tests/planted that HB-WRITE finds writes to the device."""
    pool = SimpleNamespace(busy=np.ones(4, np.int32), where="host", component=0)
    pool.tier, pool.name = Tier.HOST, "full"
    moves = [SimpleNamespace(at=0, target=np.array([3]))]
    tickets = SimpleNamespace(open={})
    book: Any = SimpleNamespace(
        uses=[], moves=moves, passes_before=lambda item: [], pool=lambda *at: pool, tickets=tickets
    )
    unread: Any = None
    with pytest.raises(Broken, match="flight 1 writes host page 3: expected 0 unanswered"):
        HappensBeforeWrite().issue(book, Backup(1, ()), unread)
