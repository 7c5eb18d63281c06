"""How large each component's pools become, from what was asked for and what was not; what a replay
prints and writes of it is what it runs with, on a rank and in total. A request that the device
cannot hold: one error whose hint is enough."""

import re
from pathlib import Path
from typing import Any

import pytest

from hicache.core.errors import CallerError
from tests.tiny import message_of
from traces.cli import main, parse
from traces.formats import open_trace
from traces.replaying.config import ReplayConfig, resolve
from traces.replaying.options import ReplayOptions

from .rig import HEADER, Capsys, mooncake, native, replayed, write


@pytest.fixture
def trace(tmp_path: Path) -> str:
    return str(write(tmp_path / "trace.jsonl", mooncake([1, 2], 600), mooncake([1, 2], 700)))


def settled(trace: str, arguments: str) -> ReplayConfig:
    _, options = parse(["replay", trace, "--check", "off", *arguments.split()])
    assert isinstance(options, ReplayOptions)
    return resolve(options, open_trace(trace))[0]


@pytest.mark.parametrize("components", ["full,swa", "full,mamba", "full,swa,mamba"])
def test_beside_a_given_device_no_pool_depends_on_the_memory_of_the_hardware(
    trace: str, components: str
) -> None:
    value = f"--components {components} --device-tokens 64K --engine vllm?max_running=900"
    sizes = [
        settled(trace, f"{value} --hardware {name}").core.device_pages
        for name in ("h100", "h200", "b200")
    ]
    assert sizes == [sizes[0]] * 3


def test_states_on_host_are_as_many_as_were_asked_for(trace: str) -> None:
    value = "--components full,mamba=30 --device-tokens 64K --host-ratio 2"
    assert settled(trace, value).core.host_pages == (2000, 60)
    assert settled(trace, value.replace("30", "30:7")).core.host_pages == (2000, 7)
    with pytest.raises(CallerError, match="found --host-bytes, which all pools share"):
        settled(trace, "--components full,mamba=30:7 --host-bytes 100GB")


@pytest.mark.parametrize(
    ("options", "interval", "branch_states"),
    [
        ("", 1088, False),
        ("--engine vllm@0.8.0", 1088, False),
        ("--engine vllm@0.7.3", 256, True),
        ("--engine sglang", 256, True),
        ("--mode hits", 256, True),
        ("--mode hits --page-size 512", 512, True),
        ("--tp 4", 576, False),
    ],
)
def test_states_are_kept_where_the_engine_keeps_them(
    trace: str, options: str, interval: int, branch_states: bool
) -> None:
    """With a clock an engine is simulated, named or not. Of 4 ranks each has a quarter of a state
    and, of two heads, half of the attention. An interval is of whole pages."""
    core = settled(trace, f"--model qwen3-next-80b --hardware gb300 {options}").core
    assert (message_of(core, "mamba_interval"), core.branch_states) == (interval, branch_states)


def run(trace: str, arguments: str, capsys: Capsys) -> tuple[str, dict[str, Any]]:
    """The report of a replay, in single spaces, and its document."""
    result = replayed(Path(trace).parent, trace, *arguments.split(), "-v")
    return " ".join(capsys.readouterr().out.split()), result


def test_sizes_are_printed_on_a_rank_and_in_total(trace: str, capsys: Capsys) -> None:
    report, result = run(trace, "--tp 8 --device-pages 6669 --host-pages 13338", capsys)
    assert "13,338 pages, 853,632 tokens, 14.0 GB a rank, 111.9 GB on 8 ranks (as given)" in report
    full, config = result["components"]["full"], result["config"]
    assert (full["page_bytes"], full["page_bytes_total"]) == (1 << 20, 8 << 20)
    assert full["pool_bytes_per_rank"] == {"device": 6669 << 20, "host": 13338 << 20}
    assert full["pool_bytes_total"] == {"device": 6669 << 23, "host": 13338 << 23}
    assert config["weight_bytes_total"] == 2 * 8_030_261_248 == 8 * config["weight_bytes_per_rank"]
    for way in ("d2h", "h2d"):
        moved = result["transfers"][way]
        assert moved["bytes"] == moved["bytes_per_rank"] == moved["bytes_total"] / 8
    assert result["transfers"]["d2h"]["bytes"] == full["backed_up"] << 20 > 0


def test_host_bytes_are_the_total_that_is_printed(trace: str, capsys: Capsys) -> None:
    report, result = run(trace, "--tp 8 --host-bytes 140GB", capsys)
    assert "17.5 GB a rank, 140.0 GB on 8 ranks (as given)" in report
    assert 0 <= 140e9 - result["components"]["full"]["pool_bytes_total"]["host"] < 8 << 20
    report, _ = run(trace, "--host-bytes 4TiB --components full,swa", capsys)
    assert report.count("(its share of --host-bytes") == 2


@pytest.mark.parametrize(("ratio", "pages"), [("0.5", 50), ("0.999", 100), ("1.5", 151)])
def test_a_ratio_is_what_runs_and_what_is_printed(
    ratio: str, pages: int, trace: str, capsys: Capsys
) -> None:
    words = f"--mode hits --device-pages 101 --host-ratio {ratio} --check every"
    report, result = run(trace, words, capsys)
    assert result["config"]["host_pages"] == pages
    assert f"host {pages} pages" in report
    assert f"({ratio} x device)" in report


LENGTHS = (300, 700, 2900, 40, 1500, 600)
NO_HOST = "--host-ratio 0"
SMALL = {
    "timed": (
        "--device-tokens 256 --host-ratio 0.5 --write-policy write_back",
        f"--device-pages 8 --engine vllm?token_budget=256 {NO_HOST}",
    ),
    "hits": ("--device-tokens 256 --host-ratio 0.5", f"--device-pages 4 {NO_HOST}"),
}


def known_tokens(path: Path) -> str:
    """A trace with tokens: a long request, and conversations of two turns."""
    turns = []
    for number, length in enumerate(LENGTHS):
        turns.append(native((f"a{number}", length), output=(f"b{number}", 90)))
        history = (f"a{number}", length), (f"b{number}", 90), (f"c{number}", 30)
        turns.append(native(*history, output=(f"d{number}", 50), after=2 * number))
    return str(write(path, HEADER, *turns))


def known_blocks(path: Path) -> str:
    """A trace with blocks, whose output is not known."""
    ids = iter(range(100))
    records = [
        mooncake([next(ids) for _ in range(-(-length // 512))], length, output_length=130)
        for length in LENGTHS
    ]
    return str(write(path, *records))


def hint_of(message: str, texts: list[str]) -> list[str]:
    """The options with those that the message says to give."""
    output = message.partition("; give ")[2].partition(", or ")[0]
    result = list(texts)
    for option, value in re.findall(r"(--[a-z-]+) ([\w.,=-]+)", output):
        if option in result:
            result[result.index(option) + 1] = value
        else:
            result += [option, value]
    assert result != texts, message
    return result


@pytest.mark.parametrize(("mode", "trace"), [("timed", known_tokens), ("hits", known_blocks)])
@pytest.mark.parametrize("components", ["full", "full,swa,mamba"])
def test_following_the_hints_ends_in_a_replay(
    mode: str, trace: Any, components: str, tmp_path: Path, capsys: Capsys
) -> None:
    path = trace(tmp_path / "trace.jsonl")
    base = ["replay", path, "--mode", mode, "--page-size", "64", "--check", "off"]
    tight = {
        components,
        components.replace("swa", "swa=64"),
        components.replace("mamba", "mamba=1"),
    }
    for size in SMALL[mode]:
        for pools in tight:
            value = [*base, *size.split(), "--components", pools]
            capsys.readouterr()
            assert (code := main(value)) == 2, value
            for _ in range(4):  # at most one for each pool, and one for the window
                value = hint_of(capsys.readouterr().err, value)
                if (code := main(value)) == 0:
                    break
            assert code == 0, value
