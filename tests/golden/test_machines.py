"""`hicache size --slo`: the cheapest machine, its price, its error, and what flips it. `hicache
sweep`: the same points on two processes and on Ray."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.needs import PATIENCE_S

from .playing import ROOT, conversations, document, same, some

# The shape of a trace, and what is asked.
ASKED: dict[str, tuple[tuple[int, int, int, int], str]] = {
    "two accelerators": (
        (48, 8, 60, 3),
        "--slo ttft=2s,tpot=50ms --hardware h100,h200 --tp 1 --most-gpus 2 --host-bytes 0,16GB",
    ),
    "prices of one's own, long prompts": (
        (60, 12, 500, 9),
        "--slo ttft=4s --hardware l40s,a100 --price l40s=1/h,a100=3/h,host=4/GB --tp 1 "
        "--most-gpus 2 --host-bytes 0,64GB",
    ),
    "two ranks, and what I have": (
        (40, 8, 60, 3),
        "--slo ttft=300ms,tpot=12ms --hardware h100,h200 --price h100=2/h,h200=1.5/h,host=4/GB "
        "--tp 1,2 --most-gpus 4 --host-bytes 0 --today 1xh100",
    ),
    "nothing serves": (
        (20, 8, 60, 3),
        "--slo ttft=10ms --hardware h100,h200 --tp 1 --most-gpus 2 --host-bytes 0",
    ),
}
MACHINE = (
    *("hardware", "tp", "replicas", "gpus", "host_bytes", "cost_per_hour"),
    *("attained_rate", "ttft_p50_s", "ttft_p90_s", "goodput_requests_per_s", "served"),
)
GRID = "--device-tokens 16K,64K --host-ratio 2 --write-policy write_back,write_through"


@pytest.mark.parametrize("name", ASKED)
def test_what_to_buy(name: str, tmp_path: Path) -> None:
    shape, words = ASKED[name]
    trace = conversations(tmp_path / "trace.jsonl", *shape)
    value = ["size", trace, *words.split(), "--jobs", "1"]
    decision = document(tmp_path, *value)["decision"]

    def machine(item: dict[str, Any] | None) -> dict[str, Any] | None:
        return item and some(item, MACHINE)

    sure = decision["confidence"]
    points = [
        [item["what"], item["holds"], item["at"], machine(item["to"])] for item in sure["flips"]
    ]
    result = {name: machine(decision[name]) for name in ("answer", "runner_up", "today")}
    offered = [[item["cost_per_hour"], item["served"]] for item in decision["candidates"]]
    same("machines", name, {**result, "error": sure["pass_error"], "flips": points, "of": offered})


def _points(folder: Path, how: str, *alone: str) -> list[Any]:
    trace = conversations(folder / "trace.jsonl", 20, 5, 60, 2)
    value = [*GRID.split(), *how.split(), "--json", "out.json"]
    subprocess.run(
        [*alone, sys.executable, "-m", "hicache", "sweep", trace, *value],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        check=True,
        capture_output=True,
        timeout=PATIENCE_S,
    )
    points = json.loads((folder / "out.json").read_text())["points"]
    return [
        [item["point"], item["digest"], item["tier_rates"], item["ttft_p90_s"]] for item in points
    ]


def test_a_sweep_on_two_processes(tmp_path: Path) -> None:
    same("machines", "sweep", _points(tmp_path, "--jobs 2"))


def test_a_sweep_is_the_same_on_ray(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="ray is not installed", exc_type=ImportError)
    # Ray listens on every address of the machine, so it gets a network of its own
    alone = ["unshare", "-rn", "bash", "-c", 'ip link set lo up && exec "$@"', "-"]
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no network namespace can be made here")
    same("machines", "sweep", _points(tmp_path, "--executor ray", *alone))
