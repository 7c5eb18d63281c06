"""`hicache replay --storage`: published rates, errors, what is warm, and a store that dies."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hicache.storage.base import Address, Status, Storage
from hicache.storage.breaker import Breaker, BreakerOptions
from hicache.storage.checksummed import Checksummed
from tests.storage.memory_store import MemoryStore
from traces.cli import main
from traces.replaying import config

from .rig import Capsys, Patch, document, fails, records, replayed, turns_of

RATES = [0.0, *(round((8 * turn - 1) / (8 * turn + 4), 6) for turn in range(1, 12))]
STATES = ["--components", "full,mamba=50", "--host-ratio", "2"]
PLAIN = ["--check", "off", "--prefetch", "wait_complete:0"]


def test_the_rates_are_kept_when_memory_is_emptied_between_rounds(tmp_path: Path) -> None:
    """SPEC's workload: 10 clients, 12 rounds, 256 new input and 256 output tokens a round."""
    published = turns_of(tmp_path)
    store = ["--storage", f"file:{tmp_path / 'store'}", *PLAIN, "--mode", "hits"]
    emptied = ["--flush-every-round", "host,device"]
    result = replayed(tmp_path, published, *STATES, *store, "--device-pages", "3000", *emptied)
    assert round(result["total"]["hit_rate"], 6) == 0.897569
    assert [round(turn["hit_rate"], 6) for turn in result["turns"]] == RATES
    hits = result["total"]["hit_tokens"]
    assert hits["storage"] == sum(hits.values()) > 0


def test_a_store_with_pages_under_another_key_names_the_fields(
    turns: str, tmp_path: Path, capsys: Capsys
) -> None:
    store = ["--storage", f"file:{tmp_path / 'store'}", "--mode", "hits", "--check", "off"]
    assert main(["replay", turns, *store]) == 0
    capsys.readouterr()
    for options, message in (
        (["--page-size", "32"], "(different: page_size)"),
        (["--kv-dtype", "fp8"], "(different: dtype of pool kv)"),
        (["--model", "qwen3-32b"], "(different: model, "),
    ):
        line = fails(capsys, "replay", turns, *store, *options)
        assert message in line
        assert line.endswith("name another place, or give the options of the earlier replay\n")
    assert main(["replay", turns, *store]) == 0


def test_what_a_warm_store_has_is_fetched_while_a_turn_before_it_is_still_backed_up(
    turns: str, tmp_path: Path
) -> None:
    """A fetch needs the host copies above it, whose backup may end during the same pass."""
    options = ["--storage", f"file:{tmp_path / 'kv'}", "--prefetch", "wait_complete:0"]
    records(tmp_path, turns, *options)
    warm, _ = records(tmp_path, turns, *options)
    complete = warm["storage"]["prefetches"]["ended"]["complete"]
    assert complete["fetched_tokens"] == complete["found_tokens"] > 0


OPTIONS = ["--mode", "hits", "--device-pages", "60", "--host-pages", "60"]
OPTIONS += ["--prefetch", "wait_complete:0", "--storage", "file:pages"]


class Dying(MemoryStore):
    """It answers nothing from a look-up on. looks: calls so far."""

    dies_at = -1
    looks = 0

    def lookup(self, keys: Sequence[str]) -> list[bool | None]:
        self.looks += 1
        if self.looks == self.dies_at:
            self.answer = Status.FAILED
        return super().lookup(keys)


@pytest.fixture
def store(monkeypatch: Patch) -> Dying:
    """What `--storage file:pages` opens, again and again."""
    result = Dying()

    def opened(address: Address, options: object, now: Any, notice: Any) -> Storage:
        never = replace(BreakerOptions(), first_pause_s=1e9)
        return Checksummed(Breaker(result, address.text, now, notice, never))

    monkeypatch.setattr(config, "open_store", opened)
    return result


def test_a_store_that_dies_during_look_ups_is_blamed(
    store: Dying, turns: str, tmp_path: Path, capsys: Capsys
) -> None:
    def run() -> tuple[dict[str, Any], str, str]:
        """The JSON of a replay, its report, and what it says to standard error."""
        result = document(tmp_path, "replay", turns, *OPTIONS)
        output = capsys.readouterr()
        return result, " ".join(output.out.split()), output.err

    run()
    warm, out, err = run()
    assert warm["storage"]["losses"]["lookups_unanswered"] == 0
    assert "not done by storage" not in out
    assert "hicache:" not in err
    store.dies_at = store.looks + 10
    dead, out, err = run()
    assert dead["total"]["hit_tokens"]["storage"] < warm["total"]["hit_tokens"]["storage"]
    losses = dead["storage"]["losses"]
    assert losses["outages"] == 1
    assert losses["lookups_unanswered"] > 0
    assert [line for line in err.splitlines() if line.startswith("hicache:")] == [
        "hicache: storage: file:pages does not answer (no answer); going on without it, and asking "
        "again now and then"
    ]
    assert f"lookups unanswered {losses['lookups_unanswered']:,}" in out
    assert "outages 1," in out
