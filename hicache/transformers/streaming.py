"""A streamer that is not told twice what it knows, when a call begins anew."""

from __future__ import annotations

from typing import Any


class Resumed:
    """Stands before the streamer of a call."""

    def __init__(self, streamer: Any) -> None:
        self._streamer = streamer
        self._given = self._repeated = 0

    def again(self) -> None:
        """The call begins anew, with the same prompt: what was given already is left out."""
        self._repeated = self._given

    def put(self, value: Any) -> None:
        if self._repeated:
            self._repeated -= 1
            return
        self._given += 1
        self._streamer.put(value)

    def end(self) -> None:
        self._streamer.end()
