"""What a core refuses: settings that make no sense, replies of wrong sizes, attaching, detaching,
mistaken pins; a second call at a time, a call after a failure, an event that is none.

What it decides is compared with the specification, in drawn sequences and on stored sequences.
"""

from threading import Event as Signal
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from hicache.core import admission
from hicache.core import state as core_state
from hicache.core.actions import Matched
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import CallerError, CoreBug
from hicache.core.events import (
    Aborted,
    AdmitWanted,
    Arrived,
    BackupDone,
    ContinueWanted,
    DetachWanted,
    EvictWanted,
    FetchDone,
    Finished,
    Flushed,
    LoadDone,
    LookupDone,
    MatchWanted,
    PagesWanted,
    PinWanted,
    PrefillDone,
    Retracted,
    StorageAttached,
    TimePassed,
    UnpinWanted,
)
from hicache.core.eviction_policies import Lru
from hicache.core.types import Key, Tier
from tests.needs import PATIENCE_S
from tests.tiny import configured

from .rig import PAGE, Rig, key


@pytest.mark.parametrize(
    ("component", "settings", "words"),
    [
        ("mamba", {"mamba_interval": 6}, "mamba_interval"),
        ("mamba", {"mamba_states_per_path": -1}, "mamba_states_per_path"),
        ("mamba", {"device_pages": (8, 0)}, "device_pages"),
        ("mamba", {"swa_window": 8}, "settings"),
        ("swa", {"swa_window": 0}, "swa_window"),
        ("swa", {"device_pages": (8, 2)}, "device_pages"),
        ("swa", {"components": ("full", "lstm"), "swa_window": 0}, "component"),
        ("swa", {"components": ("swa", "full")}, "components"),
    ],
)
def test_meaningless_windows_and_states_are_refused(
    component: str, settings: dict[str, object], words: str
) -> None:
    value: dict[str, object] = {"page_size": 4, "device_pages": (8, 8), "host_pages": (0, 0)}
    value |= {"components": ("full", component)} | ({"swa_window": 8} if component == "swa" else {})
    with pytest.raises(CallerError, match=words):
        Core(configured(**value | settings))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"storage": True}, "storage: expected host pages"),
        ({"prefetch_policy": "never"}, "prefetch policies: expected one of best_effort"),
        ({"prefetch_threshold_tokens": -1}, "prefetch_threshold_tokens: expected 0 or more"),
        ({"prefetch_budget_tokens": 1.5}, "prefetch_budget_tokens: expected a whole number"),
        ({"store_tries": "x"}, "store_tries: expected a whole number"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict[str, object], words: str) -> None:
    with pytest.raises(CallerError, match=words):
        Core(Config(1, (8,), **settings))  # type: ignore[arg-type]


def test_a_core_without_host_pages_takes_no_storage() -> None:
    rig = Rig(8)
    with pytest.raises(CallerError, match="expected a core with host pages"):
        rig.feed(StorageAttached())
    with pytest.raises(CallerError, match="expected an attached storage, found none"):
        rig.feed(DetachWanted())
    rig.run(1, "ab")


@pytest.mark.parametrize("pages", [-1, 5, True and 7, 1.0, None])
def test_replies_of_wrong_sizes_are_refused(pages: object) -> None:
    rig = Rig(16, 16, storage=True)
    lookup = rig.lookup(1, "abcd")
    with pytest.raises(CallerError, match="pages"):
        rig.feed(LookupDone(lookup.transfer, pages))  # type: ignore[arg-type]
    fetch = rig.fetch(lookup, 4)
    with pytest.raises(CallerError, match="pages"):
        rig.feed(FetchDone(fetch.transfer, pages))  # type: ignore[arg-type]
    with pytest.raises(CallerError, match="expected a lookup in flight, found a fetch"):
        rig.feed(LookupDone(fetch.transfer, 0))
    rig.feed(FetchDone(fetch.transfer, 4))
    with pytest.raises(CallerError, match="exactly once"):
        rig.feed(FetchDone(fetch.transfer, 4))


def test_of_many_distrusted_pages_the_one_that_failed_longest_ago_is_forgotten() -> None:
    state: Any = SimpleNamespace(distrusted={})
    for number in (*range(core_state.MOST_DISTRUSTED), 0, -1):
        core_state.distrust(state, b"%d" % number)
    assert b"0" in state.distrusted
    assert b"1" not in state.distrusted
    assert len(state.distrusted) == core_state.MOST_DISTRUSTED


@pytest.mark.parametrize(
    "event", [UnpinWanted(0), PinWanted(-1, key("a")), PinWanted(0, key("")), TimePassed()]
)
def test_a_mistaken_want_is_refused_and_changes_nothing(event: object) -> None:
    rig = Rig(device=8, pin_pages=(4,))
    with pytest.raises(CallerError, match="expected"):
        rig.feed(event)  # type: ignore[arg-type]
    assert not rig.view.pins


def test_pins_leave_room_for_one_request() -> None:
    with pytest.raises(CallerError, match="pin_pages: expected at most"):
        Rig(device=8, pin_pages=(9,))
    with pytest.raises(CallerError, match="device_pages of full"):
        Rig(device=8, pin_pages=(8,))


EVERY = (
    Arrived(7, key("a"), PAGE, 1),
    MatchWanted(0),
    AdmitWanted(0, 1),
    ContinueWanted(0, 1),
    PagesWanted(0, 1),
    Finished(0, key("a"), PAGE),
    Aborted(0),
    Retracted(0, key("a"), PAGE, 1, 0),
    EvictWanted(Tier.DEVICE, "full", 1),
    Flushed(),
    LoadDone(1),
    BackupDone(1),
    PrefillDone(1),
)


# -- a core that failed


def refuses_everything(rig: Rig, because: str) -> None:
    for event in EVERY:
        with pytest.raises(CoreBug, match=f"failed before and answers nothing any more: {because}"):
            rig.feed(event)


def test_a_core_that_failed_refuses_every_later_call_and_names_the_first_failure() -> None:
    rig = Rig()
    _, prefill = rig.begin(0, "abcd")
    rig.view.requests[0].receipt = None
    with pytest.raises(CoreBug, match="request 0 has no receipt to lock with"):
        rig.feed(PrefillDone(prefill.transfer))
    refuses_everything(rig, "PrefillDone ended in CoreBug: request 0 has no receipt")


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, CallerError])
def test_any_exception_after_a_change_poisons_the_core(
    error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(self: Lru, node: Any, component: int) -> int:
        raise error("a policy of the user's own")

    rig = Rig()
    rig.arrive(0, "abcd")
    outcomes = rig.admit(0)
    with monkeypatch.context() as patch:
        patch.setattr(Lru, "rank", broken)
        rig.settle(outcomes)
        with pytest.raises(error, match="user's own"):
            rig.finish(0)
    refuses_everything(rig, f"Finished ended in {error.__name__}: a policy of the user's own")


# -- one call at a time


def test_a_reentrant_call_is_a_caller_error(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, texts = Rig(), []
    real = admission._report_match

    def again(state: Any, request: Any) -> None:
        with pytest.raises(CallerError) as error:
            rig.core.handle(Aborted(request.id))
        texts.append(str(error.value))
        real(state, request)

    with monkeypatch.context() as patch:
        patch.setattr(admission, "_report_match", again)
        assert isinstance(rig.arrive(0, "abcd")[-1], Matched)
    assert texts == ["Aborted: handle() was called while another call runs; wait for its answer"]
    rig.settle(rig.admit(0))
    rig.settle(rig.finish(0))
    assert rig.residency() == {"abcd": "D"}


def test_a_call_from_another_thread_is_a_caller_error(monkeypatch: pytest.MonkeyPatch) -> None:
    rig, inside, go_on = Rig(), Signal(), Signal()
    real = admission._report_match

    def slowly(state: Any, request: Any) -> None:
        inside.set()
        assert go_on.wait(PATIENCE_S)
        real(state, request)

    monkeypatch.setattr(admission, "_report_match", slowly)
    thread = Thread(target=rig.arrive, args=(0, "abcd"))
    thread.start()
    try:
        assert inside.wait(PATIENCE_S)
        for event in (Flushed(), Aborted(0)):
            with pytest.raises(CallerError, match="called while another call runs"):
                rig.feed(event)
    finally:
        go_on.set()
        thread.join(PATIENCE_S)
    assert isinstance(rig.feed(MatchWanted(0))[0], Matched)


# -- events that are none

BAD_KEY = key("abcd")
BAD: dict[str, tuple[Any, str]] = {
    "request as text": (Arrived("7", BAD_KEY, 16, 4), "request: expected a whole number"),  # type: ignore[arg-type]
    "request as a list": (AdmitWanted([0], 1), "expected a waiting request, found none"),  # type: ignore[arg-type]
    "request below 0": (Arrived(-1, BAD_KEY, 16, 4), "a new id from 0 up"),
    "no key": (Arrived(7, None, 16, 4), "expected a Key of bytes, found None"),  # type: ignore[arg-type]
    "key of text": (Arrived(7, Key("abcd", 8), 16, 4), "expected a Key of bytes"),  # type: ignore[arg-type]
    "key of half a row": (Arrived(7, Key(b"abcd", 32), 16, 1), "4 bytes, which are no whole rows"),
    "stride as a float": (Arrived(7, Key(b"", 32.0), 16, 1), "stride of the key: expected a whole"),  # type: ignore[arg-type]
    "namespace as a number": (Arrived(7, BAD_KEY._replace(namespace=3), 16, 4), "namespace"),  # type: ignore[arg-type]
    "length as a float": (Arrived(7, BAD_KEY, 16.0, 4), "length: expected a whole number"),  # type: ignore[arg-type]
    "match_pages as text": (Arrived(7, BAD_KEY, 16, "4"), "match_pages: expected a whole"),  # type: ignore[arg-type]
    "chunk as a float": (AdmitWanted(1, 4.0), "chunk: expected a whole number"),  # type: ignore[arg-type]
    "growth by half a token": (PagesWanted(0, 16.5), "length: expected a whole number"),  # type: ignore[arg-type]
    "computed as text": (PagesWanted(0, 16, "8"), "computed_tokens: expected a whole number"),  # type: ignore[arg-type]
    "finish without a key": (Finished(0, None, 16), "expected a Key of bytes"),  # type: ignore[arg-type]
    "finish of half a token": (Finished(0, BAD_KEY, 15.5), "length: expected a whole number"),  # type: ignore[arg-type]
    "retract of half a token": (
        Retracted(0, BAD_KEY, 16, 4, 15.5),  # type: ignore[arg-type]
        "committed_tokens: expected a whole number",
    ),
    "transfer as text": (PrefillDone("1"), "transfer 1: expected a prefill in flight"),  # type: ignore[arg-type]
    "transfer as a list": (LoadDone([1]), "expected a load in flight"),  # type: ignore[arg-type]
    "a tier that is none": (EvictWanted(7, "full", 1), "found 1 of full on 7"),  # type: ignore[arg-type]
    "half a page": (EvictWanted(Tier.DEVICE, "full", 0.5), "pages: expected a whole number"),  # type: ignore[arg-type]
    "abort of a list": (Aborted([]), "expected a live request, found none"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", BAD)
def test_an_object_that_is_no_event_is_refused_before_anything_changes(name: str) -> None:
    rig = Rig()
    rig.settle(rig.begin(0, "abcd")[1:])
    rig.arrive(1, "abxy")
    before = (list(rig.device.counts), rig.view.tick, rig.residency(), dict(rig.view.requests))
    event, text = BAD[name]
    with pytest.raises(CallerError, match=text):
        rig.feed(event)
    after = (list(rig.device.counts), rig.view.tick, rig.residency(), dict(rig.view.requests))
    assert after == before
    rig.settle(rig.finish(0))
    rig.settle(rig.admit(1))
    rig.settle(rig.finish(1))
    rig.empty()


def test_a_bad_first_key_does_not_fix_the_row_length() -> None:
    rig = Rig()
    rig.feed(Arrived(0, Key(bytes(16), 8), 8, 2))
    with pytest.raises(CallerError, match="rows of 8 bytes like every key before, found 32"):
        rig.arrive(1, "abcd")
    rig.feed(Aborted(0))
    rig.run(1, "abcd")
    with pytest.raises(CallerError, match="rows of 32 bytes like every key before, found 8"):
        rig.feed(Arrived(0, Key(bytes(16), 8), 8, 2))
    rig.feed(Flushed())
    rig.feed(Arrived(0, Key(bytes(16), 8), 8, 2))
