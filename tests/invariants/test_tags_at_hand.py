"""Tags of nodes that the books do not compute, because a prompt or a node had the same rows."""

from __future__ import annotations

import numpy as np
import pytest

from hicache.core.actions import Backup, Prefill
from hicache.core.events import (
    AdmitWanted,
    Arrived,
    BackupDone,
    EvictWanted,
    Finished,
    PrefillDone,
)
from hicache.core.types import Key, Tier
from invariants.books import nodes as module
from invariants.books.book import run_of
from invariants.books.tags import tags_of

from .watched import Watched, flight_of

PROMPT = Key.from_tokens([1, 2, 3, 4, 5, 6], 1)


class Played(Watched):
    """One prompt that is cached; on host too, if it has pages."""

    def __init__(self, host_pages: int) -> None:
        super().__init__(host_pages)
        self(Arrived(1, PROMPT, 7, 6))
        flight = flight_of(self(AdmitWanted(1, 100)), Prefill)
        outcomes = self(PrefillDone(flight)) + self(Finished(1, PROMPT, 6))
        if host_pages:
            self(BackupDone(flight_of(outcomes, Backup)))


@pytest.mark.parametrize("host_pages", [0, 8], ids=["the lower part goes", "it stays on host"])
def test_both_parts_of_a_node_have_its_tags(
    host_pages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Played(host_pages)
    computed: list[object] = []
    monkeypatch.setattr(module, "run_tags", lambda *asked: computed.append(asked))
    played(EvictWanted(Tier.DEVICE, "full", 2))
    nodes = played.book.nodes
    path = [one for one in nodes.by_id.values() if one is not nodes.root]
    tags = np.concatenate([one.tags for one in sorted(path, key=lambda one: one.end_page)])
    assert tags.tolist() == tags_of(PROMPT)[: 6 if host_pages else 4].tolist()
    assert not computed


def test_what_a_node_had_is_known_for_one_operation() -> None:
    played = Played(0)
    played(EvictWanted(Tier.DEVICE, "full", 2))
    nodes = played.book.nodes
    assert [run.rows for run in nodes._cut.values()] == [PROMPT.raw]
    played(Arrived(2, PROMPT, 7, 6))
    assert not nodes._cut


def test_tags_are_those_of_the_same_rows_at_the_same_place_alone() -> None:
    nodes = Played(0).book.nodes
    known, other = run_of(PROMPT, tags_of(PROMPT)), Key.from_tokens([1, 2, 9], 1)
    for cut, at_hand in (({(int(known.above), PROMPT.raw[:8]): known}, []), ({}, [known])):
        nodes._cut, nodes.at_hand = cut, at_hand
        for key in (PROMPT, PROMPT.first(3), other):
            found = nodes._tags(key.raw, 0, known.above)
            assert found.tolist() == tags_of(key).tolist()
        strange = nodes._tags(PROMPT.raw, 0, np.uint64(5))
        assert not set(strange.tolist()) & set(known.tags.tolist())
    nodes._cut, nodes.at_hand = {}, [known]
    inside = nodes._tags(PROMPT.raw[16:32], 2, known.tags[1])
    assert inside.tolist() == known.tags[2:4].tolist()
    assert nodes._tags(PROMPT.raw[16:32], 3, known.tags[1]).tolist() != inside.tolist()
