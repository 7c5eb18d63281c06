"""`hicache replay --timeline`: Chrome trace events that say what the report and the records say."""

import json
from pathlib import Path
from typing import Any

import pytest

from .rig import records

Events = list[dict[str, Any]]
EMPTIED = ["--flush-every-round", "host,device"]
STORED = ["--storage", "sim:", "--prefetch", "wait_complete:0", "--device-pages", "400", *EMPTIED]
SMALL = ["--device-pages", "60", "--host-pages", "200"]
DIVIDED = ["--replicas", "2:2"]


def replayed(folder: Path, *words: str) -> tuple[Events, dict[str, Any], list[dict[str, Any]]]:
    """The events of the timeline, the document and the records."""
    timeline = folder / "timeline"
    result, rows = records(folder, *words, "--timeline", str(timeline))
    return json.loads(timeline.read_text())["traceEvents"], result, rows


def slices(events: Events, kind: str) -> Events:
    return [event for event in events if event["ph"] == "X" and event["name"].split()[0] == kind]


def ns(us: float) -> int:
    return round(us * 1000)


@pytest.mark.parametrize("options", [[], [*SMALL, "--replicas", "2"], DIVIDED], ids=" ".join)
def test_phases_begin_and_end_when_the_records_say(
    options: list[str], turns: str, tmp_path: Path
) -> None:
    events, _, rows = replayed(tmp_path, turns, *options)
    result = {
        kind: {item["args"]["request"]: item for item in slices(events, kind)}
        for kind in ("wait", "prefill", "decode")
    }
    for row in rows:
        wait, prefill, decode = (result[kind].pop(row["request"]) for kind in result)
        first_ns = row["arrival_ns"] + row["ttft_ns"]
        assert ns(wait["ts"]) == row["arrival_ns"]
        assert ns(wait["ts"] + wait["dur"]) == ns(prefill["ts"])
        assert ns(prefill["ts"] + prefill["dur"]) == first_ns
        moved = ("decode_wait_ns", "link_wait_ns", "link_ns")
        assert ns(decode["ts"]) == first_ns + sum(row.get(name, 0) for name in moved)
        assert ns(decode["ts"] + decode["dur"]) == row["finish_ns"]
        assert prefill["pid"] == row.get("replica", 0)
        assert decode["pid"] == row.get("decode_replica", prefill["pid"])
    assert not any(result.values())
    computed = sum(row["computed_tokens"] for row in rows)
    passes = sum(item["args"]["tokens"] for item in slices(events, "pass"))
    assert passes >= computed, "what was retracted, or left for another replica, is computed again"
    assert options or passes == computed
    links = slices(events, "kv_link")
    assert sum(link["args"]["bytes"] for link in links) == sum(
        row.get("link_bytes", 0) for row in rows
    )


@pytest.mark.parametrize("options", [SMALL, STORED], ids=" ".join)
def test_pages_add_up_to_the_report(options: list[str], turns: str, tmp_path: Path) -> None:
    events, result, _ = replayed(tmp_path, turns, *options)
    full = result["components"]["full"]
    moved = {"d2h": full["backed_up"], "h2d": full["loaded"]}
    if "storage" in result:
        moved["storage_written"] = result["storage"]["written"]["values"]["done"]
        assert slices(events, "storage_read")
    drawn = {way: sum(item["args"]["pages"] for item in slices(events, way)) for way in moved}
    assert drawn == moved
    assert moved["d2h"] > 0
