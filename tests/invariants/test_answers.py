"""What ANSWERS says of pages and slots that are handed out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hicache.core.actions import Backup, Cached, Copy, Evicted, Granted, Load, Prefill, StateSlots
from hicache.core.types import Pages, Tier, frozen
from invariants.base import Broken
from invariants.checks.answers import Answers

FINE, BELOW, OPEN = frozen(np.array([4, -1])), frozen(np.array([4, -2])), np.array([5, 6])
SLOTS = StateSlots("mamba", -1, 3, (4, -1), 16, ())


def look(*outcomes: Any) -> None:
    book: Any = SimpleNamespace(outcomes=outcomes)
    Answers()._frozen(book)


def handing_out(pages: Pages, slots: StateSlots) -> list[Any]:
    """One outcome of each kind that hands out pages or slots."""
    table, copies = frozen(np.array([1])), (Copy("full", pages, frozen(np.array([2]))),)
    return [
        Load(1, 0, copies),
        Backup(1, copies),
        Prefill(1, 0, 0, 8, (table, pages), (), True, (slots,)),
        Granted(0, (table, pages), (slots,)),
        Cached(0, 1, (table, pages), (slots,)),
    ]


def test_what_may_be_handed_out_passes() -> None:
    evicted = Evicted(Tier.DEVICE, "full", np.array([7]), 0, False)  # told, and nobody's any more
    look(evicted, *handing_out(FINE, SLOTS), Prefill(1, 0, 0, 8, (FINE,), (), True))


@pytest.mark.parametrize("pages", [BELOW, OPEN], ids=["below -1", "writable"])
@pytest.mark.parametrize("kind", range(5))
def test_pages_are_read_only_and_from_minus_one_up(kind: int, pages: Pages) -> None:
    with pytest.raises(Broken, match="expected read-only page numbers"):
        look(handing_out(pages, SLOTS)[kind])


@pytest.mark.parametrize(
    "slots",
    [SLOTS._replace(working=-2), SLOTS._replace(checkpoint_slots=(3, -2))],
    ids=["working", "track"],
)
@pytest.mark.parametrize("kind", range(2, 5))
def test_slots_are_from_minus_one_up(kind: int, slots: StateSlots) -> None:
    with pytest.raises(Broken, match="expected slots from -1 up"):
        look(handing_out(FINE, slots)[kind])


@pytest.mark.parametrize("kind", range(3, 5))
def test_only_a_pass_copies_states(kind: int) -> None:
    with pytest.raises(Broken, match="copies only of a pass"):
        look(handing_out(FINE, SLOTS._replace(source=2))[kind])
