"""Steps that end something, all of which must be tried although one of them fails.

The first error is the one that explains the others, so it is what the caller sees. Does not know
what is ended.
"""

from __future__ import annotations

from collections.abc import Callable


def try_all(*steps: Callable[[], object], first: BaseException | None = None) -> None:
    """Takes every step, then raises the first error. Later ones are noted on it.

    first: an error that came before. It is noted on, not raised.
    """
    error = first
    for step in steps:
        try:
            step()
        except Exception as failed:
            if error is None:
                error = failed
            else:
                error.add_note(f"then also {type(failed).__name__}: {failed}")
                for note in getattr(failed, "__notes__", ()):
                    error.add_note(note)
    if error is not None and first is None:
        raise error
