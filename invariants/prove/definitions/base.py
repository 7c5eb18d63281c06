"""The interface of a mistake in a definition.

The core, its books and the fingerprints of pages take a definition as it is: a window that is too
short, or a state of the wrong token, is a wrong answer that they call right. Each file defines

    TITLE     one sentence: what is taken for something else
    FAMILIES  names of the families whose logits show it
    plant     plant(patch), as of a planted bug (see invariants/planted)
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from hicache.core import registry
from hicache.transformers.describing import kinds

from ...planted.base import Patch, planting

DEFINITIONS = "invariants.prove.definitions"


class WrongDefinition(Protocol):
    """The contents of a file."""

    TITLE: str
    FAMILIES: tuple[str, ...]

    def plant(self, patch: Patch) -> None: ...


def names() -> list[str]:
    """Names of all: file names with hyphens for underscores."""
    return [name.replace("_", "-") for name in registry.names(DEFINITIONS)]


def load(name: str) -> WrongDefinition:
    """Raises CallerError for an unknown name."""
    found: WrongDefinition = registry.load(DEFINITIONS, name)
    return found


@contextmanager
def planted(name: str) -> Iterator[WrongDefinition]:
    """Plants the mistake of that name within the block."""
    wrong = load(name)
    kinds()  # a file that is first imported while something is planted would keep it
    with planting(wrong.plant):
        yield wrong
