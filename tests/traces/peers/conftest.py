"""The processes of peers, which the tests of a file share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from .opening import Opened


@pytest.fixture(scope="module")
def opened() -> Iterator[Opened]:
    """Opens the process of a peer, once."""
    with ExitStack() as stack:
        yield Opened(stack)
