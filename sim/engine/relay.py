"""What an engine of a disaggregated fleet hands on: interface only.

A prefill engine gives away each request whose prompt it has computed, and keeps its pages until
they have been read. A decode engine gets requests whose prompt was computed elsewhere: it takes
pages for it as for any prompt, and a transfer fills them instead of a pass. Does not move bytes or
choose an engine (see sim/fleet).
"""

from __future__ import annotations

from typing import Protocol

from hicache.core.actions import Prefill

from .sequence import Sequence


class Relay(Protocol):
    """The other end of an engine. Calls come at a step boundary."""

    def gives(self, sequence: Sequence) -> bool:
        """Whether a request whose last token was sampled decodes elsewhere. If so, its pages stay
        until `Engine.release`."""

    def fetch(self, sequence: Sequence, prefill: Prefill) -> None:
        """Fill the pages of this prompt, from the first token that is not cached here; then call
        `Engine.delivered`."""
