"""What the README says of its first command, and docs/sizing.md of its study, is what these
commands print on the real trace.

Each takes minutes, too long for the suite. So `python -m tests.bench.headline` keeps what they
printed (docs/measured); here the pages and those files are compared, and the replays of the first
sentences are done again. Replays are deterministic, so digests and figures have to be equal. A
change that moves them needs the commands again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench import headline
from traces.cli import main

FOUND: dict[str, Any] = json.loads(headline.MEASURED.read_text())
BOUGHT: dict[str, Any] = json.loads(headline.BOUGHT.read_text())


@pytest.mark.parametrize("place", range(2), ids=headline.PAGES)
def test_the_pages_say_what_was_measured(place: int) -> None:
    assert headline.between(headline.page(place)) == headline.texts(BOUGHT, FOUND)[place]


def test_what_was_measured_is_the_command_of_the_readme() -> None:
    assert BOUGHT["command"].split()[1:] == headline.command(0)
    assert FOUND["command"].split()[1:] == headline.command(1)


def test_every_load_is_bracketed_and_every_size_has_a_range() -> None:
    for one in FOUND["served"]:
        assert 1 < one["refused"] / one["served"] <= 1.05
    sizes = [one for one in FOUND["points"] if one["label"].endswith(" host")]
    for point in (FOUND["points"][0], *sizes):
        assert len(set(point["replays"]["digests"])) == len(point["replays"]["seeds"]) == 3
    assert not any("Not validated" in one for one in FOUND["estimates"])


@pytest.mark.one_in(64)
@pytest.mark.parametrize("which", ["first", "best", "bought"])
def test_a_replay_of_the_headline_gives_its_figures_again(which: str, tmp_path: Path) -> None:
    if not headline.TRACE.exists():
        pytest.skip(f"needs the conversation trace at ../shared/traces/{headline.TRACE.name}")
    if which == "bought":
        _replay_what_was_bought(tmp_path / "out.json")
        return
    named = {one["label"]: one for one in FOUND["points"]}
    point = FOUND["points"][0] if which == "first" else named[FOUND["best"]]
    host = ["--host-ratio", "0"]
    if point["label"].endswith(" host"):
        host = ["--host-bytes", point["label"].removesuffix(" host").replace(" ", "")]
    replays, out = point["replays"], tmp_path / "out.json"
    load = ["--speed", f"{point['speed']:g}", "--spread", "--seed", str(replays["seeds"][0])]
    words = [str(headline.TRACE), *headline.command(1)[2:], *host, *load, "--check", "off"]
    assert main(["replay", *words, "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    assert found["digest"] == replays["digests"][0]
    assert found["slo"]["attained_rate"] == replays["attained_rate"][0]
    assert found["latency_s"]["ttft"]["p50"] == replays["ttft_p50_s"][0]
    assert found["latency_s"]["ttft"]["p90"] == replays["ttft_p90_s"][0]


def _replay_what_was_bought(out: Path) -> None:
    answer = BOUGHT["answer"]
    machine = ["--hardware", answer["hardware"], "--tp", str(answer["tp"]), "--host-ratio", "0"]
    if answer["host_bytes"]:
        machine[-2:] = ["--host-bytes", str(answer["host_bytes"])]
    if answer["replicas"] > 1:
        machine += ["--replicas", str(answer["replicas"])]
    load = ["--spread", "--seed", "1", "--check", "off"]
    words = [str(headline.TRACE), *headline.command(0)[2:], *machine, *load]
    assert main(["replay", *words, "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    assert found["digest"] == BOUGHT["digest"]
    assert found["slo"]["attained_rate"] == answer["attained_rate"]
    assert found["latency_s"]["ttft"]["p90"] == answer["ttft_p90_s"]
