"""`hicache replay` with several replicas: options that belong together, the report, the records."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from sim.fleet import Fleet
from traces.cli import main
from traces.sweeping.table import model_of

from .rig import Capsys, Patch, records

DIVIDED = ["--replicas", "2:2"]
SMALL = ["--device-pages", "60", "--host-pages", "60"]


@pytest.mark.parametrize("mode", ["timed", "hits"])
def test_one_replica_behind_a_router_is_the_plain_replay(
    turns: str, tmp_path: Path, mode: str
) -> None:
    plain, rows = records(tmp_path, turns, *SMALL, "--mode", mode)
    for router in ("round-robin", "prefix-aware"):
        fleet = ["--replicas", "1", "--router", router]
        found, routed = records(tmp_path, turns, *SMALL, *fleet, "--mode", mode)
        assert model_of(found["config"]) == model_of(plain["config"])
        differing = {name for name in plain if found[name] != plain[name]}
        assert differing <= {"config", "options", "command", "wall_s"}
        assert [{**row, "replica": 0} for row in rows] == routed
        assert found["fleet"]["replicas"][0]["digest"] == plain["digest"]


@pytest.mark.parametrize(
    ("mode", "components", "router"),
    [
        ("timed", "full", "round-robin"),
        ("timed", "full,swa,mamba", "prefix-aware"),
        ("hits", "full,swa,mamba", "least-loaded"),
    ],
)
def test_the_parts_are_the_whole(
    turns: str, tmp_path: Path, mode: str, components: str, router: str
) -> None:
    pools = (
        [] if components == "full" else ["--components", components.replace("mamba", "mamba=60")]
    )
    fleet = ["--replicas", "3", "--router", router, "--check", "every"]
    found, rows = records(tmp_path, turns, *SMALL, *pools, *fleet, "--mode", mode)
    replicas, whole = found["fleet"]["replicas"], found["whole"]
    assert sum(one["requests"] for one in replicas) == whole["requests"] == len(rows)
    assert sum(one["input_tokens"] for one in replicas) == whole["input_tokens"]
    assert sum(one["hit_tokens"] for one in replicas) == sum(whole["hit_tokens"].values())
    assert sum(one["checked_operations"] for one in replicas) == found["checks"]["operations"] > 0
    for tier in ("device", "host"):
        evicted = sum(one["evicted_pages"][tier] for one in replicas)
        assert evicted == found["evicted_pages"][tier]
    assert Counter(row["replica"] for row in rows) == {
        one["replica"]: one["requests"] for one in replicas
    }
    counts = [one["requests"] for one in replicas]
    assert found["fleet"]["imbalance"]["requests"] == max(counts) * 3 / sum(counts)
    assert found["components"]["full"]["capacity"] == {"device": 180, "host": 180}


def test_decode_replicas_take_every_request(turns: str, tmp_path: Path, capsys: Capsys) -> None:
    found, rows = records(tmp_path, turns, *SMALL, *DIVIDED, "--check", "every")
    assert "4 replicas of 1 x h100, host link" in capsys.readouterr().out
    assert model_of(found["config"]) == "llama-3.1-8b on 4 replicas of 1 x h100"
    replicas, link = found["fleet"]["replicas"], found["fleet"]["kv_link"]
    assert [one["role"] for one in replicas] == ["prefill"] * 2 + ["decode"] * 2
    assert sum(one["requests"] for one in replicas[2:]) == len(rows) == link["requests"] == 30
    assert sum(one["output_tokens"] for one in replicas) == found["output"]["tokens"]
    assert sum(row["link_bytes"] for row in rows) == link["bytes_total"]
    assert link["bytes_total"] == (
        link["moved_pages"] * found["components"]["full"]["page_bytes_total"]
    )
    assert link["busy_s"] >= link["bytes_total"] / 50e9
    for row in rows:
        assert row["queue_ns"] + row["load_ns"] + row["compute_ns"] == row["ttft_ns"]
        moved_ns = row["decode_wait_ns"] + row["link_wait_ns"] + row["link_ns"]
        assert row["arrival_ns"] + row["ttft_ns"] + moved_ns < row["finish_ns"]
        assert row["decode_replica"] in (2, 3)
        # what the answers of earlier turns are is known to decode replicas only
        assert row["hit_ended_by"] in ("complete", "first_seen", "not_here", "evicted")


def test_why_says_that_another_replica_has_it(turns: str, capsys: Capsys) -> None:
    options = ["--device-pages", "900", "--replicas", "4", "--why", "29"]
    assert main(["replay", turns, *options]) == 0
    assert re.search(r"^hit ended by +not here *$", capsys.readouterr().out, re.MULTILINE)
    assert main(["replay", turns, *options[:2], *DIVIDED, "--why", "29"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert re.search(r"replica 1 decode replica [23] .* decode wait [\d.]+ s link wait", told)


@pytest.mark.parametrize("mode", ["timed", "hits"])
def test_one_storage_serves_all_replicas(turns: str, tmp_path: Path, mode: str) -> None:
    """What one replica stored, another one fetches."""
    store = ["--storage", "sim:", "--prefetch", "wait_complete:0", "--check", "every"]
    store += ["--mode", mode]
    found, rows = records(tmp_path, turns, *SMALL, "--replicas", "4", *store)
    assert found["whole"]["hit_tokens"]["storage"] > 0
    ended = found["storage"]["prefetches"]["ended"].values()
    assert sum(one["fetched_tokens"] for one in ended) > 0
    alone, _ = records(tmp_path, turns, *SMALL, "--replicas", "4", "--mode", mode)
    assert found["whole"]["hit_rate"] > alone["whole"]["hit_rate"]
    assert found["whole"]["hit_tokens"]["storage"] == sum(
        row["hit_tokens"]["storage"] for row in rows
    )


def test_a_violation_names_the_replica(turns: str, monkeypatch: Patch, capsys: Capsys) -> None:
    ended = Fleet._ended

    def wrong(self: Fleet, place: int, served: Any) -> None:
        ended(self, 1 - place, served)

    monkeypatch.setattr(Fleet, "_ended", wrong)
    assert main(["replay", turns, "--replicas", "2"]) == 10
    told = capsys.readouterr().err
    assert "ends-once" in told
    assert "\nreplica: " in told
    assert told.count("story:") == 1
