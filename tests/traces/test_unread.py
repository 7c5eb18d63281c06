"""No option is ignored: each one changes what a run is, or it is refused by its name."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from hicache.core.errors import CallerError
from traces.cli import parse
from traces.formats._open import open_trace
from traces.replaying.options import ReplayOptions
from traces.replaying.settings import Settings, resolve

from .rig import mooncake, write

# A value of every option that is not the default. Options of the command, not of the run, are left
# out, and so is what chooses another option's reader.
VALUES = {
    "--format": "mooncake",
    "--limit": "1",
    "--seed": "7",
    "--check": "off",
    "--speed": "3",
    "--spread": "",  # takes no value
    "--scale-sessions": "1.5",
    "--page-size": "128",
    "--device-tokens": "64K",
    "--device-pages": "999",
    "--host-ratio": "0.75",
    "--host-pages": "123",
    "--host-bytes": "1GB",
    "--write-policy": "write_back",
    "--eviction": "lfu",
    "--load-threshold": "3",
    "--load-quota": "4",
    "--load-groups": "5",
    "--components": "full,swa",
    "--swa-window": "512",
    "--swa-tokens": "8K",
    "--mamba-states": "9",
    "--mamba-interval": "256",
    "--mamba-states-per-path": "2",
    "--model": "tiny",
    "--weight-dtype": "fp8",
    "--kv-dtype": "fp8",
    "--hardware": "h200",
    "--tp": "2",
    "--engine": "sglang",
    "--times": "pure-roofline",
    "--host-bandwidth": "0.5x",
    "--scheduler": "priority",
    "--token-budget": "1K",
    "--max-running": "7",
    "--storage": "sim:read=1GB/s",
    "--storage-size": "20G",
    "--storage-bandwidth": "2GB/s,1GB/s",
    "--storage-latency": "1ms",
    "--prefetch": "timeout",
    "--prefetch-threshold": "1K",
    "--prefetch-budget": "64K",
    "--prefetch-limit": "2s,1ms",
    "--flush-host-every-round": "",
    "--flush-device-every-round": "",
    "--replicas": "3",
    "--prefill-replicas": "5",
    "--decode-replicas": "5",
    "--router": "least-loaded",
    "--router-overlap-weight": "2.5",
    "--router-delay": "3ms",
    "--router-index-pages": "99",
    "--kv-link": "7GB/s",
    "--kv-link-latency": "9us",
    "--slo": "ttft=2s,tpot=50ms",
    "--arrivals": "gamma:cv=3",
    "--request-rate": "3",
    "--concurrency": "5",
    "--closed-loop": "",
    "--think-time": "2s",
    "--ttl": "3s",
    "--pin": "1:512",
    "--recompute-cost": "2,3",
}
APART = {
    *("trace", "mode", "json", "requests", "why"),
    *("compare_eviction", "exclusive", "skip_too_large", "html", "plot"),
    *("block_size", "tokenizer", "sample", "stream"),  # how the trace is read
    *("columns", "shared_prefix", "growth", "sharing"),  # of a log
    *("ep", "attention_dp"),  # with a model that has experts (see test_engine_option)
}
ALONE = {"--model": {"--components"}, "--components": {"--model"}}
RUNS = {
    "timed, host": "--host-ratio 2",
    "timed, no host": "--host-ratio 0",
    "hits, host": "--mode hits --host-ratio 2",
    "hits, no host": "--mode hits",
    "hits, unbounded": "--mode hits --device-pages unbounded",
    "timed, all components": "--components full,swa,mamba",
    "hits, all components": "--mode hits --components full,swa,mamba",
    "hits, window of a given size": "--mode hits --components full,swa --swa-tokens 4K",
    "timed, simulated store": "--storage sim:",
    "timed, real store": "--storage file:nowhere",
    "hits, real store": "--mode hits --storage file:nowhere",
    "timed, cost-aware": "--eviction cost_aware",
    "timed, replicas": "--replicas 2 --router prefix-aware",
    "hits, replicas": "--mode hits --host-ratio 2 --replicas 2 --router prefix-aware",
}
# What is refused, besides options of components that are not there.
TIMED = {
    "--speed",
    "--spread",
    "--seed",
    "--host-bandwidth",
    "--load-groups",
    "--scheduler",
    "--max-running",
    "--engine",
    "--times",
    *("--slo", "--arrivals", "--request-rate", "--concurrency", "--closed-loop", "--think-time"),
}
LINK = {"--storage-bandwidth", "--storage-latency"}
STORAGE = {
    *("--storage-size", "--prefetch", "--prefetch-threshold", "--prefetch-budget"),
    *("--prefetch-limit", *LINK),
}
STORED = {"--storage", "--flush-host-every-round"}  # what needs host memory as well
HOST = {"--write-policy", "--load-threshold", "--load-quota", "--load-groups", "--host-bandwidth"}
FLUSHED = {"--flush-host-every-round", "--flush-device-every-round"}
DIVIDED = {"--prefill-replicas", "--decode-replicas", "--kv-link", "--kv-link-latency"}
ROUTED = {"--router", "--router-overlap-weight", "--router-delay", "--router-index-pages"}
REFUSED = {
    "timed, host": STORAGE,
    "timed, no host": HOST | STORAGE | STORED,
    "hits, host": TIMED | STORAGE | {"--token-budget"},
    "hits, no host": TIMED | HOST | STORAGE | {"--token-budget", "--flush-host-every-round"},
    "hits, unbounded": TIMED
    | HOST
    | STORAGE
    | {"--token-budget", "--hardware", "--flush-host-every-round"},
    "timed, all components": STORAGE,
    "hits, all components": TIMED | HOST | STORAGE | {"--flush-host-every-round"},
    "hits, window of a given size": TIMED
    | HOST
    | STORAGE
    | {"--token-budget", "--flush-host-every-round"},
    "timed, simulated store": LINK,
    "timed, real store": set(),
    "hits, real store": TIMED | LINK | {"--prefetch-limit", "--token-budget"},
    "timed, cost-aware": STORAGE,
    "timed, replicas": STORAGE | FLUSHED | {"--ttl", "--pin"},
    "hits, replicas": TIMED
    | STORAGE
    | FLUSHED
    | {"--token-budget", "--router-delay"}
    | {"--ttl", "--pin"},
}
REFUSED = {
    run: refused
    | (DIVIDED if "replicas" in run else DIVIDED | ROUTED)
    | (set() if "cost-aware" in run else {"--recompute-cost"})
    for run, refused in REFUSED.items()
}


def settled(trace: str, arguments: list[str]) -> tuple[Settings, object]:
    _, options = parse(["replay", trace, *arguments])
    assert isinstance(options, ReplayOptions)
    return resolve(options, open_trace(trace, options.format or "auto", options.limit))[0], options


def what_runs(settings: Settings) -> list[Any]:
    """Everything of the settings that the run or its report reads, but how it was asked for."""
    named = [
        one.name
        for one in fields(settings)
        if one.name not in ("pools", "page_size_given", "given")
    ]
    return [getattr(settings, name) for name in named] + [settings.pools.device_rules]


def with_option(given: list[str], option: str) -> list[str]:
    """The arguments with this option in place of what it excludes."""
    group = ["--device-tokens", "--device-pages"], ["--host-ratio", "--host-pages", "--host-bytes"]
    out = {one for names in group if option in names for one in names} | {option}
    kept = list(given)
    for name in out & set(given):
        place = kept.index(name)
        del kept[place : place + 2]
    return [*kept, option, *filter(None, [VALUES[option]])]


def test_every_option_of_a_replay_is_tried() -> None:
    names = {f"--{one.name.replace('_', '-')}" for one in fields(ReplayOptions)}
    assert set(VALUES) == names - {f"--{name.replace('_', '-')}" for name in APART}


@pytest.mark.one_in(16)
@pytest.mark.parametrize("run", RUNS)
def test_an_option_changes_the_run_or_is_refused(run: str, tmp_path: Path) -> None:
    trace = str(write(tmp_path / "trace.jsonl", mooncake([1, 2], 600), mooncake([1, 3], 700)))
    given = RUNS[run].split()
    usual, _ = settled(trace, given)
    for option in VALUES:
        if ALONE.get(option, set()) & set(given) or VALUES[option] in given:
            continue
        tried = with_option(given, option)
        own = option[2:].split("-")[0]
        if own in ("swa", "mamba") and own not in usual.core.components:
            with pytest.raises(CallerError, match=f"{option}: expected {own} among"):
                settled(trace, tried)
            continue
        if option in REFUSED[run]:
            with pytest.raises(CallerError, match=f"^{option}: expected "):
                settled(trace, tried)
        elif option != "--format":
            found, _ = settled(trace, tried)
            assert what_runs(found) != what_runs(usual), option


def test_an_option_with_its_default_value_is_refused_as_well(tmp_path: Path) -> None:
    trace = str(write(tmp_path / "trace.jsonl", mooncake([1, 2], 600)))
    for option, value in (
        ("--scheduler", "fcfs"),
        ("--token-budget", "8192"),
        ("--max-running", "256"),
        ("--seed", "0"),
        ("--host-bandwidth", "1x"),
    ):
        with pytest.raises(CallerError, match=f"{option}: expected --mode timed, found hits mode"):
            settled(trace, ["--mode", "hits", "--host-ratio", "2", option, value])
    with pytest.raises(CallerError, match="--mamba-states-per-path: expected mamba among"):
        settled(trace, ["--mamba-states-per-path", "0"])


def test_a_format_without_a_trace_is_refused(tmp_path: Path) -> None:
    trace = str(write(tmp_path / "trace.jsonl", mooncake([1, 2], 600)))
    _, options = settled(trace, ["--format", "mooncake"])
    assert isinstance(options, ReplayOptions)
    with pytest.raises(CallerError, match="--format: expected a TRACE to read, found none"):
        resolve(replace(options, trace=None), open_trace(trace))
