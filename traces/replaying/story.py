"""The story of an error: the last operations of the core, added to it as a note.

Does not print errors (see traces/cli) or keep operations (see invariants/watch and
invariants/recent).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from hicache.core.errors import About, CallerError

_NONE = "story: none, since nothing is kept with --check off; leave it out for a story"


class Told(Protocol):
    """An observer that keeps operations."""

    def story_of(self, whom: Sequence[About]) -> list[str]:
        """The last operations that concern any of these objects, and the last event."""


@contextmanager
def story_on_error(told: Told | None) -> Iterator[None]:
    """Adds the last operations to an error that ends the block and has no story yet.

    told: None if nothing observed the core.
    """
    try:
        yield
    except CallerError:
        raise
    except Exception as error:
        if not any("story:" in text for text in (str(error), *getattr(error, "__notes__", ()))):
            lines = told.story_of(getattr(error, "about", ())) if told is not None else []
            note = ["story:", *(f"    {line}" for line in lines)]
            error.add_note("\n".join(note) if told is not None else _NONE)
        raise
