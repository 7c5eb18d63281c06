"""No option is ignored: each one changes what a run is, or it is refused by its name."""

from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hicache.core.errors import CallerError
from traces.cli import parse
from traces.formats import open_trace
from traces.replaying.config import ReplayConfig, resolve
from traces.replaying.options import OPTIONS, Need, ReplayOptions
from traces.terminal.options import Declared

from .rig import mooncake, tried, write

# Options of the command, not of the run; of the trace; and with a model that has experts (see
# test_fleet).
APART = {
    *("mode", "exclusive", "ep", "attention_dp", "dcp"),
    *("format", "block_size", "tokenizer", "sample"),
    *("columns", "rows"),
}
TRIED = {
    one: tried(one)
    for one in OPTIONS
    if not (one.row.output or one.row.positional or one.name in APART)
}
ALONE = {"--model", "--components"}  # one of them
RUNS = {
    "timed, host": "--host-ratio 2",
    "timed, no host": "--host-ratio 0",
    "hits, host": "--mode hits --host-ratio 2",
    "hits, no host": "--mode hits",
    "timed, all components": "--components full,swa,mamba",
    "hits, all components": "--mode hits --components full,swa,mamba",
    "hits, window of a given size": "--mode hits --components full,swa=4K",
    "timed, simulated store": "--storage sim:",
    "timed, real store": "--storage file:nowhere",
    "hits, real store": "--mode hits --storage file:nowhere",
    "timed, replicas": "--replicas 2 --router prefix-aware",
    "hits, replicas": "--mode hits --host-ratio 2 --replicas 2 --router prefix-aware",
}
# What the runs do not have.
ONE, NO_CLOCK = {Need.REPLICAS}, {Need.TIMED, Need.ENGINE, Need.CHANCE}
NO_STORE = {Need.STORE}
LACKING = {
    "timed, host": NO_STORE | ONE,
    "timed, no host": NO_STORE | ONE | {Need.HOST},
    "hits, host": NO_STORE | ONE | NO_CLOCK,
    "hits, no host": NO_STORE | ONE | NO_CLOCK | {Need.HOST},
    "timed, all components": NO_STORE | ONE,
    "hits, all components": NO_STORE | ONE | NO_CLOCK - {Need.ENGINE} | {Need.HOST},
    "hits, window of a given size": NO_STORE | ONE | NO_CLOCK | {Need.HOST},
    "timed, simulated store": ONE,
    "timed, real store": ONE,
    "hits, real store": ONE | NO_CLOCK,
    "timed, replicas": NO_STORE | {Need.ALONE},
    "hits, replicas": NO_STORE | NO_CLOCK | {Need.ALONE},
}
BRINGS = {("hits", "storage"): {Need.HOST}}


def parsed(*words: str) -> ReplayOptions:
    _, options = parse(["replay", *words])
    assert isinstance(options, ReplayOptions)
    return options


def settled(options: ReplayOptions, trace: str) -> ReplayConfig:
    return resolve(options, open_trace(trace, "auto", options.limit))[0]


def what_runs(settings: ReplayConfig) -> list[Any]:
    """Everything of the settings that the run or its report reads, but how it was asked for."""
    named = [one.name for one in fields(settings) if one.name != "pools"]
    return [getattr(settings, name) for name in named] + [settings.pools.device_rules]


@cache
def value_of(option: Declared) -> Any:
    return getattr(parsed(*TRIED[option]), option.name)


@pytest.mark.parametrize("run", RUNS)
def test_an_option_changes_the_run_or_is_refused(run: str, tmp_path: Path) -> None:
    trace = str(write(tmp_path / "trace.jsonl", mooncake([1, 2], 600), mooncake([1, 3], 700)))
    given, options = RUNS[run].split(), parsed(trace, *RUNS[run].split())
    usual = settled(options, trace)
    for option, words in TRIED.items():
        if {option.flag, *given} >= ALONE or " ".join(words) in RUNS[run]:
            continue
        group = option.row.excludes
        rivals = {one.name: None for one in TRIED if group and one.row.excludes == group}
        asked = replace(options, **rivals | {option.name: value_of(option)})
        lacking = LACKING[run] - BRINGS.get((usual.mode, option.name), set())
        if lacking & set(option.row.needs):
            with pytest.raises(CallerError, match=f"^{option.flag}: expected "):
                settled(asked, trace)
        else:
            assert what_runs(settled(asked, trace)) != what_runs(usual), (
                f"{' '.join(words)} changes nothing of {' '.join(given) or 'a plain run'}: use the "
                "value, or say in its row what it needs, or another value in TRIED of rig"
            )
