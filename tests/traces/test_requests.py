"""One record for each request: exact sums, the reasons of a miss. Pinned prefixes and a time to
live. `hits` mode with several components, and the ceiling of hits page by page."""

import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hicache.core.config import Config
from tests.tiny import configured
from traces.cli import main
from traces.formats.base import Trace
from traces.replaying.account import Account, Miss, Misses, ceiling_of
from traces.replaying.playing import HitsReplay

from .rig import HEADER, Capsys, mooncake, native, random_tree, read, records, write

NS = 1_000_000_000
STORED = ["--storage", "sim:loss=0.05,corrupt=0.05", "--prefetch", "wait_complete:0"]
STORED += ["--flush-every-round", "host,device"]


def times(arguments: tuple[str, ...]) -> list[str]:
    """Instants to the nanosecond are those of times that nothing fitted moves."""
    return [] if "hits" in arguments else ["--times", "pure-roofline", "--engine", "plain"]


def replayed(folder: Path, *words: str) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    return records(folder, *words, *times(words))


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Requests in a closed and an open loop whose prompts share every depth."""
    return str(random_tree(tmp_path_factory.mktemp("tree") / "tree.jsonl", 150))


@pytest.mark.parametrize(
    "options",
    [
        ["--device-pages", "90", "--host-pages", "60", "--write-policy", "write_back"],
        ["--device-pages", "90", "--host-ratio", "0", "--scheduler", "longest-prefix"],
        [*STORED, "--device-pages", "90", "--host-pages", "60"],
        [*STORED, "--mode", "hits", "--device-pages", "90", "--components", "full,swa,mamba=60"],
    ],
    ids=" ".join,
)
def test_records_add_up_to_the_report(options: list[str], tree: str, tmp_path: Path) -> None:
    result, rows = replayed(tmp_path, tree, "--check", "off", *options)
    assert [row["request"] for row in rows] == list(range(150))
    assert [row["line"] for row in rows] == list(range(2, 152))  # behind the header
    for share, part in (("total", rows), ("steady", rows[75:])):
        for tier, tokens in result[share]["hit_tokens"].items():
            assert tokens == sum(row["hit_tokens"][tier] for row in part)
        for key in ("input", "computed", "ceiling", "first_seen", "lost"):
            assert result[share][f"{key}_tokens"] == sum(row[f"{key}_tokens"] for row in part), key
        _check_rates(result[share], part, result["config"]["page_size"])
    for row in rows:
        hit = sum(row["hit_tokens"].values())
        assert hit + row["computed_tokens"] == row["input_tokens"]
        assert row["first_seen_tokens"] + row["ceiling_tokens"] == row["input_tokens"]
        if row["hit_ended_by"] in ("complete", "first_seen"):
            assert row["lost_tokens"] == 0
    if result["config"]["mode"] == "timed":
        _check_times(result, rows)


def _check_rates(share: dict[str, Any], rows: list[dict[str, Any]], size: int) -> None:
    both = np.array([(sum(row["hit_tokens"].values()), row["input_tokens"]) for row in rows])
    hits, total = both.sum(axis=0)
    pages = (-(-both // size)).sum(axis=0)
    assert share["hit_rate"] == hits / total
    assert share["hit_rate_pages"] == pages[0] / pages[1]
    assert share["hit_rate_mean"] == pytest.approx((both[:, 0] / both[:, 1]).mean())


def _check_times(result: dict[str, Any], rows: list[dict[str, Any]]) -> None:
    latency = result["latency_s"]
    for name in ("ttft", "queue", "load", "compute"):
        times = np.array([row[f"{name}_ns"] for row in rows])
        points = np.percentile(times, (50, 90, 99), method="inverted_cdf") / NS
        assert [latency[name][key] for key in ("p50", "p90", "p99")] == points.tolist()
        assert latency[name]["mean"] == times.mean() / NS
    for row in rows:
        assert row["queue_ns"] + row["load_ns"] + row["compute_ns"] == row["ttft_ns"]
        assert row["arrival_ns"] + row["ttft_ns"] <= row["finish_ns"]
    assert latency["makespan"] == max(row["finish_ns"] for row in rows) / NS
    assert result["output"]["tokens"] == sum(row["output_tokens"] for row in rows)
    assert sum(result["refused"].values()) == sum(row["refusals"] for row in rows)
    assert result["preempted"] == sum(row["preemptions"] for row in rows)


def test_what_a_retracted_request_left_was_in_the_cache(tmp_path: Path) -> None:
    """Request 4 asks for a part of the answer of request 1, which is retracted, loses it, and
    waits behind request 4."""
    path = write(
        tmp_path / "trace.jsonl",
        HEADER,
        native(("a", 64), output=("b", 400), timestamp=0),
        native(("c", 64), output=("d", 200), timestamp=2100),
        native(("a", 64), ("b", 256), output=("e", 200), timestamp=2101),
        native(("a", 64), output=("b", 100), timestamp=2102),
        native(("c", 64), ("d", 192), output=("f", 1), timestamp=2152),
    )
    sizes = ["--device-pages", "11", "--host-ratio", "0", "--scheduler", "longest-prefix"]
    _, rows = replayed(tmp_path, str(path), *sizes)
    assert rows[1]["preemptions"] == 1
    assert rows[1]["finish_ns"] > rows[4]["finish_ns"]
    assert rows[4]["hit_tokens"]["device"] == 128
    assert rows[4]["hit_ended_by"] == "evicted"
    assert rows[4]["last_seen_in_request"] == 1


def test_a_page_that_is_still_computed_is_not_ready(tmp_path: Path) -> None:
    alike = (mooncake([1, 2, 3], timestamp=1) for _ in range(2))
    path = write(tmp_path / "trace.jsonl", mooncake([9]), *alike)  # the pass of the first goes on
    _, rows = replayed(tmp_path, str(path), "--page-size", "512")
    assert [row["hit_ended_by"] for row in rows] == ["first_seen", "first_seen", "not_ready"]
    assert rows[2]["lost_tokens"] == 1024
    _, rows = replayed(tmp_path, str(path), "--page-size", "512", "--mode", "hits")
    assert [row["hit_ended_by"] for row in rows] == ["first_seen", "first_seen", "complete"]
    assert "ttft_ns" not in rows[0]


def test_a_miss_says_whose_page_was_evicted(tmp_path: Path, capsys: Capsys) -> None:
    path = write(
        tmp_path / "trace.jsonl",
        mooncake([1, 2], timestamp=0),
        mooncake([3, 4, 5], timestamp=5000),
        mooncake([1, 2, 6], timestamp=9000),
    )
    sizes = ["--page-size", "512", "--device-pages", "4"]
    words = [str(path), *sizes, "--host-ratio", "0"]
    _, rows = replayed(tmp_path, *words)
    assert [row["hit_ended_by"] for row in rows] == ["first_seen", "first_seen", "evicted"]
    assert rows[2]["last_seen_in_request"] == 0
    assert (rows[2]["hit_tokens"]["device"], rows[2]["lost_tokens"]) == (512, 512)
    assert main(["replay", *words, "--why", "2"]) == 0
    assert re.search(r"^ *hit ended by +evicted *$", capsys.readouterr().out, re.MULTILINE)
    # with room on host the page is lost to nobody
    _, rows = replayed(tmp_path, str(path), *sizes, "--host-pages", "8")
    assert [row["hit_ended_by"] for row in rows] == ["first_seen", "first_seen", "complete"]
    assert rows[2]["hit_tokens"]["host"] > 0
    assert rows[2]["load_ns"] > 0
    # on host alone it is evicted from there
    sizes[-1] = "3"
    _, rows = replayed(tmp_path, str(path), *sizes, "--host-pages", "3")
    assert rows[2]["hit_ended_by"] == "evicted"


def test_speed_divides_the_times_of_the_trace(tmp_path: Path) -> None:
    path = write(tmp_path / "trace.jsonl", *(mooncake([n], timestamp=1000 * n) for n in range(3)))
    result, rows = replayed(tmp_path, str(path), "--speed", "2.5")
    assert [row["arrival_ns"] for row in rows] == [0, 400_000_000, 800_000_000]
    assert result["config"]["speed"] == 2.5


HITS = ("--mode", "hits", "--check", "every", "--page-size", "64")


def request(second: float, *parts: tuple[str, int]) -> dict[str, Any]:
    return native(*parts, output=("a", 1), timestamp=second * 1000)


@pytest.fixture
def apart(tmp_path: Path) -> str:
    """A system prompt, ten others that fill the cache, and that prompt again a minute later."""
    others = [request(1 + n, (f"other{n}", 256)) for n in range(10)]
    system = ("system", 256)
    again = request(60, system, ("second", 64))
    return str(
        write(tmp_path / "t.jsonl", HEADER, request(0, system, ("first", 64)), *others, again)
    )


def hits(apart: str, tmp_path: Path, *options: str) -> dict[str, int]:
    record: dict[str, int] = records(tmp_path, apart, *options)[0]["total"]["hit_tokens"]
    return record


def test_a_pinned_prefix_is_there_a_minute_later(apart: str, tmp_path: Path) -> None:
    small = (*HITS, "--device-pages", "16")
    host = (*small, "--host-pages", "16")
    assert hits(apart, tmp_path, *small)["device"] == 0
    assert hits(apart, tmp_path, *small, "--pin", "0:256")["device"] == 256
    assert hits(apart, tmp_path, *host)["host"] == 0
    assert hits(apart, tmp_path, *host, "--pin", "0:256@host")["host"] == 256


@pytest.mark.parametrize("mode", ["hits", "timed"])
def test_what_was_not_used_for_the_ttl_is_gone(apart: str, mode: str, tmp_path: Path) -> None:
    large = ("--mode", mode, "--check", "every", "--page-size", "64", "--device-pages", "99")
    for more, hit in (
        ((), 256),
        (("--ttl", "2m"), 256),
        (("--ttl", "30s"), 0),
        (("--ttl", "30s", "--pin", "0:256"), 256),
    ):
        assert hits(apart, tmp_path, *large, *more)["device"] == hit
    if mode == "timed":
        slow, _ = records(tmp_path, apart, *large, "--ttl", "90s", "--speed", "0.5")
        assert slow["total"]["hit_tokens"]["device"] == 0
        assert "90 s are 45 s of the trace at --speed 0.5" in slow["warnings"][-1]


def hits_of(paged: Any, config: Config, lookups: Misses | None = None) -> list[int]:
    account = Account(paged.jobs, paged.page_size, ceiling_of(paged, whole_prompts=True))
    replay = HitsReplay(paged, config, account, (lookups,) if lookups else ())
    replay.run(lambda done: None)
    return [row["hit_tokens"].all for row in account.rows()]


def test_a_hit_reports_the_component_that_limited_it() -> None:
    """Three prompts leave their first block apart; two more come back for what is left of them."""
    trunk, size = [f"b{number}" for number in range(8)], 64
    records: list[object] = [HEADER]
    for number, shared in enumerate((8, 8, 4, 8)):
        prompt = [(name, 2 * size) for name in trunk[:shared]]
        records.append(native(*prompt, (f"own{number}", size), output=(f"a{number}", 1)))
    paged = read(*records).paged(size)
    ceiling = -(-ceiling_of(paged, whole_prompts=True) // size)

    def result_of(*others: str) -> list[tuple[str, int]]:
        components = ("full", *others)
        pools = (99,) * len(components)
        window = 3 * size if "swa" in others else 0
        config = configured(size, pools, (0,) * len(pools), components, swa_window=window)
        rows: dict[int, Miss] = {}
        hits_of(paged, config, Misses(components, ceiling, rows))
        return [tuple(rows[index][:2]) for index in sorted(rows)]

    # a prompt leaves a boundary at its end, and one where it left what was known
    for name in ("mamba", "swa"):
        assert result_of(name) == [("first_seen", 0), (name, 0), (name, 0), ("first_seen", 16)]
    both = [row[0] for row in result_of("swa", "mamba")]
    assert both == ["first_seen", "together", "together", "first_seen"]


def blocks() -> Trace:
    """Prompts that share prefixes, of more pages than a table begins with."""
    draw = random.Random(1)
    walks = [[draw.choice((0, 1)), *(draw.randrange(9) for _ in range(8))] for _ in range(120)]
    ids = [[hash(tuple(walk[:end])) & 0xFFFFFFF for end in range(1, 10)] for walk in walks]
    return read(*(mooncake(result, 512 * 8 + draw.randrange(1, 513)) for result in ids))


def turns() -> Trace:
    records: list[object] = [HEADER]
    for n in range(40):
        prompt = ("system", 40), (f"q{n % 4}", 90 + n // 4), (f"r{n}", 30)
        records.append(native(*prompt, output=(f"a{n}", 33)))
    return read(*records)


@pytest.mark.parametrize(("made", "size"), [(blocks, 4), (blocks, 512), (turns, 16), (turns, 64)])
@pytest.mark.parametrize("full", [True, False])
def test_ceilings_are_the_leading_pages_seen_before(
    made: Callable[[], Trace], size: int, full: bool
) -> None:
    trace, seen = made(), set[int]()
    paged = trace.paged(size)
    for job, result in zip(trace.jobs, ceiling_of(paged, full).tolist(), strict=True):
        chain = paged.chain(job).tolist()
        leading = next((at for at, item in enumerate(chain) if item not in seen), len(chain))
        seen.update(chain)
        most = job.input_length if full else (job.input_length - 1) // size * size
        if full and paged.knows_output:
            most = job.input_length // size * size
        assert result == min(leading * size, most), f"request {job.index}"
