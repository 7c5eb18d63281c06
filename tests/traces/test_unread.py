"""No option is ignored: each one changes what a run is, or it is refused by its name."""

from dataclasses import fields, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from hicache.core.errors import CallerError
from traces.cli import parse
from traces.replaying.config import ReplayConfig, resolve
from traces.replaying.options import OPTIONS, Need, ReplayOptions
from traces.terminal.options import Option

from .rig import mooncake, tried, write

# Options of the command, not of the run; of the trace; and with a model that has experts (see
# test_fleet).
APART = {
    *("mode", "exclusive", "ep", "attention_dp", "dcp"),
    *("format", "block_size", "tokenizer", "sample"),
    *("columns", "rows"),
}
TRIED = {
    option: tried(option)
    for option in OPTIONS
    if not (option.output or option.positional or option.name in APART)
}
ALONE = {"--model", "--components"}  # one of them
ONE, NO_CLOCK = {Need.REPLICAS}, {Need.TIMED, Need.ENGINE, Need.CHANCE}
NO_STORE = {Need.STORE}
PLAIN, HOST, FLEET = NO_STORE | ONE, {Need.HOST}, NO_STORE | {Need.ALONE}
# The options of each run, and what it does not have.
RUNS: dict[str, tuple[str, set[Need]]] = {
    "timed, no host": ("--host-ratio 0", PLAIN | HOST),
    "hits, host": ("--mode hits --host-ratio 2", PLAIN | NO_CLOCK),
    "timed, all components": ("--components full,swa,mamba", PLAIN),
    "hits, all components": (
        "--mode hits --components full,swa,mamba",
        PLAIN | NO_CLOCK - {Need.ENGINE} | HOST,
    ),
    "timed, simulated store": ("--storage sim:", ONE),
    "hits, real store": ("--mode hits --storage file:nowhere", ONE | NO_CLOCK),
    "timed, replicas": ("--replicas 2 --router prefix-aware", FLEET),
}
BRINGS = {("hits", "storage"): {Need.HOST}}


# What the options need, apart from their rows. A new one need not be here: its row then tells.
NEEDED: dict[Need | None, str] = {
    None: "limit check model kv_dtype tp page_size device_tokens device_pages "
    "eviction host_ratio host_pages host_bytes components "
    "scale_sessions replicas hardware",
    Need.ENGINE: "engine",
    Need.TIMED: "concurrency speed scheduler times slo arrivals request_rate closed_loop",
    Need.CHANCE: "seed",
    Need.HOST: "write_policy storage",
    Need.STORE: "prefetch",
    Need.ALONE: "flush_every_round ttl pin",
    Need.REPLICAS: "router",
}


def needs_of(option: Option) -> set[Any]:
    items = {need for need, names in NEEDED.items() if option.name in names.split()}
    return items or set(option.needs)


def parsed(*words: str) -> ReplayOptions:
    _, options = parse(["replay", *words])
    assert isinstance(options, ReplayOptions)
    return options


def settled(options: ReplayOptions, trace: str) -> ReplayConfig:
    return resolve(options, replace(options, trace=trace).opened())[0]


def what_runs(settings: ReplayConfig) -> list[Any]:
    """Everything of the settings that the run or its report reads, but how it was asked for."""
    named = [field.name for field in fields(settings) if field.name != "pools"]
    return [getattr(settings, name) for name in named] + [settings.pools.device_rules]


@cache
def value_of(option: Option) -> Any:
    return getattr(parsed(*TRIED[option]), option.name)


@pytest.mark.parametrize("run", RUNS)
def test_an_option_changes_the_run_or_is_refused(run: str, tmp_path: Path) -> None:
    trace = str(write(tmp_path / "trace.jsonl", mooncake([1, 2], 600), mooncake([1, 3], 700)))
    words_of_run, lacks = RUNS[run]
    split, options = words_of_run.split(), parsed(trace, *words_of_run.split())
    usual = settled(options, trace)
    for option, words in TRIED.items():
        if {option.flag, *split} >= ALONE or " ".join(words) in words_of_run:
            continue
        group = option.excludes
        rivals = {item.name: None for item in TRIED if group and item.excludes == group}
        requested = replace(options, **rivals | {option.name: value_of(option)})
        lacking = lacks - BRINGS.get((usual.mode, option.name), set())
        if lacking & needs_of(option):
            with pytest.raises(CallerError, match=f"^{option.flag}: expected "):
                settled(requested, trace)
        else:
            assert what_runs(settled(requested, trace)) != what_runs(usual), (
                f"{' '.join(words)} changes nothing of {' '.join(split) or 'a plain run'}: use the "
                "value, or say in its row what it needs, or another value in TRIED of rig"
            )
