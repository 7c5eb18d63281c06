"""How large each component's pools become, from what was asked for and what was not."""

from __future__ import annotations

from pathlib import Path

import pytest

from hicache.core.errors import CallerError
from tests.configs import said
from traces.cli import parse
from traces.formats import open_trace
from traces.replaying.config import ReplayConfig, resolve
from traces.replaying.options import ReplayOptions

from .rig import mooncake, write


@pytest.fixture
def trace(tmp_path: Path) -> str:
    return str(write(tmp_path / "trace.jsonl", mooncake([1, 2], 600)))


def settled(trace: str, arguments: str) -> ReplayConfig:
    _, options = parse(["replay", trace, "--check", "off", *arguments.split()])
    assert isinstance(options, ReplayOptions)
    return resolve(options, open_trace(trace))[0]


@pytest.mark.parametrize("components", ["full,swa", "full,mamba", "full,swa,mamba"])
def test_beside_a_given_device_no_pool_depends_on_the_memory_of_the_hardware(
    trace: str, components: str
) -> None:
    given = f"--components {components} --device-tokens 64K --engine vllm?max_running=900"
    sizes = [
        settled(trace, f"{given} --hardware {name}").core.device_pages
        for name in ("h100", "h200", "b200")
    ]
    assert sizes == [sizes[0]] * 3


def test_states_on_host_are_as_many_as_were_asked_for(trace: str) -> None:
    given = "--components full,mamba=30 --device-tokens 64K --host-ratio 2"
    assert settled(trace, given).core.host_pages == (2000, 60)
    assert settled(trace, given.replace("30", "30:7")).core.host_pages == (2000, 7)
    with pytest.raises(CallerError, match="found --host-bytes, which all pools share"):
        settled(trace, "--components full,mamba=30:7 --host-bytes 100GB")


def test_an_interval_is_rounded_up_to_pages(trace: str) -> None:
    model = "--model qwen3-next-80b --mode hits --device-tokens 1M"
    assert said(settled(trace, f"{model} --page-size 512").core, "mamba_interval") == 512
    assert said(settled(trace, f"{model} --page-size 16").core, "mamba_interval") == 256
    assert said(settled(trace, "--components full,mamba --mode hits").core, "mamba_interval") == 64


@pytest.mark.parametrize(
    ("options", "interval", "branch_states"),
    [
        ("", 1088, False),
        ("--engine vllm@0.8.0", 1088, False),
        ("--engine vllm@0.7.3", 256, True),
        ("--engine sglang", 256, True),
        ("--mode hits", 256, True),
        ("--tp 4", 576, False),
    ],
)
def test_states_are_kept_where_the_engine_keeps_them(
    trace: str, options: str, interval: int, branch_states: bool
) -> None:
    """With a clock an engine is simulated, named or not. Of 4 ranks each has a quarter of a state
    and, of two heads, half of the attention."""
    core = settled(trace, f"--model qwen3-next-80b --hardware gb300 {options}").core
    assert (said(core, "mamba_interval"), core.branch_states) == (interval, branch_states)
