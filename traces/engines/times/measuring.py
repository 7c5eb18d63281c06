"""Measures a real engine, and holds the simulator against it. Both run the same requests.

Does not draw workloads, fit, simulate or compare (see the files beside this one).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hicache.core.errors import CallerError
from sim.engine.forward import HostTimes
from sim.hardware.profile import HardwareProfile
from sim.times.measured import Measured

from ..vllm import Vllm
from .comparing import Apart, Times, apart, median_of, of_answers, together
from .describing import engine_of, model_of
from .fitting import Pass, fit
from .playing import play, streams_of
from .workloads import Draw, Workload, host_tier, judged, measured

_NS = 1e9
_SIDES = ("engine", "simulator")
_SECONDS = 1800.0  # for one workload
_ROOM = 3  # prompts of the longest length that fit the device beside a host tier
_DRIFT, _DRIFT_BATCH = ("prefill", "decode 4"), 4
_SLACK = 64  # tokens of an answer, beside the longest prompt
Said = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Server:
    """How the engine is opened. family: None for the model in `folder`. longest: tokens of the
    longest prompt. clock: of `engines.passes`. engine: more arguments of vLLM."""

    python: str
    folder: str
    family: str | None
    longest: int
    threads: int = 0
    clock: str = "wall"
    engine: Mapping[str, Any] = field(default_factory=dict)

    def start(self, host: str = "", blocks: int = 0) -> Vllm:
        """host: bytes of the connector's host tier; none: without the connector. blocks: of the
        engine's own cache; 0: as many as it takes."""
        given = dict(self.engine)
        if self.family is not None:
            given["max_model_len"] = -(-(self.longest + 4 * _SLACK) // 32) * 32
        if blocks:
            given["num_gpu_blocks_override"] = blocks
        return Vllm(
            self.python,
            self.family,
            folder=self.folder,
            engine=given,
            connector={"host": host} if host else None,
            threads=self.threads,
            clock=self.clock,
        )

    @property
    def weights(self) -> Path:
        """The folder of the model, once the engine has been opened."""
        place = Path(self.folder)
        return place if self.family is None else place / f"{self.family}-0"


def _served(engine: Vllm, workload: Workload, salt: str = "", passes: bool = False) -> Any:
    """Runs a workload with an empty cache. salt: what its prompts share pages with."""
    engine.ask({"do": "drop"}, _SECONDS)
    asked = [one.asked | ({"salt": salt} if salt else {}) for one in workload.requests]
    return engine.generate(asked, None, _SECONDS, workload.at_once, passes)


def measure(server: Server, name: str, repeats: int, said: Said) -> dict[str, Any]:
    """The part `served` of a profile; its model is a description. said: is told what was run."""
    with server.start() as engine:
        facts = engine.open()
        model = model_of(facts, server.weights, name)
        runs = measured(model.vocabulary, server.longest, facts["max_num_seqs"], repeats)
        found: list[Pass] = []
        waits: list[float] = []
        _served(engine, next(iter(measured(model.vocabulary, server.longest, 4, 1))))  # warm
        for workload in runs:
            answer = _served(engine, workload, passes=True)
            found += [Pass.of(one) for one in answer["passes"]]
            if workload.name == "prefill":
                waits += of_answers(answer).queue_s
        engine.ask({"do": "close"}, 60.0)
    fitted = fit(found, facts["async_scheduling"])
    said(f"{len(found):,} passes of {facts['release']}, {facts['threads']} threads")
    source = "measured by hicache calibrate --engine"
    engine_profile = engine_of(facts, fitted.host, int(np.median(waits) * _NS), source)
    errors = np.abs(fitted.errors)
    document: dict[str, Any] = {
        "engine": asdict(engine_profile),
        "model": model,
        "passes": asdict(fitted.passes),
        "fit": {
            "passes": len(found),
            "median": float(np.median(errors)),
            "nine_of_ten": float(np.percentile(errors, 90)),
            "clock": server.clock,
            "threads": facts["threads"],
            "longest": server.longest,
            "blocks": facts["blocks"],
        },
    }
    del document["engine"]["asked"]
    return document


@dataclass(frozen=True, slots=True)
class Judged:
    """One workload. run: the engine's first run; engine: the median of all; noise: how far the
    second run is from the first; error: how far the simulator is from the engine."""

    name: str
    tier: str
    engine: Times
    simulator: Times
    noise: dict[str, Any]
    error: dict[str, Any]


def judge(
    server: Server, profile: HardwareProfile, count: int, seed: int, repeats: int
) -> tuple[list[Judged], dict[str, float]]:
    """Every workload in both, and how much longer passes took than the profile says before and
    after: a few of those that were measured, again. count: requests of a workload. Raises
    CallerError for a profile without passes."""
    served = profile.served
    if served is None:
        raise CallerError(
            f"profile: expected one that hicache calibrate --engine wrote, found {profile.name}"
        )
    draw = Draw(seed, served.model.vocabulary, server.longest, _service(profile))
    found: list[Judged] = []
    plain, tiered = list(judged(draw, count)), list(host_tier(draw, count))
    with server.start() as engine:
        pages = engine.open()["blocks"] - 1
        drift = {"before": _drift(engine, server, profile)}
        found += [_both(engine, one, profile, (pages, 0), repeats, "none") for one in plain]
        drift["after"] = _drift(engine, server, profile)
        engine.ask({"do": "close"}, 60.0)
    page = served.model.page_size
    pages = -(-_ROOM * (server.longest + _SLACK) // page)
    tokens = max(sum(len(one.tokens) + one.max_tokens for one in work.requests) for work in tiered)
    host = len(tiered) * (repeats + 1) * -(-tokens // page)
    size = host * page * served.model.bytes_per_token()
    with server.start(str(size), pages + 1) as engine:
        found += [_both(engine, one, profile, (pages, host), repeats, "host") for one in tiered]
        engine.ask({"do": "close"}, 60.0)
    return found, drift


def _drift(engine: Vllm, server: Server, profile: HardwareProfile) -> float:
    """The median over passes, relative."""
    served = profile.served
    assert served is not None
    passes: list[Pass] = []
    for workload in measured(served.model.vocabulary, server.longest, _DRIFT_BATCH, 1):
        if workload.name in _DRIFT:
            answer = _served(engine, workload, passes=True)
            passes += [Pass.of(one) for one in answer["passes"]]
    said = pass_seconds(profile, passes)
    return float(np.median([one.seconds / two for one, two in zip(passes, said, strict=True)]) - 1)


def pass_seconds(profile: HardwareProfile, passes: Sequence[Pass]) -> list[float]:
    """How long the simulator's engine says that these take."""
    served = profile.served
    assert served is not None
    times, host = Measured(served.model.layers, served.passes), HostTimes(served.engine)
    found = []
    for one in passes:
        added, least = host.of(one.decoding, len(one.chunks))
        kernels = times.step_ns(one.chunks, one.decoding, one.context)
        found.append(max(kernels + added, least) / _NS)
    return found


def _service(profile: HardwareProfile) -> Callable[[int, int], float]:
    """Seconds that a request takes of the engine, if it decodes with three others."""

    def serve_s(prompt: int, answer: int) -> float:
        alone, beside = Pass(0, 0, ((0, prompt),), 0, 0), Pass(0, 0, (), 4, 4 * prompt)
        first, step = pass_seconds(profile, (alone, beside))
        return first + answer * step / 4

    return serve_s


def _both(
    engine: Vllm,
    workload: Workload,
    profile: HardwareProfile,
    pages: tuple[int, int],
    repeats: int,
    tier: str,
) -> Judged:
    runs, streams = [], None
    for turn in range(repeats):
        answer = _served(engine, workload, f"{workload.name} {turn}" if pages[1] else "")
        runs.append(of_answers(answer))
        streams = streams or streams_of(workload, answer["answers"])
    assert streams is not None
    engine_times, simulated = median_of(runs), play(workload, streams, profile, *pages)
    return Judged(
        workload.name,
        tier,
        engine_times,
        simulated,
        apart(runs[0], runs[1]),
        apart(engine_times, simulated),
    )


def overall(found: Sequence[Judged], slower: float = 1.0) -> dict[str, Apart]:
    """All requests together. slower: times of the simulator are so many times as long, as if the
    profile had been measured on the machine as it was then."""
    engine, said = (together([getattr(one, side) for one in found]) for side in _SIDES)
    return {
        name: Apart.of(times, [one * slower for one in other])
        for name, times, other in (
            ("ttft", engine.ttft_s, said.ttft_s),
            ("tpot", engine.tpot_s, said.tpot_s),
        )
    }
