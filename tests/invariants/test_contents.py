"""What pages must hold, on trees, pages and a storage written by hand; and faults of replies."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hicache.core.actions import (
    Backup,
    Copy,
    Delete,
    Load,
    Lookup,
    Piece,
    Prefill,
    StateSlots,
    Store,
)
from hicache.core.config import Config
from hicache.core.errors import CallerError
from hicache.core.events import DeleteDone, LookupDone, StorageReply, StoreDone
from hicache.core.radix.node import Node, set_pages
from hicache.core.types import Tier
from invariants.fuzz.hicache import play
from invariants.fuzz.hicache.contents import Content, Held, Shelf, WrongContent
from invariants.fuzz.hicache.draw import draw_swarm
from invariants.fuzz.hicache.hand import FAULTS, KINDS, NONE, Fault, Hand, kind_of
from invariants.fuzz.hicache.operations import OPERATIONS as OPS
from invariants.fuzz.sequence import Act, Entry, Tape, dumps, loads
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


# -- storage

CONFIG = Config(1, (8, 8, 8), (8, 8, 8), ("full", "swa", "mamba"), storage=True)
DIGESTS = tuple(bytes([at]) for at in range(5))
LOOKUP = Lookup(1, 1, 0, DIGESTS, 0, (0, 2, 1))


def pieces(*runs: tuple[str, int, int]) -> tuple[Piece, ...]:
    return tuple(
        Piece(name, first, DIGESTS[first:end], np.arange(first, end, dtype=np.int64))
        for name, first, end in runs
    )


class Played:
    """A shelf with the contents of host pages."""

    def __init__(self) -> None:
        self.shelf, self.content = Shelf(CONFIG), Content(CONFIG)

    def __call__(self, action: Any, kind: Fault = NONE) -> StorageReply:
        self.shelf.begin(action, self.content)
        return self.shelf.reply(action, kind, self.content)

    def put(self, *runs: tuple[str, int, int], kind: Fault = NONE) -> StorageReply:
        for index, host in enumerate(self.content.pages[Tier.HOST]):
            host[:] = [Held([index], depth) for depth in range(8)]
        return self(Store(2, pieces(*runs)), kind)


def test_a_page_that_changes_while_it_is_stored_is_found() -> None:
    played = Played()
    store = Store(2, pieces(("full", 0, 2)))
    played.shelf.begin(store, played.content)
    played.content.pages[Tier.HOST][0][1] = Held([1], 1)
    with pytest.raises(WrongContent, match="page 1 changed"):
        played.shelf.reply(store, NONE, played.content)


@pytest.mark.parametrize(
    ("fault", "says", "finds"),
    [
        ("", 4, 4),
        ("half of it", 2, 2),
        ("fail", 0, 0),
        ("stored, then lost", 4, 0),
        ("stored, not acknowledged", 0, 4),
    ],
)
def test_what_faults_of_a_store_say_and_keep(fault: str, says: int, finds: int) -> None:
    played = Played()
    assert played.put(("full", 0, 4), kind=kind_of(fault, "Store")) == StoreDone(2, says)
    assert played.shelf.found(DIGESTS, (0,)) == finds


def test_a_storage_finds_what_it_has_and_a_fault_says_otherwise() -> None:
    played = Played()
    played.put(("full", 0, 5), ("swa", 0, 5), ("mamba", 4, 5))
    assert played(LOOKUP) == LookupDone(1, 5)
    assert played(LOOKUP, FAULTS["fail"]) == LookupDone(1, 0)
    assert played.shelf.boundaries(LOOKUP) == {5}
    assert played(Delete(4), FAULTS["fail"]) == DeleteDone(4, False)
    assert played(LOOKUP) == LookupDone(1, 5)
    assert played(Delete(4)) == DeleteDone(4, True)
    assert played(LOOKUP, FAULTS["lookup lies"]) == LookupDone(1, 5)
    assert played(LOOKUP) == LookupDone(1, 0)


# -- faults of replies, and sequences with a storage


def prompt(request: int) -> dict[str, Any]:
    return {"request": request, "tokens": [[1, 2], [2, 2]], "space": "", "whole": True}


def evicted(tier: int) -> Entry:
    return Entry("evict", {"tier": tier, "component": "full", "pages": 9})


def warm(fault: str) -> Hand:
    """A prompt is computed, and comes again from host, and then from storage, with this fault."""
    acts = (Act(1, 1, fault),)
    life = [
        *(Entry("arrive", prompt(0)), Entry("wait", {"polls": 1})),
        *(Entry("admit", {"request": 0, "chunk": 9}), Entry("quiesce", {})),
        *(Entry("finish", {"request": 0, "ahead": 0}), Entry("quiesce", {}), evicted(0)),
        *(Entry("arrive", prompt(1)), Entry("admit", {"request": 1, "chunk": 9})),
        *(Entry("quiesce", {}), Entry("abort", {"request": 1}), evicted(0), evicted(1)),
        *(Entry("arrive", prompt(2)), Entry("wait", {"polls": 3})),
        *(Entry("admit", {"request": 2, "chunk": 9}), Entry("quiesce", {})),
    ]
    config = Config(1, (8,), (8,), storage=True)
    entries = tuple(one._replace(acts=acts) for one in life)
    tape = loads(dumps(Tape(config, entries)))
    outcome = play.replay(tape, OPS)
    assert outcome.failure is None, outcome.failure.text
    return outcome.hand


@pytest.mark.parametrize("fault", ["", *FAULTS])
def test_each_fault_is_recovered_from_where_it_applies(fault: str) -> None:
    hand = warm(fault)
    hit = {name.rpartition(" ")[2] for name in hand.counts if name.startswith(f"fault {fault} ")}
    assert hit <= {*FAULTS[fault].sites} and hit if fault else not hit
    assert fault or hand.probes.seen["Admitted on what was fetched"]


def test_an_unknown_kind_is_refused_and_does_nothing_at_other_sites() -> None:
    with pytest.raises(CallerError, match="expected one of"):
        kind_of("gremlin", "Load")
    assert kind_of("engine stall", "Load") is NONE


def test_only_sequences_with_a_storage_draw_its_operations_and_faults() -> None:
    seen = set()
    for seed in range(60):
        swarm = draw_swarm(seed)
        stored = {"warm", "limit", "attach"} & {name for name, _ in swarm.weights}
        faults = {name for name, _ in swarm.faults} & {*KINDS["storage"]}
        seen.add((bool(stored), bool(faults)))
        assert stored or not (faults or swarm.config.storage)
    assert {(False, False), (True, True)} <= seen


def test_drawn_sequences_with_a_storage_fetch_from_it_and_repeat() -> None:
    fetching = 0
    for seed in range(40):
        swarm = draw_swarm(seed, ranks=1)
        if swarm.config.storage:
            outcome = play.generate(swarm, OPS, seed, 80, "off", against=True)
            assert outcome.failure is None, outcome.failure.text
            fetching += outcome.hand.probes.seen["Admitted on what was fetched"] > 0
            other = play.replay(loads(dumps(outcome.tape)), OPS, "off").hand
            assert other.events == outcome.hand.events
            assert other.shelf.values.keys() == outcome.hand.shelf.values.keys()
    assert fetching


def test_a_device_carries_out_nothing_for_a_storage() -> None:
    attaching = (Entry("attach", {"again": True}),)
    for config, entries in ((CONFIG, ()), (Config(1, (8,), (8,)), attaching)):
        with pytest.raises(CallerError, match="with a storage"):
            loads(dumps(Tape(config, entries, executor="device:1:1:0:8")))
