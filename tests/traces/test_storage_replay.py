"""`hicache replay --storage`: options and their errors, the report, the accounts."""

from __future__ import annotations

from pathlib import Path

import pytest

from traces.cli import main

from .rig import Capsys, fails, mooncake, records, write

SMALL = ["--device-pages", "60", "--host-pages", "60", "--prefetch", "wait_complete:0"]
EMPTIED = ["--flush-every-round", "host,device"]


@pytest.mark.parametrize("place", ["file:s?", "file:s?durable=yes&", "sim:"])
def test_a_size_in_the_address_is_the_size_of_storage(turns: str, here: None, place: str) -> None:
    found, _ = records(Path(), turns, "--storage", f"{place}size=50MB", "--mode", "hits")
    assert found["config"]["storage_size"] == 50_000_000


def test_a_store_with_pages_under_another_key_names_the_fields(
    turns: str, tmp_path: Path, capsys: Capsys
) -> None:
    store = ["--storage", f"file:{tmp_path / 'store'}", "--mode", "hits", "--check", "off"]
    assert main(["replay", turns, *store]) == 0
    capsys.readouterr()
    for options, said in (
        (["--page-size", "32"], "(different: page_size)"),
        (["--kv-dtype", "fp8"], "(different: dtype of pool kv)"),
        (["--model", "qwen3-32b"], "(different: model, "),
    ):
        line = fails(capsys, "replay", turns, *store, *options)
        assert said in line
        assert line.endswith("name another place, or give the options of the earlier replay\n")
    assert main(["replay", turns, *store]) == 0


@pytest.mark.parametrize(
    ("mode", "components", "emptied"),
    [
        ("hits", "full,swa,mamba", []),
        ("timed", "full", []),
        ("hits", "full", EMPTIED),
        ("timed", "full,swa,mamba", EMPTIED),
    ],
)
def test_hits_of_the_tiers_are_disjoint_and_the_accounts_agree(
    turns: str, tmp_path: Path, mode: str, components: str, emptied: list[str]
) -> None:
    pools = (
        [] if components == "full" else ["--components", components.replace("mamba", "mamba=60")]
    )
    options = ["--storage", "sim:loss=0.05,corrupt=0.05", *SMALL, *pools, *emptied]
    found, rows = records(tmp_path, turns, *options, "--mode", mode, "--check", "every")
    for tier, tokens in found["whole"]["hit_tokens"].items():
        assert tokens == sum(row["hit_tokens"][tier] for row in rows)
    if emptied or mode == "hits":  # otherwise requests wait for pages, and lose what they had
        assert found["whole"]["hit_tokens"]["storage"] > 0
    ended = found["storage"]["prefetches"]["ended"]
    assert found["whole"]["hit_tokens"]["storage"] <= sum(
        one["fetched_tokens"] for one in ended.values()
    )


def test_what_a_warm_store_has_is_fetched_while_a_turn_before_it_is_still_backed_up(
    turns: str, tmp_path: Path
) -> None:
    """A fetch needs the host copies above it, whose backup may end during the same pass."""
    options = ["--storage", f"file:{tmp_path / 'kv'}", "--prefetch", "wait_complete:0"]
    records(tmp_path, turns, *options)
    warm, _ = records(tmp_path, turns, *options)
    complete = warm["storage"]["prefetches"]["ended"]["complete"]
    assert complete["fetched_tokens"] == complete["found_tokens"] > 0


def test_a_hit_of_a_partial_page_is_of_its_tier(tmp_path: Path) -> None:
    trace = write(tmp_path / "trace.jsonl", mooncake([1], 300), mooncake([1], 300))
    options = ["--storage", "sim:", "--mode", "hits", "--page-size", "512"]
    _, rows = records(tmp_path, str(trace), *options)
    assert rows[1]["hit_tokens"] == {"device": 300, "host": 0, "storage": 0}
