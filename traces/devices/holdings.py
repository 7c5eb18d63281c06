"""What the requests of a recording have and have computed, as far as its outcomes tell.

Lives here: the tables and states of each request, and what its decode steps read and wrote up to an
event. For replays of recordings, which have no engine that knows its sequences. Must not live here:
what is done with the accesses.
"""

from __future__ import annotations

from hicache.core.actions import Cached, Granted, Outcome, Prefill, Released, Restarted
from hicache.core.events import Event, Finished, PagesWanted, Retracted
from hicache.core.types import RequestId
from sim.engine.accesses import Access, Accesses


class Holdings:
    """Tell it every outcome (`note`), and ask it before every event (`decoded`)."""

    def __init__(self, accesses: Accesses) -> None:
        self._accesses = accesses
        self._has: dict[RequestId, Prefill | Cached | Granted] = {}
        self._computed: dict[RequestId, int] = {}

    def note(self, outcome: Outcome) -> None:
        if isinstance(outcome, Prefill):
            self._computed[outcome.request] = outcome.end_token
        if isinstance(outcome, Prefill | Cached | Granted):
            self._has[outcome.request] = outcome
        elif isinstance(outcome, Released | Restarted):
            self._has.pop(outcome.request, None)
            self._computed.pop(outcome.request, None)

    def decoded(self, event: Event) -> list[Access]:
        """What its request decoded since it was last asked of it, all at once: up to what the event
        says is computed, before the core may let go of any of it."""
        if isinstance(event, PagesWanted):
            held = event.computed_tokens
        elif isinstance(event, Finished):
            held = event.length
        elif isinstance(event, Retracted):
            held = event.committed_tokens
        else:
            return []
        request = event.request
        has, since = self._has.get(request), self._computed.get(request, 0)
        if has is None or held <= since:
            return []
        self._computed[request] = held
        why = f"decode of request {request}"
        return self._accesses.decoded(has.tables, has.states, since, held, why)
