"""A replay on a real store, killed and begun again: what was stored is hit, page for page.
`hicache replay --storage`: options and their errors, the accounts, and a store that dies."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hicache.storage.address import open_storage, parse
from hicache.storage.base import Address, Status, Storage, StorageOptions
from hicache.storage.breaker import Breaker, BreakerOptions
from hicache.storage.checksummed import Checksummed
from hicache.storage.keys import take_apart
from tests.storage.memory_store import MemoryStore
from traces.cli import main
from traces.formats import open_trace
from traces.formats.base import Paged
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


def expected(paged: Paged, stored: set[bytes]) -> list[tuple[int, int]]:
    """The reference model, with memory that is never full: (pages in memory, pages from storage) of
    each request. A page is in memory from the first request that has it on, and in storage if it
    was there at the beginning or was in memory before."""
    memory: set[bytes] = set()
    result = []
    for job in paged.jobs:
        chain = paged.prompt_key(job).page_digests()
        cached = next((at for at, item in enumerate(chain) if item not in memory), len(chain))
        known = next(
            (at for at, item in enumerate(chain) if item not in stored | memory), len(chain)
        )
        result.append((cached, known - cached))
        memory.update(chain)
        if paged.knows_output:
            memory.update(paged.key(job, job.input_length + job.output_length - 1).page_digests())
    return result


def stored_in(folder: Path) -> set[bytes]:
    """The digests of the pages that a store has."""
    store = open_storage(parse(f"file:{folder}"), StorageOptions())
    keys = [take_apart(entry.key) for entry in store.entries("")]
    store.close()
    return {bytes.fromhex(key.digest) for key in keys if key is not None and key.digest}


def test_after_a_kill_the_next_replay_hits_what_was_stored_page_for_page(tmp_path: Path) -> None:
    trace, store, rows = (str(tmp_path / name) for name in ("t.jsonl", "store", "rows.jsonl"))
    shape = ["--clients", "10", "--rounds", "5"]
    assert main(["generate", "multiturn", *shape, "-o", trace]) == 0
    options = [*PLAIN, "--mode", "hits", "--device-pages", "99999", "--storage", f"file:{store}"]
    command = [sys.executable, "-m", "hicache", "replay", trace, *options]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **quiet) as child:  # type: ignore[call-overload]
        while child.poll() is None and not _has_values(Path(store)):
            time.sleep(0.02)
        child.kill()
    there = stored_in(Path(store))
    assert there
    assert main(["replay", trace, *options, "--requests", rows]) == 0
    paged = open_trace(trace).paged(64)
    loads = [json.loads(line)["hit_tokens"] for line in Path(rows).read_text().splitlines()]
    result = [(item["device"] + item["host"], item["storage"]) for item in loads]
    assert result == [(cached * 64, new * 64) for cached, new in expected(paged, there)]
    assert sum(new for _, new in result)


def _has_values(store: Path) -> bool:
    """Whether anything was written beyond what an empty store has."""
    return sum(path.stat().st_size for path in store.glob("segments/*")) > 300_000


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
