"""`hicache sweep`: a point is a replay; the file is resumed, mended or refused; the table, and what
host memory buys as a picture."""

import fcntl
import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.test_tidy import SOURCES, imports_of, module_of
from traces.cli import main
from traces.sweeping import points as work
from traces.sweeping.table import Outcome, front, ordered

from .rig import Capsys, Patch, Ray, document, fails, turns_of

pytestmark = pytest.mark.usefixtures("here")

SMALL = ["--device-pages", "40", "--page-size", "16,64"]
GRID = [*SMALL, "--host-ratio", "0,2", "--write-policy", "write_back,write_through"]


@pytest.fixture(scope="module")
def turns(tmp_path_factory: pytest.TempPathFactory) -> str:
    sizes = ["--clients", "4", "--rounds", "3", "--input-tokens", "32", "--output-tokens", "32"]
    return turns_of(tmp_path_factory.mktemp("turns"), *sizes, "--system-tokens", "64")


def sweep(*words: str, code: int = 0) -> dict[str, Any]:
    jobs = [] if "ray" in words else ["--jobs", "1"]
    return document(Path(), "sweep", *words, *jobs, code=code)


def lines(path: str = "s.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def keys(path: str = "s.jsonl") -> list[str]:
    return [line["key"] for line in lines(path) if line["kind"] == "point"]


def test_a_point_is_what_its_command_replays_and_the_same_on_ray(
    turns: str, monkeypatch: Patch
) -> None:
    value = [turns, *GRID, "--slo", "ttft=10ms,tpot=5ms"]
    result = sweep(*value, "-o", "s.jsonl")
    monkeypatch.setitem(sys.modules, "ray", Ray)
    same = {"command": None}
    assert sweep(*value, "--executor", "ray") | same == result | same
    assert result["complete"]
    assert result["grid"] == {
        "page_size": [16, 64],
        "host_ratio": [0, 2],
        "write_policy": ["write_back", "write_through"],
    }
    # without host memory the write policies are one point
    points = [line for line in lines() if line["kind"] == "point"]
    assert len(points) == len({point["label"] for point in points}) == 6
    assert [point["label"] for point in result["points"]] == [point["label"] for point in points]
    for point in points[:3]:
        command = shlex.split(point["command"])
        assert main([*command[1:], "--json", "one.json", "--check", "every"]) == 0
        item = json.loads(Path("one.json").read_text())
        for key in ("digest", "total", "steady", "latency_s", "transfers", "output", "slo"):
            assert point.get(key) == item.get(key)


def test_a_second_run_does_only_what_is_missing(
    turns: str, monkeypatch: Patch, capsys: Capsys
) -> None:
    first = sweep(turns, *SMALL, "--host-ratio", "0,2", "-o", "s.jsonl")
    before = Path("s.jsonl").read_text()

    def never(*_: object) -> None:
        raise AssertionError("a point that is done runs again")

    plain = work.replayed
    monkeypatch.setattr(work, "replayed", never)
    again = sweep(turns, *SMALL, "--host-ratio", "0.0,2.0", "-o", "s.jsonl")
    for item, other in zip(again["points"], first["points"], strict=True):
        assert item["digest"] == other["digest"]
    assert Path("s.jsonl").read_text() == before
    monkeypatch.setattr(work, "replayed", plain)
    more = sweep(turns, *SMALL, "--host-ratio", "0,2,4", "-o", "s.jsonl")
    assert "4 of 6 points are done already" in capsys.readouterr().err
    assert len(more["points"]) == 6
    assert len(keys()) == len({*keys()}) == 6
    kinds = [line["kind"] for line in lines()]
    assert kinds == ["sweep", *["point"] * 4, "sweep", *["point"] * 2]


@pytest.mark.parametrize("left", [0.02, 0.5, 0.99])
def test_a_line_that_was_cut_off_is_mended_and_told(
    left: float, turns: str, capsys: Capsys
) -> None:
    grid = [turns, *SMALL, "--host-ratio", "2", "-o", "s.jsonl"]
    full = sweep(*grid)
    text = Path("s.jsonl").read_bytes()
    start = text.rindex(b"\n", 0, len(text) - 1) + 1
    Path("s.jsonl").write_bytes(text[: start + int(left * (len(text) - start))])
    mended = sweep(*grid)
    assert "the last line was cut off; its point runs again" in capsys.readouterr().err
    assert mended["points"] == full["points"]
    assert len(keys()) == 2
    Path("s.jsonl").write_text('{"schema": 2, "kind": "swe')
    sweep(*grid)
    assert [line["kind"] for line in lines()] == ["sweep", "point", "point"]


def test_another_trace_another_version_and_another_file_are_refused(
    turns: str, capsys: Capsys, monkeypatch: Patch
) -> None:
    grid = [*SMALL, "-o", "s.jsonl", "--jobs", "1"]
    assert main(["sweep", turns, *grid]) == 0
    before = Path("s.jsonl").read_text()
    Path("other.jsonl").write_text(f"{Path(turns).read_text()}\n")

    def refused(trace: str) -> str:
        capsys.readouterr()
        return fails(capsys, "sweep", trace, *grid)

    assert "s.jsonl: expected a sweep of the trace, found" in refused("other.jsonl")
    with monkeypatch.context() as patch:
        patch.setattr(work, "decisions", lambda: "0" * 16)
        assert "s.jsonl: expected a sweep of this version, found" in refused(turns)
    with Path("s.jsonl").open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        assert "another command that writes to it" in refused(turns)
    assert Path("s.jsonl").read_text() == before
    Path("s.jsonl").write_text("my letters")  # as if cut off
    assert "s.jsonl:1: expected the header of a sweep, found 'my letters'" in refused(turns)
    assert Path("s.jsonl").read_text() == "my letters"


def test_a_point_whose_device_is_too_small_is_left_out_and_named(
    turns: str, capsys: Capsys
) -> None:
    result = sweep(turns, "--device-pages", "1,60,61")
    assert [item["label"] for item in result["points"]] == ["device-pages=60", "device-pages=61"]
    assert "expected a request of at most 1 pages" in result["left_out"]["device-pages=1"]
    err = capsys.readouterr().err
    assert f"left out: device-pages=1: {result['left_out']['device-pages=1']}" in err
    assert "combinations" not in err


def test_an_option_that_some_points_do_not_read_is_left_out_there(
    turns: str, capsys: Capsys
) -> None:
    value = [turns, "--device-pages", "40", "--host-ratio", "0,2", "--write-policy", "write_back"]
    stores = ["--storage", "sim:read=1GB/s", "--storage", "sim:read=2GB/s"]
    result = sweep(*value, "--exclusive", *stores, "-o", "s.jsonl")
    both = {"host_ratio": 2}
    assert [point["point"] for point in result["points"]] == [
        {"host_ratio": 0},
        both | {"storage": "sim:read=1GB/s"},
        both | {"storage": "sim:read=2GB/s"},
    ]
    assert "4 combinations are 3 different points" in capsys.readouterr().err
    commands = [line["command"] for line in lines() if line["kind"] == "point"]
    assert "--exclusive" not in commands[0]
    assert "--exclusive" in commands[1]


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (KeyboardInterrupt, 130, "interrupted: 1 of 2 points are done; the same command does the"),
        (ZeroDivisionError("told"), 10, "ZeroDivisionError: told"),
    ],
)
def test_what_ends_a_sweep_keeps_the_points_that_are_done(
    error: Any, code: int, text: str, turns: str, monkeypatch: Patch, capsys: Capsys
) -> None:
    plain, labels = work.replayed, list[str]()

    def ends(outside: Any, task: work.Task) -> dict[str, Any]:
        labels.append(task.label)
        if len(labels) > 1:
            raise error
        return plain(outside, task)

    monkeypatch.setattr(work, "replayed", ends)
    result = sweep(turns, *SMALL, "-o", "s.jsonl", code=code)
    assert len(result["points"]) == len(keys()) == 1
    printed = capsys.readouterr()
    assert text in printed.err
    assert "1 of 2 points" in printed.out
    monkeypatch.setattr(work, "replayed", plain)
    assert len(sweep(turns, *SMALL, "-o", "s.jsonl")["points"]) == 2


def test_the_version_covers_the_code_that_a_replay_imports() -> None:
    """What shows a result, or names one, does not change it."""
    shown = {"traces.html", "traces.plugins", "traces.start", "traces.terminal"}
    covered = set(work._DECIDES)
    deciding = [path for path in SOURCES if module_of(path).startswith(tuple(covered))]
    imported = {
        item for path in deciding for item in imports_of(path) if item.startswith("traces.")
    }
    assert {".".join(item.split(".")[:2]) for item in imported} - shown <= covered


def outcome(label: str, **figures: Any) -> Outcome:
    value = {"gpus": 1, "host_bytes": 0, "hit_rate": 0.5, "ttft_p90_s": 1.0}
    return {"label": label, **value, "goodput_requests_per_s": None, **figures}


def test_the_front_has_what_nothing_beats_and_the_best_comes_first() -> None:
    small, large = outcome("small"), outcome("large", host_bytes=9, hit_rate=0.7)
    waste = outcome("waste", host_bytes=12, hit_rate=0.7)
    fast = outcome("fast", host_bytes=9, hit_rate=0.6, ttft_p90_s=0.5)
    points = [waste, large, fast, small]
    assert [item["label"] for item in front(points)] == ["large", "fast", "small"]
    assert [item["label"] for item in ordered(points)] == ["fast", "large", "waste", "small"]


# -- what host memory buys


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> str:
    return turns_of(tmp_path_factory.mktemp("rounds"), "--clients", "4", "--rounds", "5")


def test_sizes_of_host_memory_are_shown_in_order_and_drawn(rounds: str, capsys: Capsys) -> None:
    value = ["--device-pages", "100", "--host-bytes", "3.2GB,0,0.8GB", "--picture", "a.svg"]
    points = sorted(sweep(rounds, *value)["points"], key=lambda item: item["point"]["host_bytes"])
    printed = capsys.readouterr().out
    shown = [row.split() for row in printed.splitlines() if row[:1].isdigit() and "." in row]
    assert [row[0] for row in shown] == ["0", "0.8GB", "3.2GB"]
    for row, point in zip(shown, points, strict=True):
        assert f"{point['hit_rate'] * 100:.1f}" in row
        assert f"{point['ttft_p90_s']:.2f}" in row
    assert "20 requests of turns.jsonl, llama-3.1-8b on 1" in Path("a.svg").read_text()


def test_enough_host_memory_is_exact_to_a_page(rounds: str, capsys: Capsys) -> None:
    """With it every hit is there, and with a page less one is not; none if the device has all; and
    with windows it is not known, as is said."""
    value = [rounds, "--mode", "hits", "--host-bytes", "1GB,2GB", "--device-pages"]
    assert sweep(*value, "200")["enough_host_bytes"] == 0
    assert "enough host memory  none: the device has all (LRU" in capsys.readouterr().out
    enough = sweep(*value, "40")["enough_host_bytes"]
    assert f"enough host memory  {enough / 1e9:.4g} GB (LRU" in capsys.readouterr().out
    value = [*value[:3], "--device-pages", "40", "--host-bytes"]
    less, full = sweep(*value, f"{enough - (1 << 23)},{enough}")["points"]
    assert less["hit_rate"] < full["hit_rate"] == full["ceiling_rate"]
    capsys.readouterr()
    assert sweep(*value, "1GB,2GB", "--components", "full,swa")["enough_host_bytes"] is None
    assert "not known: the curve counts the pool of full alone" in capsys.readouterr().out
