"""What the README says of its first command is what that command prints on the real trace.

The whole command takes minutes, too long for the suite. So `python -m tests.bench.headline` keeps
what it printed (docs/measured/size.json); here README, docs/sizing.md and that file are compared,
and the two replays of the first sentence are done again. Replays are deterministic, so digests and
figures have to be equal. A change that moves them needs the command again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench import headline
from traces.cli import main

FOUND: dict[str, Any] = {}
if headline.MEASURED.exists():
    FOUND = json.loads(headline.MEASURED.read_text())
pytestmark = pytest.mark.skipif(
    not FOUND, reason="needs docs/measured/size.json: python -m tests.bench.headline FOLDER"
)


@pytest.mark.parametrize("place", range(2), ids=headline.PAGES)
def test_the_pages_say_what_was_measured(place: int) -> None:
    assert headline.between(headline.page(place)) == headline.texts(FOUND)[place]


def test_what_was_measured_is_the_command_of_the_readme() -> None:
    assert FOUND["command"].split()[1:] == headline.command()
    assert headline.command()[0] == "size"


def test_every_load_is_bracketed_and_every_size_has_a_range() -> None:
    for one in FOUND["served"]:
        assert 1 < one["refused"] / one["served"] <= 1.05
    sizes = [one for one in FOUND["points"] if one["label"].endswith(" host")]
    for point in (FOUND["points"][0], *sizes):
        assert len(set(point["replays"]["digests"])) == len(point["replays"]["seeds"]) == 3
    assert not any("Not validated" in one for one in FOUND["estimates"])


@pytest.mark.one_in(8)
@pytest.mark.parametrize("which", ["first", "best"])
def test_a_replay_of_the_headline_gives_its_figures_again(which: str, tmp_path: Path) -> None:
    if not headline.TRACE.exists():
        pytest.skip(f"needs the conversation trace at ../shared/traces/{headline.TRACE.name}")
    named = {one["label"]: one for one in FOUND["points"]}
    point = FOUND["points"][0] if which == "first" else named[FOUND["best"]]
    host = ["--host-ratio", "0"]
    if point["label"].endswith(" host"):
        host = ["--host-bytes", point["label"].removesuffix(" host").replace(" ", "")]
    replays, out = point["replays"], tmp_path / "out.json"
    load = ["--speed", f"{point['speed']:g}", "--spread", "--seed", str(replays["seeds"][0])]
    words = [str(headline.TRACE), *headline.command()[2:], *host, *load, "--check", "off"]
    assert main(["replay", *words, "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    assert found["digest"] == replays["digests"][0]
    assert found["slo"]["attained_rate"] == replays["attained_rate"][0]
    assert found["latency_s"]["ttft"]["p50"] == replays["ttft_p50_s"][0]
    assert found["latency_s"]["ttft"]["p90"] == replays["ttft_p90_s"][0]
