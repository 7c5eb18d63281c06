"""The times of drawn workloads, to the nanosecond, whatever is checked; rules of the engine alone;
runs that are stuck; and pools that are too small, or nearly."""

import gc
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from hicache.core.actions import Outcome
from hicache.core.errors import CallerError
from hicache.core.events import Event
from hicache.core.view import CoreView
from hicache.runtime.encoding import event_bytes
from sim.engine.sequence import DecodeSet, Sequence, TokenGaps
from sim.errors import StuckError
from sim.options import EngineOptions
from sim.replica import TimedResult
from sim.workload import Job

from .cases import crowded, drawn, profiled
from .found_out import raised
from .rig import CONFIGURATIONS, Case, idle, make, run, simulated, world_of
from .workloads import PAGE, alone, shared_prefixes

# In 130 a request restarts that has had its first token; in 37 a retracted one would come back at
# once, for ever; in 13, 22, 49 and 53 requests wait for pages between two tokens; in 151 the
# estimated reserve meets retractions.
_CASES = {
    drawn: (*range(24), 130),
    crowded: (0, 2, 9, 22, 49, 53),
    profiled: (*range(12), 37, 41, 62, 88, 151),
}
RAN: dict[str, str] = json.loads((Path(__file__).parent / "ran.json").read_text())


class Events:
    """An observer that notes each event with its time."""

    def __init__(self) -> None:
        self.now_ns: Callable[[], int] = lambda: 0
        self.all: list[tuple[int, bytes]] = []

    def on_event(self, event: Event, view: CoreView) -> None:
        self.all.append((self.now_ns(), event_bytes(event)))

    def on_outcomes(self, event: Event, outcomes: list[Outcome], view: CoreView) -> None:
        """They are in the digest of the run."""


def ran(case: Case) -> tuple[TimedResult, str]:
    """The result, and a digest of all of it: each event and decision with its time, the use of the
    link, and the times between the tokens of each request."""
    events = Events()
    world = world_of(case, observers=(events,))
    events.now_ns = lambda: world.clock.now_ns
    result = world.run()
    idle(world)
    (gaps,) = result.gaps
    numbers = range(len(case.workload.jobs))
    between = [sorted(np.repeat(*gaps.weighted(np.array([number]))).tolist()) for number in numbers]
    for limit in (0, 10**6, 10**8):
        slow = [sum(time > limit for time in times) for times in between]
        assert gaps.slower(limit, len(numbers)).tolist() == slow
    used = [(item.bytes, item.busy_ns) for item in (result.d2h, result.h2d)]
    rows = [tuple(request) for request in result.requests]
    full = (rows, between, used, result.evicted, result.digest, events.all)
    return result, sha256(repr(full).encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    "case",
    [partial(item, seed) for item, seeds in _CASES.items() for seed in seeds],
    ids=lambda item: f"{item.func.__name__} {item.args[0]}",
)
def test_a_drawn_workload_takes_the_times_that_it_took(case: partial[Case]) -> None:
    made = case()
    result, digest = ran(made)
    assert len(result.requests) == len(made.workload.jobs), "a request was lost"
    assert case.func is not crowded or sum(request.retractions for request in result.requests) > 0
    assert digest == RAN[f"{case.func.__name__} {case.args[0]}"]


def test_a_due_step_from_before_a_retraction_is_ignored() -> None:
    """It was to end at step 3; it left, and its table is full at step 3 instead."""
    decode = DecodeSet(TokenGaps(lambda: 0))
    sequence = Sequence(Job(0, 0, 4, 4), 4, 4, 0, generated=1, kv_tokens=4, table=np.arange(3))
    decode.join(sequence, 4)
    decode.steps = 1
    decode.leave(sequence)
    sequence.table, sequence.outputs, sequence.kv_tokens = np.arange(2), 9, 6
    decode.join(sequence, 4)
    decode.steps = 3
    assert decode.pop_ended() is None
    assert decode.pop_full() is sequence
    assert (sequence.kv_tokens, sequence.generated) == (8, 4)


def test_stuck_runs_say_so() -> None:
    """A run whose requests can never go on ends with an error, and keeps what was served."""
    workload = alone([0, 5, 5], 8, 2)
    world = make(workload, 6, 0)
    schedule = world.engine._prefills.schedule

    def never(retractions: int) -> None:
        if len(world.result().requests) < 1:
            schedule(retractions)
        else:
            world.engine._prefills.batch = []

    world.engine._prefills.schedule = never  # type: ignore[method-assign]
    error = raised(world.run, StuckError)
    assert error is not None, "a run that is stuck ended well"
    assert error.exit_code == 14
    left = 3 - len(world.result().requests)
    assert str(error).startswith(f"{left} requests are left ("), str(error)
    message = "0 transfers unanswered, and nothing is scheduled; last refusal: Refused(request=2, "
    assert message in str(error), str(error)
    _collection_is_restored()


def _collection_is_restored() -> None:
    """A run collects no garbage, and leaves the collector as it was."""
    for on in (True, False):
        (gc.enable if on else gc.disable)()
        seen: list[bool] = []

        def note(ended: int, jobs: int, seen: list[bool] = seen) -> None:
            seen.append(gc.isenabled())

        try:
            world = make(alone([0], 8, 2), 6, 0)
            world._progress = note
            world.run()
            assert (seen, gc.isenabled()) == ([False], on)
        finally:
            gc.enable()


@pytest.mark.parametrize(
    ("seed", "checks", "scheduled"),
    [
        *((7, (213, 207), 190), (10, (86, 108), 104), (18, (196, 347), 442)),
        *((31, (255, 372), 276), (37, (253, 279), 73)),
    ],
)
def test_levels_and_steps_agree(seed: int, checks: tuple[int, int], scheduled: int) -> None:
    """Checks and fast-forward change no time, no decision and no digest. checks: of bytes and of
    accesses, as many as all passes, copies and steps report. scheduled: events of the clock."""
    case = drawn(seed)
    result, _ = simulated(case)
    assert (result.byte_checks, result.access_checks) == checks
    bare = replace(result, byte_checks=0, access_checks=0)
    off = replace(case, options=replace(case.options, checks="off"))
    assert simulated(off)[0] == bare
    stepped = replace(off, engine=replace(off.engine, fast_forward=False))
    result, world = simulated(stepped)
    assert result == bare
    assert next(world.clock._eid) == scheduled, "events that change nothing"


@pytest.mark.parametrize(
    ("seed", "count", "window", "device", "host"),
    [(591, 31, 16, (20, 5, 2), (1, 3, 1)), (1008, 48, 6, (13, 3, 3), (60, 40, 0))],
)
def test_a_window_that_begins_inside_a_reused_node_does_not_starve_its_request(
    seed: int, count: int, window: int, device: tuple[int, ...], host: tuple[int, ...]
) -> None:
    """The smallest pools: what the window has left must go, though it is half of a node."""
    engine = EngineOptions(token_budget=16, max_running=1, order="longest-prefix")
    rules = {"components": CONFIGURATIONS[3], "swa_window": window, "mamba_interval": PAGE}
    workload = shared_prefixes(seed, count, gap_ns=10**6)
    world = make(workload, device, host, engine=engine, load_threshold_pages=3, **rules)
    assert len(world.run().requests) == count
    idle(world)


def test_a_pool_that_is_too_small_is_named_with_its_need() -> None:
    rules, growing = {"components": ("full", "swa"), "swa_window": 8}, alone([0] * 6, 8, 30)
    with pytest.raises(CallerError, match=r"device pool of full: expected at least 10 pages for"):
        run(growing, (9, 12), (0, 0), **rules)
    with pytest.raises(CallerError, match=r"device_pages of swa: expected at least 3, .*found 2"):
        run(growing, (20, 2), (0, 0), **rules)
