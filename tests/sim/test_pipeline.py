"""Pipeline stages: their times in closed form, and drawn workloads with all checks on.

The closed forms have a time model in which every pass takes each layer the same time.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from hicache import models
from hicache.core.config import Config
from sim import hardware
from sim.engine.pipeline import StageUse
from sim.engine.running import Sequences
from sim.options import EngineOptions, WorldOptions
from sim.replica import TimedResult
from sim.times.base import Chunks, Parallelism, TimeModel
from sim.workload import Job
from sim.world import World

from .cases import crowded, drawn, profiled
from .rig import Case, idle, simulated
from .workloads import PAGE, Prompts, alone

MODEL = models.get("llama-3.1-8b")
H100 = hardware.get("h100")
_LAYER_NS = 1_000


class _Even:
    """Every pass takes each layer the same time. Satisfies `TimeModel`."""

    label = "even"

    def __init__(self, layers: int = MODEL.layers, first_ns: int = 0, send_ns: int = 0) -> None:
        self.layers = layers
        self._first_ns, self._send_ns = first_ns, send_ns

    def layer_ns(self, chunks: Chunks, decoding: int, context: int, /) -> int:
        return _LAYER_NS

    def overhead_ns(self, chunks: Chunks, decoding: int, /) -> int:
        return self._first_ns

    def first_ns(self, chunks: Chunks, decoding: int, /) -> int:
        return self._first_ns

    def send_ns(self, chunks: Chunks, decoding: int, /) -> int:
        return self._send_ns


def _run(
    workload: Prompts,
    pp: int,
    times: TimeModel | None = None,
    engine: EngineOptions | None = None,
    pages: tuple[int, int] = (4000, 0),
    passes: int = 0,
) -> TimedResult:
    config = Config(PAGE, (pages[0],), (pages[1],), ("full",), passes=passes or pp)
    options = WorldOptions(checks="every", parallelism=Parallelism(1, pp))
    engine = engine or EngineOptions(token_budget=4 * PAGE)
    costs = times or _Even()
    return World(workload, config, MODEL, H100, engine=engine, options=options, costs=costs).run()


def _stage_ns(pp: int) -> int:
    return MODEL.layers // pp * _LAYER_NS


@pytest.mark.parametrize("pp", [1, 2, 4, 8])
def test_prompts_fill_the_pipeline(pp: int) -> None:
    """m passes through p stages take m + p - 1 times of a stage, and the bubbles are the rest."""
    for count in (1, 2, 5, 12):
        result = _run(alone([0] * count, 4 * PAGE), pp)
        stage_ns = _stage_ns(pp)
        assert result.makespan_ns == (count + pp - 1) * stage_ns
        ends = [request.first_token_ns for request in result.requests]
        assert ends == [(number + pp) * stage_ns for number in range(count)]
        assert all(request.load_ns == 0 for request in result.requests)
        if pp > 1:
            assert result.stages == StageUse((count * stage_ns,) * pp, result.makespan_ns)


def test_chunks_of_a_prompt_follow_each_other() -> None:
    """A prompt of m chunks takes m + p - 1 times of a stage, like m prompts; with one pass of it
    under way at a time, m p times."""
    pp, chunks = 4, 6
    stage_ns, prompt = _stage_ns(pp), alone([0], chunks * 4 * PAGE, 3)
    for passes, stages in ((pp, chunks + pp - 1), (2, 13), (1, chunks * pp)):
        result = _run(prompt, pp, passes=passes)
        (item,) = result.requests
        assert item.first_token_ns == item.compute_ns == stages * stage_ns
        assert item.finish_ns - item.first_token_ns == 2 * pp * stage_ns


def test_stages_send_and_differ() -> None:
    """30 layers on 4 stages are 7, 8, 7 and 8 of them; the first one has the rest of a pass. The
    longest sets the pace, until a micro-batch waits for its last pass and all of its sends."""
    first_ns, send_ns, count = 300, 2_000, 9
    times = _Even(30, first_ns, send_ns)
    model_ns = [7 * _LAYER_NS + first_ns, 8 * _LAYER_NS, 7 * _LAYER_NS, 8 * _LAYER_NS]
    result = _run(alone([0] * count, 4 * PAGE), 4, times)
    assert not any(request.load_ns for request in result.requests)  # a send is no load
    assert result.requests[0].first_token_ns == sum(model_ns) + 3 * send_ns
    ends = [request.first_token_ns for request in result.requests]
    assert ends[1] - ends[0] == 8 * _LAYER_NS
    cycles = [after - before for before, after in zip(ends[:-4], ends[4:], strict=True)]
    assert cycles == [sum(model_ns) + 3 * send_ns] * (count - 4)


@pytest.mark.parametrize("busy", [4, 2, 1])
def test_decoding_waits_for_its_own_pass(busy: int) -> None:
    """A micro-batch has a token each time that a pass has gone through all stages, however many
    of them decode; a full pipeline has no bubbles between, a half-empty one every second."""
    pp, outputs = 4, 50
    stage_ns = _stage_ns(pp)
    result = _run(alone([0] * busy, 4 * PAGE, outputs), pp)
    for number, request in enumerate(result.requests):
        assert request.first_token_ns == (number + pp) * stage_ns
        assert request.finish_ns - request.first_token_ns == (outputs - 1) * pp * stage_ns
        assert _gaps(result, number) == [pp * stage_ns] * (outputs - 1)
    assert result.stages is not None
    assert set(result.stages.computing_ns) == {busy * outputs * stage_ns}
    assert result.stages.under_way_ns == (outputs * pp + busy - 1) * stage_ns


def test_a_load_comes_over_the_link_of_each_stage() -> None:
    """Pages come back from host: each stage loads those of its layers, all at the same time."""
    prompts = [list(range(80)), list(range(1000, 1100)), list(range(2000, 2100)), list(range(81))]
    jobs = [Job(at, at * 10**10, len(prompt), 1) for at, prompt in enumerate(prompts)]
    engine = EngineOptions(layer_groups=4)
    item, two, four = (
        _run(Prompts(jobs, prompts), pp, engine=engine, pages=(30, 200)) for pp in (1, 2, 4)
    )
    assert item.h2d.bytes == two.h2d.bytes == four.h2d.bytes > 0
    assert item.requests[3].host_tokens == four.requests[3].host_tokens == 80
    latency_ns = H100.copy_latency_ns  # of each layer group
    moved_ns = [item.h2d.busy_ns - 4 * latency_ns, two.h2d.busy_ns - 2 * latency_ns]
    assert abs(moved_ns[0] - 2 * moved_ns[1]) <= 4
    assert four.requests[3].load_ns < two.requests[3].load_ns < item.requests[3].load_ns


def _gaps(timed_result: TimedResult, request: int) -> list[int]:
    """The times between the tokens of a request, sorted."""
    message = [gaps.weighted(np.array([request])) for gaps in timed_result.gaps]
    return sorted(np.concatenate([np.repeat(*item) for item in message]).tolist())


def _checked(case: Case) -> TimedResult:
    """Runs a case with all checks on, and compares what it tells with what happened."""
    result, world = simulated(case)
    assert len(result.requests) == len(case.workload.jobs), "a request was lost"
    idle(world)
    for request in result.requests:
        assert min(request.queue_ns, request.load_ns, request.compute_ns) >= 0, request
        gaps = _gaps(result, request.request)
        assert len(gaps) == max(1, request.output_length) - 1
        assert sum(gaps) == request.finish_ns - request.first_token_ns
    return result


@pytest.mark.parametrize(
    "case",
    [partial(make, seed) for make in (drawn, crowded, profiled) for seed in range(2)],
    ids=lambda item: f"{item.func.__name__} {item.args[0]}",
)
def test_drawn_workloads(case: partial[Case], monkeypatch: pytest.MonkeyPatch) -> None:
    """Failing loads, retractions, windows, states and every way to compose passes."""
    retract = Sequences.retract_wanted

    def checked(self: Sequences) -> None:
        """None is retracted for one that has got pages meanwhile."""
        assert not any(self.batches[by.home].decode.holds(by) for by in self.wanted.values())
        retract(self)

    monkeypatch.setattr(Sequences, "retract_wanted", checked)
    made, pp = case(), 2 + case.args[0] % 3
    options = replace(made.options, parallelism=Parallelism(1, pp))
    _checked(replace(made, config=replace(made.config, passes=pp), options=options))
