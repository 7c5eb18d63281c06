"""What a core refuses: settings that make no sense, replies of wrong sizes, attaching, detaching,
mistaken pins.

What it decides is compared with the specification, in drawn sequences and on stored sequences.
"""

from types import SimpleNamespace
from typing import Any

import pytest

from hicache.core import state as core_state
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import CallerError
from hicache.core.events import (
    DetachWanted,
    FetchDone,
    LookupDone,
    PinWanted,
    StorageAttached,
    TimePassed,
    UnpinWanted,
)
from tests.configs import configured

from .rig import Rig, key


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
