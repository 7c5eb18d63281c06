"""`hicache curve`: what it prints, writes and refuses."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.conversation import conversation
from traces.cli import main
from traces.formats._known import KNOWN
from traces.terminal import progress

from .plain_policies import PLAIN
from .rig import Capsys, Patch, mooncake, write


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """Four conversations in turn over a common first block; the last block is partial."""
    turns = [
        mooncake([0, *(100 * n + k for k in range(1, turn + 2))], 512 * (turn + 2) - 100)
        for turn in range(1, 4)
        for n in range(1, 5)
    ]
    return str(write(tmp_path / "trace.jsonl", *turns))


def test_the_document_has_every_policy_at_every_capacity(trace: str, tmp_path: Path) -> None:
    out = tmp_path / "curve.json"
    given = ["--policies", "all", "--capacities", "2,5,9", "--json", str(out)]
    assert main(["curve", trace, *given]) == 0
    found = json.loads(out.read_text())
    assert found["kind"] == "curve"
    assert found["capacities_tokens"] == [1024, 2560, 4608]
    assert set(found["policies"]) == {"lru", "optimum", "bound", *PLAIN}
    assert all(len(one["hit_tokens"]) == 3 for one in found["policies"].values())
    assert found["policies"]["lru"]["method"] == "stack distances"
    rates = found["policies"]["optimum"]["hit_rates"]
    tokens = found["policies"]["optimum"]["hit_tokens"]
    assert rates == [one / found["input_tokens"] for one in tokens]


def test_all_capacities_are_those_at_which_the_curve_bends(trace: str, tmp_path: Path) -> None:
    out = tmp_path / "curve.json"
    assert main(["curve", trace, "--capacities", "all", "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    assert list(found["policies"]) == ["lru"]
    assert found["capacities_pages"] == sorted(set(found["capacities_pages"]))
    assert found["policies"]["lru"]["hit_tokens"][-1] == found["unbounded_hit_tokens"]


def test_the_report_names_the_working_set_in_bytes_of_the_model(trace: str, capsys: Capsys) -> None:
    sizes = ["--model", "llama-3.1-8b", "--capacities", "1GB,2GB", "--device-pages", "4"]
    assert main(["curve", trace, *sizes, "--by", "depth"]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    printed = " ".join(printed.split())
    for words in ("pages", "optimum", "host, exclusive", "by depth", "LRU hits all of that with"):
        assert words in printed
    assert "1.946 GB" in printed  # 29 pages of 64 MiB


def test_the_picture_has_a_line_for_each_policy(trace: str, tmp_path: Path) -> None:
    out = tmp_path / "curve.svg"
    assert main(["curve", trace, "--policies", "all", "--by", "depth", "-o", str(out)]) == 0
    words = {element.text for element in ElementTree.fromstring(out.read_text()).iter()}
    assert {"lru", "optimum", "unbounded", *PLAIN} <= words


def test_a_long_trace_says_how_far_it_is(trace: str, capsys: Capsys, monkeypatch: Patch) -> None:
    for name, value in (("_MANY_BYTES", 0), ("_MB", 1), ("_LINE_EVERY_S", 0.0)):
        monkeypatch.setattr(progress, name, value)
    with gzip.open(f"{trace}.gz", "wb") as packed:
        packed.write(Path(trace).read_bytes())
    for path in (trace, f"{trace}.gz"):
        assert main(["curve", path, "--policies", "lru"]) == 0
        first, last = capsys.readouterr().err.splitlines()
        assert re.fullmatch(rf"read: [1-9]\d* of {Path(path).stat().st_size} MB", first)
        assert last == "lru: 12 of 12 requests"


def test_a_trace_in_which_nothing_repeats(tmp_path: Path, capsys: Capsys) -> None:
    path = write(tmp_path / "unique.jsonl", *(mooncake([n]) for n in range(5)))
    assert main(["curve", str(path), "--policies", "all", "--by", "depth"]) == 0
    assert "so no cache can hit anything" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--capacities", "1GB"], "expected pages, found bytes (1GB); add --model"),
        (["--capacities", "0"], "expected at least one page, found 0"),
        (["--capacities", "2,x"], "expected a number such as 1M, 512K or 64Ki, found 'x'"),
        (["--capacities", "all", "--policies", "fifo"], "expected lru alone"),
        (["--policies", "lru,mru"], "found 'mru'"),
        (["--first", "12"], "expected a request of the trace, which has 12, found 12"),
        (["--first", "3", "--steady"], "not allowed with"),
        (["--by", "tenant"], "expected a trace that names the tenant of its requests"),
        (["--by", "session"], "expected a trace that names the session of its requests"),
        (["--kv-dtype", "fp8"], "--kv-dtype needs --model"),
        (["--page-size", "100"], "expected a page size that divides its 512-token blocks"),
        (["-o", "curve.png"], "expected a name that ends in .svg, found curve.png"),
    ],
)
def test_bad_options_are_refused_in_one_line(
    trace: str, options: list[str], said: str, capsys: Capsys
) -> None:
    assert main(["curve", trace, *options]) == 2
    printed = capsys.readouterr()
    assert said in printed.err
    assert not printed.out


def test_a_trace_of_lengths_alone_is_refused(tmp_path: Path, capsys: Capsys) -> None:
    path = tmp_path / "azure.csv"
    path.write_text(KNOWN["azure"].SAMPLE)
    assert main(["curve", str(path)]) == 2
    said = capsys.readouterr().err
    assert "hit rates: expected a trace that says which prompts begin alike" in said


def test_a_document_on_standard_output_is_alone_there(trace: str, capsys: Capsys) -> None:
    assert main(["curve", trace, "--json", "-"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["kind"] == "curve"
    assert "In words" in printed.err


def test_the_conversation_trace_at_the_size_of_two_tiers(tmp_path: Path) -> None:
    """Published: device 4,362,064, host 17,139,428, storage 5,536,576 tokens of the second half."""
    out = tmp_path / "curve.json"
    sizes = ["--steady", "--device-pages", "2818", "--capacities", "22550", "--policies", "bound"]
    assert main(["curve", str(conversation()), *sizes, "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    tiers = found["tiers"]["inclusive"]
    assert tiers["device_hit_tokens"] == [4_362_064]
    assert tiers["host_hit_tokens"] == [17_139_428]
    both = 4_362_064 + 17_139_428
    assert found["unbounded_hit_tokens"] == both + 5_536_576
    assert found["policies"]["lru"]["hit_tokens"] == [both]
