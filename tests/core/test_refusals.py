"""What a refusal says: which reply to wait for."""

from __future__ import annotations

from hicache.core.actions import Prefill, Refused
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.events import Aborted, AdmitWanted, Arrived, PrefillDone
from hicache.core.types import Key


def key(first: int, pages: int) -> Key:
    return Key.from_page_ids(range(first, first + pages))


def test_pages_on_loan_are_free_with_the_last_flight_that_uses_them() -> None:
    """They counted for the oldest flight, whatever that was: the refused request asked again after
    a reply that freed nothing for it."""
    core = Core(Config(4, (8,)))
    for request in (1, 2):
        core.handle(Arrived(request, key(100 * request, 4), 16, 4))
    (first,) = [one for one in core.handle(AdmitWanted(1, 16)) if isinstance(one, Prefill)]
    (second,) = [one for one in core.handle(AdmitWanted(2, 16)) if isinstance(one, Prefill)]
    core.handle(Aborted(2))
    core.handle(Arrived(3, key(300, 4), 16, 4))
    (refusal,) = core.handle(AdmitWanted(3, 16))
    assert isinstance(refusal, Refused)
    assert (refusal.reason, refusal.after) == ("writing_back", second.flight)
    assert first.flight < second.flight
    core.handle(PrefillDone(second.flight))
    assert any(isinstance(one, Prefill) for one in core.handle(AdmitWanted(3, 16)))
