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


@pytest.mark.parametrize(
    ("name", "components", "window", "interval"),
    [
        ("gpt-oss-120b", ("full", "swa"), 128, 0),
        ("gemma-3-27b", ("full", "swa"), 1024, 0),
        ("deepseek-v4-flash", ("full", "swa"), 128, 0),
        ("qwen3-next-80b", ("full", "mamba"), 0, 256),
    ],
)
def test_a_model_implies_components_window_and_interval(
    trace: str, name: str, components: tuple[str, ...], window: int, interval: int
) -> None:
    core = settled(trace, f"--model {name} --mode hits --device-tokens 1M --page-size 128").core
    assert core.components == components
    assert (said(core, "swa_window"), said(core, "mamba_interval")) == (window, interval)
    assert len(core.device_pages) == len(core.host_pages) == len(components)


@pytest.mark.parametrize("components", ["full", "full,swa", "full,mamba", "full,swa,mamba"])
@pytest.mark.parametrize(
    "more", ["", "--hardware h200 --page-size 16", "--tp 2 --engine vllm?max_running=8"]
)
def test_device_memory_is_divided_among_pools_and_filled(
    trace: str, components: str, more: str
) -> None:
    found = settled(trace, f"--components {components} {more}")
    weights = found.model.weight_bytes // found.tp
    memory = found.hardware.hbm_bytes * 9 // 10 - weights
    taken = sum(
        pages * size for pages, size in zip(found.core.device_pages, found.page_bytes, strict=True)
    )
    assert memory * 0.99 < taken <= memory
    full = found.core.device_pages[0] * found.page_bytes[0]
    assert full > 0.2 * memory  # what runs does not crowd out what is cached


@pytest.mark.parametrize(
    ("name", "pp"),
    [("llama-3.1-8b", 2), ("llama-3.1-70b", 7), ("gemma-3-27b", 4), ("qwen3-next-80b-a3b", 5)],
)
def test_the_fullest_stage_limits_all(trace: str, name: str, pp: int) -> None:
    """Page numbers are the same on all stages. The first holds the embedding, the last the output
    head. All ranks share the host memory."""
    found = settled(trace, f"--model {name} --tp 2 --pp {pp} --host-bytes 300GB")
    model, core = found.model, found.core
    table = 2 * model.vocabulary * model.hidden_size
    of_layers = model.weight_bytes - model.embeddings * table
    taken, on_host = [], 0
    for number, stage in enumerate(model.stages(pp)):
        first, last = model.layers * number // pp, model.layers * (number + 1) // pp
        weights = of_layers * (last - first) // model.layers + table * (number in (0, pp - 1))
        sizes = [stage.bytes_per_page(one, core.page_size, 2) for one in core.components]
        pools = (core.device_pages, core.host_pages)
        device, host = (sum(map(int.__mul__, pages, sizes)) for pages in pools)
        taken.append(weights // 2 + device)
        on_host += 2 * host
    assert 0.99 * 72e9 < max(taken) <= 72e9
    assert 0.99 * 300e9 < on_host <= 300e9
    sizes = [size * found.page_ranks for size in found.page_bytes]
    assert sum(map(int.__mul__, core.host_pages, sizes)) == on_host


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
