"""What the README says of its first command is what this command prints on the real trace.

It takes minutes, too long for the suite. So `python -m tests.bench.headline` keeps what it printed
(docs/measured); here the page and that file are compared, and the replay of the answer is done
again. Replays are deterministic, so digests and figures have to be equal. A change that moves them
needs the command again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.bench import headline
from traces.cli import main

BOUGHT: dict[str, Any] = json.loads(headline.BOUGHT.read_text())


def test_the_page_says_what_was_measured() -> None:
    assert headline.between(headline.PAGE.read_text()) == headline.told(BOUGHT)


def test_what_was_measured_is_the_command_of_the_readme() -> None:
    assert BOUGHT["command"].split()[1:] == headline.command()


def test_a_replay_of_the_answer_gives_its_figures_again(tmp_path: Path) -> None:
    if not headline.TRACE.exists():
        pytest.skip(f"needs the conversation trace at ../shared/traces/{headline.TRACE.name}")
    out = tmp_path / "out.json"
    answer = BOUGHT["answer"]
    machine = ["--hardware", answer["hardware"], "--tp", str(answer["tp"]), "--host-ratio", "0"]
    if answer["host_bytes"]:
        machine[-2:] = ["--host-bytes", str(answer["host_bytes"])]
    if answer["replicas"] > 1:
        machine += ["--replicas", str(answer["replicas"])]
    load = ["--arrivals", "spread", "--seed", "1", "--check", "off"]
    words = [str(headline.TRACE), *headline.command()[2:], *machine, *load]
    assert main(["replay", *words, "--json", str(out)]) == 0
    found = json.loads(out.read_text())
    assert found["digest"] == BOUGHT["digest"]
    assert found["slo"]["attained_rate"] == answer["attained_rate"]
    assert found["latency_s"]["ttft"]["p90"] == answer["ttft_p90_s"]
