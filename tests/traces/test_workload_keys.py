"""The keys of a replay's pages on a real store: what changes them, and what must not."""

import gzip
import json
import random
import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hicache.core.errors import CallerError
from sim.storage.stored import context_of
from traces.cli import main, parse
from traces.replaying.config import opened, resolve
from traces.replaying.options import OPTIONS, ReplayOptions

from .rig import Capsys, Patch, mooncake, tried, write

SMALL = ["--device-pages", "64", "--host-ratio", "2", "--mode", "hits"]
SMALL += ["--prefetch", "wait_complete:0"]


def conversations(seed: int) -> list[dict[str, Any]]:
    """Prompts that share a beginning, with the numbers that any trace begins with."""
    draw, fresh, records = random.Random(seed), 1, []
    for time in range(30):
        history = [0, *range(fresh, fresh + draw.randrange(2, 6))]
        fresh = history[-1] + 1
        records.append(mooncake(history, timestamp=time))
    return records


@pytest.fixture
def trace(tmp_path: Path) -> str:
    return str(write(tmp_path / "trace.jsonl", *conversations(1)))


def key(trace: str | None, tmp_path: Path, *text: str) -> str:
    """What the keys of this replay begin with, and the rank."""
    words = ["replay", *([trace] if trace else []), "--storage", f"file:{tmp_path / 'store'}"]
    _, options = parse([*words, *text])
    assert isinstance(options, ReplayOptions)
    options, read = opened(options)
    settings, _ = resolve(options, read)
    assert settings.storage is not None
    model, size, workload = settings.model, settings.core.page_size, settings.storage.workload
    context = context_of(model, size, "ids", workload, settings.page_ranks)
    return context.digest


RUN = ["--eviction", "slru", "--components", "full,swa,mamba"]
ELSEWHERE = ("storage", "columns")
KEYS = ("model", "kv_dtype", "tp", "page_size", "components")


def test_these_options_change_the_keys_and_no_others(trace: str, tmp_path: Path) -> None:
    plain, result = key(trace, tmp_path, *RUN), []
    for option in OPTIONS:
        words = [] if option.positional or option.name in ELSEWHERE else tried(option)
        with suppress(CallerError):  # an option that this run does not take
            changed = key(trace, tmp_path, *RUN, *words)
            says = option.name in KEYS
            assert says == (changed != plain), f"{option.flag}: expected {says}"
            result += [changed] * says
    assert len({*result}) == len(result) >= 3, "each to keys of its own"


def test_a_trace_is_what_it_says_and_not_where_it_lies(trace: str, tmp_path: Path) -> None:
    plain = key(trace, tmp_path)
    copy = tmp_path / "elsewhere" / "copy"
    copy.parent.mkdir()
    shutil.copy(trace, copy)
    packed = tmp_path / "packed.gz"
    packed.write_bytes(gzip.compress(Path(trace).read_bytes()))
    assert key(str(copy), tmp_path) == key(str(packed), tmp_path) == plain
    other = write(tmp_path / "other.jsonl", *conversations(2))
    longer = write(tmp_path / "longer.jsonl", *conversations(1), mooncake([0], timestamp=99))
    assert len({plain, key(str(other), tmp_path), key(str(longer), tmp_path)}) == 3
    assert key(None, tmp_path) == key(None, tmp_path, "--limit", "9") != plain


def test_how_a_trace_is_read_changes_the_keys(tmp_path: Path) -> None:
    records = [mooncake([0], 100, timestamp=time) for time in range(3)]
    short = str(write(tmp_path / "short.jsonl", *records))
    sizes = {key(short, tmp_path, "--page-size", "64", "--block-size", s) for s in ("128", "256")}
    assert len(sizes) == 2
    log = tmp_path / "log.csv"
    log.write_text("at,in,out,chat\n2026-11-23 10:00:00,600,9,a\n2026-11-23 10:00:01,700,9,a\n")
    columns = ["--columns", "time=at,input=in,output=out,session=chat"]
    full = key(str(log), tmp_path, "--page-size", "64", *columns)
    assert key(str(log), tmp_path, "--page-size", "64", "--columns", columns[1][:-13]) != full


def test_a_trace_from_standard_input_has_no_name_for_its_pages(
    tmp_path: Path, capsys: Capsys, monkeypatch: Patch, trace: str
) -> None:
    with open(trace, "rb") as stream:
        monkeypatch.setattr("sys.stdin", type("In", (), {"buffer": stream}))
        assert main(["replay", "-", *SMALL, "--storage", f"file:{tmp_path / 'store'}"]) == 2
    assert "write it to a file" in capsys.readouterr().err


def test_a_request_has_the_same_keys_however_much_of_its_file_is_read(tmp_path: Path) -> None:
    """Of sessions that are put in the order of their times, too: their unidentified pages."""
    for name, first in (("a", 10.0), ("b", 0.0)):
        requests = [
            {"t": first + turn, "type": "n", "model": "m", "in": 130, "out": 70, "hash_ids": [1, 2]}
            for turn in range(3)
        ]
        document = {"id": name, "block_size": 64, "hash_id_scope": "local", "requests": requests}
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    full, part = (ReplayOptions(trace=str(tmp_path), limit=limit).opened() for limit in (0, 4))
    keys = [
        {paged.key(job, 192).raw for job in paged.jobs}
        for paged in (full.paged(64), part.paged(64))
    ]
    assert [len(key) for key in keys] == [6, 4]
    assert keys[1] < keys[0]
