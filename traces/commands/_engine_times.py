"""`hicache calibrate --engine`: the times of a real engine, and how well the simulator has them.

Contains the options, and what is printed and written. Does not measure or compare (see
engines/times).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from hicache.core.errors import CallerError
from sim.hardware import profile as hardware

from ..devices.probes.base import TINY
from ..engines.passes import CLOCKS
from ..engines.times.comparing import GOALS, WITHIN, Apart
from ..engines.times.measuring import Judged, Server, judge, measure, overall
from ..engines.vllm import MODELS, python_of
from ..reporting.head import head
from ..terminal import options as read
from ..terminal.output import write_json
from ..terminal.rows import option, rows
from ..terminal.streams import ignore_broken_pipe
from ..terminal.text import name
from ._engine_options import RealEngineOptions, of_family

_LEAST_LONGEST = 640


@dataclass(frozen=True)
class EngineTimesOptions(RealEngineOptions):
    HEADING = "the passes of a real engine, beside the copies of the device"

    family: str = of_family("llama-wide")
    judge: bool = option(
        "then run other workloads in the engine and in the simulator, and compare their times",
        default=False,
    )
    profile: str | None = option("judge this profile, and measure nothing", *read.FILE)
    longest: int = option(
        "tokens of the longest prompt", read.at_least(_LEAST_LONGEST), "TOKENS", default=1024
    )
    runs: int = option(
        "how often each workload runs; the median counts, and the second run against the first "
        "tells the noise",
        read.between(2, 100),
        "N",
        default=3,
    )
    requests: int = option(
        "requests of each workload that judges", read.between(6, 10_000), "N", default=24
    )
    seed: int = option("of the workloads that judge", *read.COUNT_OR_0, default=1)
    threads: int = option(
        "threads of the engine's kernels on a CPU; 0: as many as it takes",
        *read.COUNT_OR_0,
        default=0,
    )
    clock: str = option(
        "wall, or processor: the time that the engine's thread had a core, for a CPU that other "
        "work shares (needs --threads 1)",
        read.choice([*CLOCKS]),
        default="wall",
    )
    json: str | None = option(
        "also write what the judging found to this file as JSON; - is stdout", *read.OUTPUT
    )


def check_engine(options: EngineTimesOptions, model: str, output: str) -> None:
    """Raises CallerError for options that do not go together."""
    if options.engine is None:
        for one in rows(EngineTimesOptions):
            if getattr(options, one.name) != one.default:
                raise CallerError(f"{one.flag}: needs --engine; give that, or leave it out")
        return
    if model != TINY and not (Path(model) / "config.json").is_file():
        raise CallerError(
            f"--model: expected a folder with config.json, found {name(model)}; give the path of a "
            "model's folder, or leave it out for a small one"
        )
    if options.clock == "processor" and options.threads != 1:
        raise CallerError(
            f"--clock: expected --threads 1 with processor, found {options.threads}; give that, or "
            "the clock wall"
        )
    judging = options.judge or options.profile is not None
    if options.json is not None and not judging:
        raise CallerError("--json: needs --judge; give that, or leave it out")
    if options.judge and options.profile is None and output == "-":
        raise CallerError("-o: expected a file with --judge, found stdout; name one")


def _server(options: EngineTimesOptions, model: str) -> Server:
    return Server(
        python_of(options.python or ""),
        str(MODELS) if model == TINY else model,
        options.family if model == TINY else None,
        options.longest,
        options.threads,
        options.clock,
    )


def measure_engine(options: EngineTimesOptions, model: str, out: TextIO) -> dict[str, Any]:
    """The part `served` of a profile; its model is a description."""
    called = options.family if model == TINY else Path(model).resolve().name
    server = _server(options, model)
    found = measure(server, called[:100], options.runs, lambda text: _say(text, out))
    fit, passes, engine = found["fit"], found["passes"], found["engine"]
    points = ", ".join(
        f"{tokens:,}: {ns / 1e6:.2f}"
        for tokens, ns in zip(passes["tokens"], passes["tokens_ns"], strict=True)
    )
    _say(
        f"a pass: {passes['pass_ns'] / 1e6:.2f} ms, and ms by new tokens {points}; "
        f"{passes['pair_ns']:.3g} ns a query-key pair of a prompt, {passes['context_ns']:.3g} ns a "
        f"row in decoding, {passes['chunk_ns'] / 1e3:.0f} us a chunk; host "
        f"{engine['step_host_ns'] / 1e3:.0f} us, {engine['per_sequence_host_ns'] / 1e3:.0f} us a "
        f"sequence, {engine['prefill_host_ns'] / 1e3:.0f} us a chunk",
        out,
    )
    _say(
        f"the fit is off by {fit['median']:.1%} in the median, nine of ten passes by at most "
        f"{fit['nine_of_ten']:.1%}",
        out,
    )
    return found


def _say(text: str, out: TextIO) -> None:
    with ignore_broken_pipe():
        print(text, file=out, flush=True)


def hold(options: EngineTimesOptions, model: str, profile: str, command: str, out: TextIO) -> int:
    """Judges a profile. Returns the exit code."""
    against = hardware.get(profile)
    server = _server(options, model)
    found, drift = judge(server, against, options.requests, options.seed, options.runs)
    with ignore_broken_pipe():
        _print(found, overall(found), out)
        slower = _slower(drift)
        rest = overall(found, slower)
        ttft, tpot = rest["ttft"], rest["tpot"]
        print(
            f"the machine: passes as in the profile take {drift['before']:+.1%} before and "
            f"{drift['after']:+.1%} after the workloads without a host tier; with times of the "
            f"simulator that are {slower:.3f} times as long, TTFT is {ttft.median:.1%} off and "
            f"TPOT {tpot.median:.1%}, nine of ten within {ttft.nine_of_ten:.1%} and "
            f"{tpot.nine_of_ten:.1%}",
            file=out,
        )
    if options.json:
        of = {"path": profile, "name": against.name}
        write_json(
            options.json, head(command, True) | {"profile": of} | document(options, found, drift)
        )
    return 0


def _slower(drift: dict[str, float]) -> float:
    return 1 + sum(drift.values()) / len(drift)


def document(
    options: EngineTimesOptions, found: Sequence[Judged], drift: dict[str, float]
) -> dict[str, Any]:
    """The results, as they are written."""
    return {
        "clock": options.clock,
        "runs": options.runs,
        "drift": drift,
        "workloads": [asdict(one) for one in found],
        "all": {name: asdict(one) for name, one in overall(found).items()},
        "all_without_drift": {
            name: asdict(one) for name, one in overall(found, _slower(drift)).items()
        },
    }


def _print(found: Sequence[Judged], total: dict[str, Apart], out: TextIO) -> None:
    row = "{:<24}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>8}".format
    print(
        row(
            "workload",
            "TTFT",
            "9 of 10",
            "(noise)",
            "TPOT",
            "9 of 10",
            "(noise)",
            "tok/s",
            "(noise)",
            "queue",
            "hits",
        ),
        file=out,
    )
    for one in found:
        error, noise = one.error, one.noise
        print(
            row(
                one.name + (", host" if one.tier == "host" else ""),
                f"{error['ttft'].median:.1%}",
                f"{error['ttft'].nine_of_ten:.1%}",
                f"{noise['ttft'].median:.1%}",
                f"{error['tpot'].median:.1%}",
                f"{error['tpot'].nine_of_ten:.1%}",
                f"{noise['tpot'].median:.1%}",
                f"{error['throughput']:+.1%}",
                f"{noise['throughput']:+.1%}",
                f"{error['queue']:.1%}",
                f"{error['equal_hits']}/{len(one.engine.hits)}",
            ),
            file=out,
        )
    for each, goal in GOALS.items():
        whole = total[each]
        reached = "reached" if whole.median <= goal else "missed"
        print(
            f"{each.upper()} of all {whole.count} requests: {whole.median:.1%} off in the median "
            f"(goal {goal:.0%}: {reached}), nine of ten within {whole.nine_of_ten:.1%}, "
            f"{whole.within:.0%} within {WITHIN:.0%}, bias {whole.bias:+.1%}",
            file=out,
        )
