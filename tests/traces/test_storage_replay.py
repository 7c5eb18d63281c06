"""`hicache replay --storage`: options and their errors, the report, the accounts, why no hit."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from traces.cli import main

from .rig import Capsys, records

ADVICE = {
    "too_short": ["--prefetch-threshold 0"],
    "late": ["--prefetch wait_complete"],
    "evicted_from_storage": ["--storage-size 0.08GB"],
    "never_backed_up": ["--write-policy write_through"],
}
SMALL = ["--device-pages", "60", "--host-pages", "60", "--prefetch-threshold", "0"]


def refused(trace: str, capsys: Capsys, *options: str) -> str:
    """The one line of an error of the caller."""
    assert main(["replay", trace, *options]) == 2
    out, err = capsys.readouterr()
    assert not out
    (line,) = err.splitlines()
    return line


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("nothing", "expected SCHEME:REST such as file:DIR, found 'nothing'"),
        ("fiel:here", "expected one of sim, file"),
        ("/tmp", "for a folder write file:/tmp"),
        ("file:/dev/null", "expected a folder, found a file"),
        ("sim:read=0", "sim:read: expected at least 1, found '0'"),
        ("sim:read=6", "sim:read=6"),
        ("sim:latency=3", "sim:latency: expected a time with its unit such as 200us"),
        ("sim:latncy=3s", "found 'latncy=3s'; did you mean latency?"),
        ("sim:loss=1.5", "sim:loss: expected a share from 0 to 1, found '1.5'"),
        ("sim:loss=0,loss=1", "expected loss once, found it twice"),
    ],
)
def test_an_address_that_is_wrong_is_one_line(
    turns: str, capsys: Capsys, address: str, said: str
) -> None:
    if address == "sim:read=6":
        assert main(["replay", turns, "--storage", address, "--mode", "hits"]) == 0
    else:
        assert said in refused(turns, capsys, "--storage", address)


def test_options_that_do_not_suit_the_store_are_one_line(
    turns: str, tmp_path: Path, capsys: Capsys
) -> None:
    real = ["--storage", f"file:{tmp_path / 'store'}"]
    for options, said in (
        ([*real, "--storage-size", "1M"], "--storage-size: expected room for a page or state"),
        (["--storage", "sim:", "--host-ratio", "0"], "--storage: expected a host pool, found none"),
        (["--prefetch", "timeout"], "--prefetch: expected a store, found none"),
    ):
        assert said in refused(turns, capsys, *options)
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize("place", ["sized", "sized?durable=yes"])
def test_a_size_in_the_address_is_the_size_of_storage(
    turns: str, tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    monkeypatch.chdir(tmp_path)
    sized, told = f"file:{place}{'&' if '?' in place else '?'}size=", []
    for options in ([sized + "50MB"], [f"file:{place}", "--storage-size", "50MB"]):
        found, _ = records(tmp_path, turns, "--storage", *options, "--mode", "hits")
        assert found["config"]["storage_size"] == 50_000_000
        shown = capsys.readouterr().out
        told += [line for line in shown.splitlines() if line.startswith("storage ")][:1]
        assert main(["store", "list", "file:sized", "--json", "list.json"]) == 0
        assert json.loads(Path("list.json").read_text())["store"]["values"] == 5
        shutil.rmtree("sized")
    assert told[0] == told[1] != ""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["file:d?size=5MB"], "--storage-size: expected room for a page or state, 8388608 bytes"),
        (
            ["file:d?size=50MB", "--storage-size", "60MB"],
            "expected one size, found 60,000,000 bytes and size=50MB in the address",
        ),
        (["file:d?size=50MB&"], "found another form of file:"),
        (["hf3fs:d?size=50MB"], "(20,480 bytes there stand for 50,000,000 bytes of pages)"),
    ],
)
def test_a_wrong_size_in_the_address_is_one_line(
    turns: str, tmp_path: Path, capsys: Capsys, options: list[str], said: str
) -> None:
    options[0] = options[0].replace(":d", f":{tmp_path / 'd'}")
    assert said in refused(turns, capsys, "--storage", *options)
    assert not any(tmp_path.iterdir())


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
        line = refused(turns, capsys, *store, *options)
        assert said in line
        assert line.endswith("name another place, or give the options of the earlier replay")
    assert main(["replay", turns, *store]) == 0


@pytest.mark.parametrize("mode", ["hits", "timed"])
@pytest.mark.parametrize("components", ["full", "full,swa,mamba"])
@pytest.mark.parametrize(
    "emptied", [[], ["--flush-host-every-round", "--flush-device-every-round"]]
)
def test_hits_of_the_tiers_are_disjoint_and_the_accounts_agree(
    turns: str, tmp_path: Path, mode: str, components: str, emptied: list[str]
) -> None:
    pools = [] if components == "full" else ["--components", components, "--mamba-states", "60"]
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
    lost = found["storage"]["lost_tokens"]
    assert sum(one["tokens"] for one in lost.values()) == found["whole"]["lost_tokens"]
    assert not any(row["lost_to"] for row in rows if not row["lost_tokens"])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--storage", "sim:loss=1"], "lost_in_storage"),
        (["--storage", "sim:corrupt=1"], "corrupt"),
        (["--storage", "sim:lying=1,loss=1"], "short_read"),
        (["--storage", "sim:dead_at=0s"], "store_failed"),
        (["--storage", "sim:dead_at=4s"], "failed"),
        (["--storage", "sim:", "--prefetch-threshold", "100K"], "too_short"),
        (["--storage", "sim:", "--storage-size", "40MB"], "evicted_from_storage"),
        (["--storage", "sim:read=1MB/s", "--prefetch", "best-effort"], "late"),
        (["--storage", "sim:", "--write-policy", "write_through_selective"], "never_backed_up"),
    ],
)
def test_lost_tokens_have_their_reason(
    turns: str, tmp_path: Path, options: list[str], reason: str
) -> None:
    """Memory is emptied between rounds, so storage is the only tier that can have the history."""
    emptied = ["--flush-host-every-round", "--flush-device-every-round"]
    given = ["--device-pages", "400", "--host-pages", "400", *emptied, *options, "--check", "off"]
    if "--prefetch-threshold" not in options:
        given += ["--prefetch-threshold", "0"]
    found, rows = records(tmp_path, turns, *given)
    lost = found["storage"]["lost_tokens"]
    assert max(lost, key=lambda one: lost[one]["tokens"]) == reason
    if reason in ADVICE:
        assert (found["limit"]["by"], found["limit"]["try"]) == (reason, ADVICE[reason])
    worst = next(row for row in rows if row.get("lost_to") == reason)
    assert worst["capped"]["device"]["full"] == "evicted"


def test_why_says_what_each_tier_had_and_why_storage_did_not_bring_it(
    turns: str, capsys: Capsys
) -> None:
    emptied = ["--flush-host-every-round", "--flush-device-every-round"]
    options = [*emptied, "--device-pages", "400", "--check", "off", "--why", "9", "--storage"]
    assert main(["replay", turns, "--prefetch-threshold", "0", *options, "sim:loss=1"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "storage full there" in told, "as far as the cache could know"
    assert "lost to lost in storage" in told
    assert main(["replay", turns, *options, "sim:"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert re.search(r"hit tokens device 0, host 0, storage [1-9]", told)


def test_verbose_reports_have_what_storage_did(turns: str, capsys: Capsys) -> None:
    emptied = ["--flush-host-every-round", "--flush-device-every-round", "--check", "off"]
    options = ["--storage", "sim:", "--device-pages", "400", *emptied]
    assert main(["replay", turns, *options, "-v"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert re.search(r"storage hits [1-9]", out)
    assert "host and device emptied between rounds" in out
    assert "complete" in out
    assert "waiting for a prefetch" in out


def test_what_a_warm_store_has_is_fetched_while_a_turn_before_it_is_still_backed_up(
    turns: str, tmp_path: Path
) -> None:
    """A fetch needs the host copies above it, whose backup may end during the same pass."""
    options = ["--storage", f"file:{tmp_path / 'kv'}", "--prefetch-threshold", "0"]
    records(tmp_path, turns, *options)
    warm, _ = records(tmp_path, turns, *options)
    complete = warm["storage"]["prefetches"]["ended"]["complete"]
    assert complete["fetched_tokens"] == complete["found_tokens"] > 0
