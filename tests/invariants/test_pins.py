"""What a transfer pins: nothing of what is no node's, and it says which page that is."""

from __future__ import annotations

import numpy as np
import pytest

from hicache.core.actions import Backup, Copy
from hicache.core.config import Config
from hicache.core.core import Core
from invariants.books.book import Book
from invariants.books.pages import FLIGHT, REQUEST, code_of
from invariants.books.pins import pin
from invariants.books.tickets import Move


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
