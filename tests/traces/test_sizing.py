"""What a replay prints and writes about sizes is what it runs with, on a rank and in total."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from hicache import models
from traces.cli import main, parse
from traces.replaying.builtin import opened
from traces.replaying.config import ReplayConfig, resolve
from traces.terminal import options as read

from .rig import Capsys, mooncake, write

Replayed = Callable[..., tuple[str, dict[str, Any]]]


@pytest.fixture
def trace(tmp_path: Path) -> str:
    return str(write(tmp_path / "trace.jsonl", mooncake([1, 2], 600), mooncake([1, 2], 700)))


@pytest.fixture
def replayed(trace: str, tmp_path: Path, capsys: Capsys) -> Replayed:
    """Runs a replay with these options; returns its report, in single spaces, and its document."""

    def run(arguments: str, path: str = trace) -> tuple[str, dict[str, Any]]:
        out = tmp_path / "out.json"
        assert main(["replay", path, *arguments.split(), "-v", "--json", str(out)]) == 0
        return " ".join(capsys.readouterr().out.split()), json.loads(out.read_text())

    return run


def refused(trace: str, arguments: str, capsys: Capsys) -> str:
    """The one line with which the replay is refused."""
    assert main(["replay", trace, *arguments.split()]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err


def test_sizes_are_printed_on_a_rank_and_in_total(replayed: Replayed) -> None:
    report, found = replayed("--tp 8 --device-pages 6669 --host-pages 13338")
    assert "13,338 pages, 853,632 tokens, 14.0 GB a rank, 111.9 GB on 8 ranks (as given)" in report
    assert "llama-3.1-8b, 1,048,576 bytes a page per rank, bf16" in report
    assert "weights 2.0 GB a rank, 16.1 GB on 8 ranks, bf16" in report
    full, config = found["components"]["full"], found["config"]
    assert full["page_bytes"] == 1 << 20
    assert full["page_bytes_total"] == 8 << 20
    assert full["pool_bytes_per_rank"] == {"device": 6669 << 20, "host": 13338 << 20}
    assert full["pool_bytes_total"] == {"device": 6669 << 23, "host": 13338 << 23}
    assert config["weight_bytes_total"] == 2 * 8_030_261_248 == 8 * config["weight_bytes_per_rank"]
    for way in ("d2h", "h2d"):
        moved = found["transfers"][way]
        assert moved["bytes"] == moved["bytes_per_rank"] == moved["bytes_total"] / 8
    assert found["transfers"]["d2h"]["bytes"] == full["backed_up"] << 20 > 0


@pytest.mark.parametrize("mode", ["timed", "hits"])
def test_ranks_that_are_alike_keep_one_copy_on_host(
    tmp_path: Path, replayed: Replayed, mode: str
) -> None:
    """Each writes its part of it, and reads the whole one."""
    turns = [[1], [2], [3], [1], [2], [3]]
    trace = write(tmp_path / "turns.jsonl", *(mooncake(ids, 512) for ids in turns))
    for model, tp, page, copies in (
        ("deepseek-v3", 8, 64 * 70_272, 8),
        ("llama-3.1-70b", 16, 64 * 80 * 2 * 128 * 2, 2),
        ("llama-3.1-8b", 8, 1 << 20, 1),
    ):
        sizes = f"--device-pages 11 --host-bytes 8GB --mode {mode} --check every"
        ranks = f"--hardware b200 --model {model} --tp {tp} --host-copies node"
        report, found = replayed(f"{ranks} {sizes}", str(trace))
        part, full = page // copies, found["components"]["full"]
        total = full["pool_bytes_total"]["host"]
        assert found["config"]["host_copies"] == "node"
        assert full["page_bytes"] == page
        assert full["pool_bytes_per_rank"]["host"] * tp == total
        assert 0 <= 8e9 - total < part * tp
        assert full["capacity"]["host"] * part * tp == total
        assert found["transfers"]["d2h"]["bytes"] == full["backed_up"] * part > 0
        assert found["transfers"]["d2h"]["bytes_total"] == full["backed_up"] * part * tp
        assert found["transfers"]["h2d"]["bytes"] == full["loaded"] * page > 0
        assert f"on {tp} ranks (as given, once for ranks that are alike" in report


def test_ranks_that_divide_tokens_hold_as_many_times_more(replayed: Replayed) -> None:
    """Alike on host, where ranks that are still alike can share."""
    tokens, model = [], "--hardware b200 --model deepseek-v3 --tp 8 --host-bytes 1TB --limit 1"
    for groups in ("--dcp 1", "--dcp 4", "--dcp 8", "--dcp 4 --host-copies node"):
        report, found = replayed(f"{model} {groups}")
        dcp = found["config"]["dcp"]
        assert (f"tokens divided among {dcp} ranks" in report) == (dcp > 1)
        assert found["components"]["full"]["page_bytes"] * dcp == 64 * 70_272
        tokens.append((found["config"]["device_tokens"], found["config"]["host_tokens"]))
    one, four, eight, shared = tokens
    for place in (0, 1):
        for more, times in ((four, 4), (eight, 8)):
            assert abs(more[place] - times * one[place]) < 64 * times
    assert shared == (four[0], eight[1])


def settings_of(trace: str, words: str) -> ReplayConfig:
    _, options = parse(["replay", trace, *words.split()])
    return resolve(*opened(options))[0]  # type: ignore[arg-type]


def test_ranks_that_divide_tokens_store_each_once(trace: str) -> None:
    """Of four ranks with the same head, each stores its part: as much as eight with all tokens."""
    few = settings_of(trace, "--tp 8 --host-pages 99 --storage sim:")
    many = settings_of(trace, "--tp 32 --dcp 4 --host-pages 99 --storage sim:")
    assert many.value_bytes == few.value_bytes == {"full": 8 << 20}


def test_host_bytes_are_the_total_that_is_printed(replayed: Replayed) -> None:
    report, found = replayed("--tp 8 --host-bytes 140GB")
    assert "17.5 GB a rank, 140.0 GB on 8 ranks (as given; with" in report
    assert 0 <= 140e9 - found["components"]["full"]["pool_bytes_total"]["host"] < 8 << 20
    report, _ = replayed("--host-bytes 4TiB --components full,swa")
    assert report.count("(its share of --host-bytes") == 2
    assert "4398" not in report  # one figure in one unit for one pool


@pytest.mark.parametrize(
    ("ratio", "pages", "rule"),
    [
        ("0.5", 50, "(0.5 x device; with write_through mostly copies of the device's pages)"),
        ("0.25", 25, "(0.25 x device; with write_through mostly"),
        ("0.999", 100, "(0.999 x device; with write_through mostly"),
        ("1", 102, "(1 x device and 1 more; with write_through mostly"),
        ("0.5 --write-policy write_back", 50, "(0.5 x device)"),
        ("1.5", 151, "(1.5 x device)"),
    ],
)
@pytest.mark.parametrize("mode", ["timed", "hits"])
def test_a_ratio_is_what_runs_and_what_is_printed(
    ratio: str, pages: int, rule: str, mode: str, replayed: Replayed
) -> None:
    report, found = replayed(f"--mode {mode} --device-pages 101 --host-ratio {ratio} --check every")
    assert found["config"]["host_pages"] == pages
    assert f"host {pages} pages" in report
    assert rule in report


@pytest.mark.parametrize(
    ("arguments", "said", "figures"),
    [
        (
            "--model deepseek-v3 --hardware b200 --tp 8 --device-pages 100",  # a latent
            "",
            {"page_bytes": 64 * 70_272, "page_bytes_total": 8 * 64 * 70_272},
        ),
        # 60.8 GiB of weights in 80 GB
        (
            "--model gpt-oss",
            "weights 65.2 GB, bf16, experts mxfp4",
            {"weight_bytes_total": 65_248_815_744},
        ),
        (
            "--model deepseek-v4-flash --tp 4",
            "page size 256 tokens, that of deepseek-v4-flash",
            {"page_size": 256},
        ),
        ("--model tiny --device-pages 20", "", {"model": "tiny", "page_bytes": 64 * 2048}),
        ("--hardware h200 --tp 2 --host-bandwidth 50GB", "2 x h200, host link 50.0 GB/s", {}),
        ("--hardware h200 --tp 2", "(90% of h200 less the weights", {}),
    ],
)
def test_models_fit_the_hardware_that_serves_them(
    arguments: str, said: str, figures: dict[str, Any], replayed: Replayed
) -> None:
    report, found = replayed(arguments)
    assert said in report
    assert figures.items() <= (found["components"]["full"] | found["config"]).items()
    if "flash" in arguments:
        pools = [one["pool_bytes_per_rank"]["device"] for one in found["components"].values()]
        assert sum(pools) > 30e9


def test_the_page_size_says_where_it_comes_from(replayed: Replayed) -> None:
    report, found = replayed("")
    assert (found["config"]["page_size"], found["config"]["page_size_from"]) == (64, "model")
    assert "page size 64 tokens, that of llama-3.1-8b model llama-3.1-8b" in report
    report, found = replayed("--page-size 512")
    assert found["config"]["page_size_from"] == "option"
    assert "page size 512 tokens, as given model" in report


@pytest.mark.parametrize("size", ["16", "64", "256"])
def test_hits_in_whole_blocks_do_not_depend_on_the_page_size(size: str, tmp_path: Path) -> None:
    path, out = tmp_path / "trace.jsonl", tmp_path / "out.json"
    write(path, mooncake([1, 2, 3]), mooncake([1, 2, 4], 1400), mooncake([1, 5], 700))
    options = ["--mode", "hits", "--page-size", size, "--device-tokens", "64K"]
    assert main(["replay", str(path), *options, "--json", str(out)]) == 0
    assert json.loads(out.read_text())["whole"]["hit_tokens"]["device"] == 1024 + 512


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            "--model deepseek-v4-flash --tp 4 --page-size 64",
            "--page-size: expected a multiple of 1",
        ),
        ("--model deepseek-v4-flash --tp 4 --page-size 64", "give 256, the model's own, or none"),
        ("--token-budget 3", "--token-budget: expected at least one page"),
        (
            "--device-pages 20 --host-ratio 0.01",
            "--host-ratio: expected at least a page of host for the 20 pages on device",
        ),
        (
            "--model deepseek-v4-flash --tp 4 --kv-dtype fp8",
            "--kv-dtype: expected a model with plain rows, found deepseek-v4-flash",
        ),
        ("--tp 3", "--tp: expected a divisor"),
        (
            "--components full,swa --swa-window 1M --device-tokens 48K",
            "--swa-window: expected a wi",
        ),
        (
            "--components full,swa --swa-window 1M --device-tokens 48K",
            "15,626 are needed; use a larger --tp",
        ),
        (
            "--model qwen3.5-397b-a17b --tp 8 --device-tokens 30K",
            "of which each of 8 holds 99.1 GB, found 80.0 GB on each; raise tp",
        ),
        ("--model gemma-3-27b --swa-tokens 64K", "found 54.0 GB of weights and 27.3 GB of swa"),
        ("--device-pages 1000000000000000000", "--device-pages: expected at most 281474976710656"),
        ("--device-pages 1G", "device pool: expected at most 67108864 pages, found 1000000000"),
        ("--host-pages 1T", "host pool: expected at most 67108864 pages"),
        (
            "--model llama-3",
            "with which llama-3.1-70b, llama-3.1-8b, llama-3.1-8b-eagle3 begin; wr",
        ),
        ("--model lama-3.1-8b", "did you mean llama-3.1-8b?"),
        (
            "--hardware h900",
            "rtx-4090, rtx-pro-6000, found 'h900'; did you mean h800?; or give",
        ),
        (
            "--hardware nowhere.txt",
            "nowhere.txt: expected a readable hardware profile, found: No su",
        ),
    ],
)
def test_a_size_that_cannot_be_is_refused_by_the_name_of_its_option(
    arguments: str, said: str, trace: str, capsys: Capsys
) -> None:
    assert said in refused(trace, arguments, capsys)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("hello", "found text that is not JSON"),
        ("[1]", "found JSON without hicache_profile"),
        ('{"timestamp": 0}', "found JSON without hicache_profile"),
        ('{"hicache_profile": 9}', "expected a profile of version 2, found 9;"),
        ('{"hicache_profile": 2}', "found a profile that was changed since"),
    ],
)
def test_a_wrong_profile_says_what_is_wrong_with_it(
    content: str, said: str, trace: str, tmp_path: Path, capsys: Capsys
) -> None:
    path = tmp_path / "profile.txt"
    path.write_text(content)
    assert said in refused(trace, f"--hardware {path}", capsys)


UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
BINARY = {"Ki": 1 << 10, "Mi": 1 << 20, "Gi": 1 << 30, "Ti": 1 << 40}


@pytest.mark.parametrize(("unit", "value"), (UNITS | BINARY).items())
def test_every_size_takes_the_same_units(unit: str, value: int) -> None:
    assert read.size(f"3{unit}") == read.at_least(1)(f"3{unit}") == 3 * value
    assert read.between(1, 1 << 48)(f"3{unit}") == read.device_pages(f"3{unit}") == 3 * value
    assert read.size(f"3{unit.lower()}") == 3 * value
    for byte in ("", "B"):
        assert read.byte_size(f"3{unit}{byte}") == 3 * value
        assert read.byte_size(f"3{unit}{byte}".lower()) == 3 * value
        assert read.is_size(f"3{unit}{byte}".lower()) == bool(unit + byte)
        if unit + byte:
            assert read.bandwidth(f"3{unit}{byte}") == read.Bandwidth(Fraction(1), 3 * value)
    assert read.bandwidth(f"3{unit}B/s").bytes_per_s == 3 * value
    if unit:
        assert read.size(f"1.5{unit}") == read.byte_size(f"1.5{unit}B") == value * 3 // 2


@pytest.mark.parametrize("parse", [read.size, read.byte_size, read.at_least(0), read.device_pages])
@pytest.mark.parametrize(
    "text", ["", "-1", "K", "1kk", "1 K", "1e9", "1P", "0x10", "1_000", "9" * 60, "999T", "1.5"]
)
def test_what_is_no_size_is_refused(parse: Callable[[str], int], text: str) -> None:
    with pytest.raises(ValueError, match="expected "):
        parse(text)


def test_a_count_takes_no_bytes() -> None:
    with pytest.raises(ValueError, match="a number such as 1M, 512K or 64Ki"):
        read.size("512GB")


def test_models_are_named_by_what_they_begin_with() -> None:
    assert models.get("gpt-oss").name == "gpt-oss-120b"
    assert models.get("tiny").name == "tiny"
    assert "tiny" not in models.names()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("", "host link 54.8 GB/s each way (87% of its peak)"),
        ("--hardware a100 --tp 2", "host link 25.2 GB/s per rank each way (80% of its peak)"),
        ("--host-bandwidth 0.5x", "host link 27.4 GB/s each way (0.5 x 87% of its peak)"),
        ("--host-bandwidth 50GB --tp 2", "host link 50.0 GB/s per rank each way (as given)"),
    ],
)
def test_the_host_link_is_that_of_a_rank_and_what_copies_reach(
    given: str, said: str, tmp_path: Path, capsys: Capsys
) -> None:
    """What is said is what copies do: their bytes on one rank, over the time the link was busy."""
    out = tmp_path / "out.json"
    command = ["replay", "--limit", "200", "--check", "off", "--json", str(out), *given.split()]
    assert main(command) == 0
    assert said in " ".join(capsys.readouterr().out.split())
    found = json.loads(out.read_text())
    stated = found["config"]["host_link_bytes_per_s_per_rank"]
    moved = found["transfers"]["d2h"]
    # a copy of a few pages waits 6 us for its first byte
    assert 0.9 * stated < moved["bytes_per_rank"] / moved["busy_s"] <= stated


@pytest.mark.parametrize("mode", ["timed", "hits"])
def test_no_bytes_of_host_memory_are_no_host(replayed: Replayed, mode: str) -> None:
    digests = {
        replayed(f"--mode {mode} --device-pages 100 {none}")[1]["digest"]
        for none in ("--host-bytes 0", "--host-bytes 0GB", "--host-ratio 0", "--host-pages 0")
    }
    assert len(digests) == 1
    report, found = replayed(f"--mode {mode} --device-pages 100 --host-bytes 0")
    assert "host none" in report
    assert found["config"]["host_pages"] == 0
