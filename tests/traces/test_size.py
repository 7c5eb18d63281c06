"""`hicache size`: the sizes that it chooses, what it replays, what a sampled trace stands for."""

from __future__ import annotations

import json
import random
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from traces.cli import main
from traces.curves.distances import Curve, lru_curve
from traces.formats._open import open_trace
from traces.formats._sample import groups, sampled
from traces.formats.base import Trace
from traces.sizing import plan, sampling
from traces.sweeping import work

from .rig import mooncake, write

SMALL = ["--device-pages", "40", "--page-size", "512"]
GB, TB = 10**9, 10**12


def conversations(path: Path, seed: int = 1, requests: int = 60) -> str:
    """Prompts of a system prompt, a conversation of its own, and a new end."""
    draw = random.Random(seed)
    histories: dict[int, list[int]] = {}
    records, fresh = [], 1
    for number in range(requests):
        history = histories.setdefault(draw.randrange(requests // 4), [0])
        history += range(fresh, fresh + draw.randrange(1, 4))
        fresh = history[-1] + 1
        records.append(mooncake([*history], timestamp=200 * number))
    return str(write(path, *records))


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    return conversations(tmp_path_factory.mktemp("size") / "trace.jsonl")


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def size(*words: str, code: int = 0) -> dict[str, Any]:
    assert main(["size", *words, "--json", "out.json"]) == code
    found: dict[str, Any] = json.loads(Path("out.json").read_text())
    return found


def curve_of(trace: Trace) -> Curve:
    return lru_curve(trace.paged(512))


# -- the points


def test_sizes_reach_nearly_every_hit_and_the_knee_most_of_them(trace: str) -> None:
    curve = curve_of(open_trace(trace))
    every = curve.hit_tokens(curve.unique)
    enough = plan.enough_pages(curve)
    assert curve.hit_tokens(enough) >= 0.99 * every > curve.hit_tokens(enough - 1)
    for page_bytes in (GB // 100, GB // 4, 3 * GB):
        steps = plan.ladder(curve, page_bytes, 10, None)
        assert 2 <= len(steps.sizes) <= plan.MOST_SIZES
        assert steps.sizes[0] >= 10 * page_bytes, "less than the device has holds nothing more"
        assert steps.sizes[0] < 20 * page_bytes
        assert all(small < large for small, large in pairwise(steps.sizes))
        assert steps.sizes[-2] < enough * page_bytes <= steps.sizes[-1]
        hits = [curve.hit_tokens(max(size // page_bytes, 10)) for size in steps.sizes]
        base = curve.hit_tokens(10)
        wanted = base + plan.MOST * (hits[-1] - base)
        place = steps.sizes.index(steps.knee)
        assert hits[place] >= wanted
        assert not place or hits[place - 1] < wanted
    assert plan.ladder(curve, GB, 10, [0, 4 * GB, 2 * GB]).sizes == (2 * GB, 4 * GB)
    assert plan.ladder(curve, GB, 10, [0]).sizes == ()
    assert len(plan.ladder(curve, GB, 10 * enough, None).sizes) == 1
    assert plan.ladder(curve, GB, 10 * enough, None, exclusive=True).sizes[0] == GB


def test_a_study_has_ten_points_and_a_report(trace: str) -> None:
    words = [trace, *SMALL, "--slo", "ttft=1s,tpot=50ms", "--jobs", "1", "--points", "p.jsonl"]
    found = size(*words, "-o", "r.html")
    assert found["kind"] == "report"
    assert found["complete"]
    labels = [variant["label"] for variant in found["variants"]]
    assert len(labels) == len({*labels}) >= 10
    assert labels[0] == "no host memory"
    policies = {variant["config"]["write_policy"] for variant in found["variants"]}
    assert policies == {"write_back", "write_through", "write_through_selective"}
    assert {variant["config"]["speed"] for variant in found["variants"]} == {1.0, 1.25, 1.5}
    assert {variant["config"]["tp"] for variant in found["variants"]} == {1, 2}
    assert found["curve"]["policies"].keys() == {"lru", "optimum", "bound"}
    page = Path("r.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert found["title"] in page


def test_a_study_goes_on_where_it_ended(
    trace: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = work.PointWork.__call__

    def some(self: work.PointWork, task: work.Task) -> dict[str, Any]:
        if task.number == 2:
            raise KeyboardInterrupt
        return plain(self, task)

    words = [trace, *SMALL, "--jobs", "1", "--points", "p.jsonl"]
    monkeypatch.setattr(work.PointWork, "__call__", some)
    broken = size(*words, "-o", "r.html", code=130)
    assert not broken["complete"]
    assert len(broken["variants"]) == 2
    assert "2 of 10 points are done; the same command does the rest" in capsys.readouterr().err
    monkeypatch.setattr(work.PointWork, "__call__", plain)
    whole = size(*words, "-o", "r.html")
    once = size(*words[:-2], "-o", "r.html", "--jobs", "2")
    assert [one["digest"] for one in whole["variants"]] == [
        one["digest"] for one in once["variants"]
    ]


def test_points_of_another_study_have_the_names_of_this_one(trace: str) -> None:
    """1 x load at half the speed is what 0.5 x load was."""
    path = "lengths.csv"
    rows = "\n".join(f"{place}.0,m,100,5,105,x" for place in range(20))
    header = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"
    Path(path).write_text(f"{header}\n{rows}\n")
    words = [path, "--page-size", "16", "--model", "tiny", "--jobs", "1", "--points", "p.jsonl"]
    first = size(*words, "--speed", "2")
    second = size(*words, "--speed", "1")
    assert [one["label"] for one in second["variants"]] == [
        one["label"] for one in first["variants"]
    ]
    speeds = [one["config"]["speed"] for one in second["variants"]]
    assert speeds == [0.5, 1, 2, 4, 8, 16] * 2


def test_an_overloaded_trace_is_played_at_a_speed_that_can_be_served(tmp_path: Path) -> None:
    records = [mooncake([n * 9 + k for k in range(9)], timestamp=20 * n) for n in range(60)]
    path = str(write(tmp_path / "busy.jsonl", *records))
    found = size(path, *SMALL, "--jobs", "1", "--host-bytes", "4GB")
    speeds = {variant["config"]["speed"] for variant in found["variants"]}
    assert min(speeds) < 1
    assert any("so it is played at" in sentence for sentence in found["estimates"])
    given = size(path, *SMALL, "--jobs", "1", "--host-bytes", "0", "--speed", "1")
    assert min(variant["config"]["speed"] for variant in given["variants"]) == 1


def test_storage_is_behind_small_sizes(trace: str) -> None:
    stored = ["--storage", "sim:read=6GB/s,write=3GB/s", "--host-bytes", "0,1GB,2GB"]
    found = size(trace, *SMALL, *stored, "--jobs", "1", "--write-policy", "write_back")
    labels = [one["label"] for one in found["variants"] if "storage" in one["config"]]
    assert labels
    assert all(label.endswith("host, storage") for label in labels)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--mode", "hits"], "--mode: expected timed"),
        (["--sample", "0.5", "--budget", "9s"], "--budget: expected no --sample beside it"),
        (["--sample", "1.5"], "--sample: expected at most 1"),
        (["--device-pages", "1"], "trace.jsonl:"),
        (["-o", "a.html", "--points", "a.html"], "--points: expected another file"),
    ],
    ids=str,
)
def test_what_cannot_be_costs_no_replay(
    words: list[str], said: str, trace: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["size", trace, *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_trace_of_lengths_only_has_times_and_no_word_of_hits(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    rows += [f"2023-11-16 18:00:{n // 4:02}.{n % 4}500000,{500 + 40 * n},20" for n in range(40)]
    path = tmp_path / "azure.csv"
    path.write_text("\n".join([*rows, ""]))
    found = size(str(path), "--jobs", "1", "-o", "r.html", "--slo", "ttft=1s,tpot=50ms")
    said = " ".join(capsys.readouterr().out.split())
    assert len(found["variants"]) >= 12
    assert {variant["config"]["tp"] for variant in found["variants"]} == {1, 2}
    assert found["curve"] is found["prefixes"] is None
    assert found["verdict"]["sentences"][0].startswith("1 GPU: the trace is served at ")
    assert "has lengths only" in said
    assert "hit" not in said.replace("no hits", "").lower()


# -- a part of a trace


def test_a_sample_has_whole_groups_and_smaller_ones_are_in_it(trace: str) -> None:
    whole = open_trace(trace)
    named = groups(whole)
    kept: set[int] = set(named.tolist())
    for rate in (Fraction(3, 4), Fraction(1, 2), Fraction(1, 4)):
        some = sampled(whole, rate, seed=3)
        chains = {some.paged(512).prompt_key(job) for job in some.jobs}
        chosen = {
            int(name)
            for name, job in zip(named, whole.jobs, strict=True)
            if whole.paged(512).prompt_key(job) in chains
        }
        assert len(some.jobs) == int(np.isin(named, [*chosen]).sum())
        assert chosen < kept
        kept = chosen
    assert sampled(whole, Fraction(1)) is whole


def test_a_request_of_a_sample_has_the_pages_and_the_turns_of_the_whole_trace(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "turns.jsonl")
    assert main(["generate", "multiturn", "--clients", "12", "--rounds", "3", "-o", path]) == 0
    whole = open_trace(path)
    some = sampled(whole, Fraction(1, 2))
    pages, paged = some.paged(64), whole.paged(64)
    assert 0 < len(some.jobs) < len(whole.jobs)
    assert len(some.jobs) % 3 == 0
    number_of = {line: number for number, line in enumerate(whole.line_numbers)}
    for job, line in zip(some.jobs, some.line_numbers, strict=True):
        same = whole.jobs[number_of[line]]
        assert (job.input_length, job.output_length) == (same.input_length, same.output_length)
        assert pages.prompt_key(job) == paged.prompt_key(same)
        if same.after >= 0:
            assert some.line_numbers[job.after] == whole.line_numbers[same.after]
    chains = [pages.chain(job) for job in some.jobs]
    ids = np.unique(np.concatenate(chains))
    assert ids.tolist() == list(range(len(ids)))


def test_the_error_of_a_sample_is_measured_and_small(tmp_path: Path) -> None:
    whole = open_trace(conversations(tmp_path / "long.jsonl", requests=2000))
    error = sampling.error_of(whole, curve_of(whole), Fraction(1, 2), 512)
    assert 0.4 < error.part < 0.6
    assert 0 < error.mean <= error.largest < 0.1
    none = sampling.error_of(whole, curve_of(whole), Fraction(1), 512)
    assert none.largest == 0


def test_a_sampled_study_names_the_sizes_that_it_stands_for(trace: str) -> None:
    words = [trace, *SMALL, "--host-bytes", "0,8GB", "--jobs", "1", "--points", "p.jsonl"]
    found = size(*words, "--sample", "0.5")
    [sentence] = [one for one in found["estimates"] if one.startswith("Replays are of 50.0 %")]
    assert "points of hit rate on average" in sentence
    assert {one["config"]["speed"] for one in found["variants"]} == {1.0, 1.25, 1.5}
    points = [json.loads(line) for line in Path("p.jsonl").read_text().splitlines()[1:]]
    replayed = {one["config"]["host_pages"] for one in points} - {0}
    named = {one["config"]["host_pages"] for one in found["variants"]} - {0}
    assert [2 * pages for pages in sorted(replayed)] == sorted(named)
    assert {one["config"]["speed"] for one in points} == {2.0, 2.5, 3.0}


def test_a_sampled_pool_has_a_page_and_no_size_is_below_one(trace: str) -> None:
    large = ["--model", "llama-3.1-70b", "--tp", "8", "--page-size", "512", "--limit", "12"]
    found = size(trace, *large, "--sample", "0.25", "--jobs", "1")
    hosts = {variant["config"]["host_pages"] for variant in found["variants"]}
    assert found["complete"]
    assert min(hosts - {0}) >= 1


def test_a_budget_chooses_a_part_from_the_size_of_the_trace(trace: str) -> None:
    whole = open_trace(trace)
    assert sampling.part_for(1000.0, whole, 512, 12, 2) == 1
    half = sampling.part_for(0.1, whole, 512, 12, 2)
    assert 0 < half < 1
    assert sampling.part_for(0.1, whole, 512, 24, 4) == half


def test_a_sample_is_sent_as_the_whole_trace_is(tmp_path: Path) -> None:
    path = str(tmp_path / "bench.jsonl")
    assert main(["generate", "bench-multiturn", "--num-clients", "8", "-o", path]) == 0
    whole = open_trace(path)
    assert whole.jobs.sender is not None
    assert sampled(whole, Fraction(1, 2)).jobs.sender == whole.jobs.sender


@pytest.mark.parametrize(("link", "faster"), [("0.5x", "1x"), ("2x", "4x"), ("4GB/s", "8")])
def test_the_link_that_was_given_is_the_one_that_is_judged(
    trace: str, link: str, faster: str
) -> None:
    """The faster link is twice that one, and so is the one of the break-even."""
    base = ["--jobs", "1", "--host-bytes", "4GB", *SMALL]
    plain = size(trace, *base)["verdict"]["break_even"]["link_bytes_per_s"]
    found = size(trace, *base, "--host-bandwidth", link)
    expected = {"0.5x": plain / 2, "2x": plain * 2, "4GB/s": 4e9}[link]
    assert found["verdict"]["break_even"]["link_bytes_per_s"] == pytest.approx(expected, rel=1e-6)
    links = {one["label"]: one["config"]["host_bandwidth"] for one in found["variants"]}
    [label] = [label for label in links if label.endswith("host link 2x")]
    assert links[label].startswith(faster)
    assert len(links) == len(found["variants"])
