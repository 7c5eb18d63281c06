"""The pages and the progress of the requests of a recording, derived from its outcomes.

Contains the tables and states of each request, and the reads and writes of its decode steps up to
an event. For replays of recordings, which have no engine. Does not carry out the accesses.
"""

from __future__ import annotations

from hicache.core.actions import Cached, Granted, Outcome, Prefill, Released, Restarted
from hicache.core.events import Event, Finished, PagesWanted, Retracted
from hicache.core.types import RequestId
from sim.engine.accesses import Access, Accesses


class Holdings:
    """Call `note` for every outcome, and `decoded` before every event."""

    def __init__(self, accesses: Accesses) -> None:
        self._accesses = accesses
        self._latest: dict[RequestId, Prefill | Cached | Granted] = {}
        self._computed: dict[RequestId, int] = {}

    def note(self, outcome: Outcome) -> None:
        if isinstance(outcome, Prefill):
            self._computed[outcome.request] = outcome.end_token
        if isinstance(outcome, Prefill | Cached | Granted):
            self._latest[outcome.request] = outcome
        elif isinstance(outcome, Released | Restarted):
            self._latest.pop(outcome.request, None)
            self._computed.pop(outcome.request, None)

    def decoded(self, event: Event) -> list[Access]:
        """The accesses of the decode steps of the event's request since the last call.

        They reach up to the token that the event declares computed. The core may free pages
        afterwards.
        """
        if isinstance(event, PagesWanted):
            computed = event.computed_tokens
        elif isinstance(event, Finished):
            computed = event.length
        elif isinstance(event, Retracted):
            computed = event.committed_tokens
        else:
            return []
        request = event.request
        latest, since = self._latest.get(request), self._computed.get(request, 0)
        if latest is None or computed <= since:
            return []
        self._computed[request] = computed
        why = f"decode of request {request}"
        return self._accesses.decoded(latest.tables, latest.states, since, computed, why)
