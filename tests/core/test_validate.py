"""`Core.validate` accepts every state that sequences reach, and none in which a record is wrong."""

from collections.abc import Callable

import pytest

from hicache.core.core import Core
from hicache.core.errors import CoreBug
from hicache.core.node import Node
from hicache.core.state import State
from hicache.core.types import DEVICE
from invariants.fuzz.hicache.draw import sample_config
from invariants.fuzz.hicache.play import generate

from .rig import Rig


@pytest.mark.parametrize("seed", range(5))
def test_every_state_that_a_sequence_reaches_is_valid(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = Core.handle

    def validated(core: Core, event: object) -> object:
        outcomes = handle(core, event)  # type: ignore[arg-type]
        core.validate()
        return outcomes

    monkeypatch.setattr(Core, "handle", validated)
    outcome = generate(sample_config(seed), seed, 80, "off")
    assert outcome.failure is None, outcome.failure.text


def _node(state: State) -> Node:
    return next(iter(state.root.children.values()))


def _end(state: State) -> None:
    _node(state).end_page += 1


def _count(state: State) -> None:
    _node(state).with_pages = (3, 0)


def _owner(state: State) -> None:
    state.pools[DEVICE][0].owner[_node(state).pages[DEVICE][0]] = 77


def _state(state: State) -> None:
    state.pools[DEVICE][0].state[_node(state).pages[DEVICE][0]] = 1


def _counted(state: State) -> None:
    state.pools[DEVICE][0].counts[0] += 1


def _protected(state: State) -> None:
    state.pools[DEVICE][0].protected += 1


def _loan(state: State) -> None:
    state.pools[DEVICE][0].loans[0] += 1


def _queue(state: State) -> None:
    state.queues[0][DEVICE].heaps[0].clear()


def _unlisted(state: State) -> None:
    for locked in state.running[1].receipt.locked:  # type: ignore[union-attr]
        locked.clear()


def _unlocked(state: State) -> None:
    for node in state.root.children.values():
        for holders in node.locks[DEVICE]:
            holders.clear()


@pytest.mark.parametrize(
    "fault",
    [_end, _count, _owner, _state, _counted, _protected, _loan, _queue, _unlisted, _unlocked],
)
def test_a_wrong_record_is_found(fault: Callable[[State], None]) -> None:
    rig = Rig(16)
    rig.run(0, "wxyz")
    rig.run(2, "abcd")
    rig.begin(1, "wxyz0")
    rig.core.validate()
    fault(rig.core._state)
    with pytest.raises(CoreBug, match="the state is not valid"):
        rig.core.validate()
