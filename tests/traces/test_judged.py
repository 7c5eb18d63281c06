"""`--check every` compares what a replay reports with accounts counted a second time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sim.engine.prefill import Batch, Prefills
from sim.engine.sequence import RequestResult
from traces.cli import main
from traces.replaying import timed as replay_timed
from traces.replaying.account import Account
from traces.replaying.observing.team import Observers, Tally
from traces.replaying.run import Latency

from .rig import Capsys, Patch

BUILT_IN = ["replay", "--limit", "45", "--device-tokens", "8000", "--check", "every"]
HYBRID = [*BUILT_IN, "--components", "full,swa,mamba", "--swa-window", "1024"]


@pytest.mark.one_in(32)
@pytest.mark.parametrize(
    "options",
    [
        BUILT_IN,
        [*BUILT_IN, "--mode", "hits", "--host-ratio", "0"],
        [*HYBRID, "--write-policy", "write_back", "--speed", "3"],
        [*HYBRID, "--mode", "hits"],
    ],
)
def test_a_report_agrees_with_its_events(options: list[str]) -> None:
    assert main(options) == 0


def _from_admission(monkeypatch: Patch) -> None:
    """The time to first token without the queue."""
    record = replay_timed.record_result

    def late(result: Any, account: Account) -> Latency:
        found = record(result, account)
        short = found.ttft_ns - found.queue_ns
        return replace(found, ttft_ns=short)

    monkeypatch.setattr(replay_timed, "record_result", late)


def _queue_in_loads(monkeypatch: Patch) -> None:
    """Waiting for a pass counts as waiting for a load."""
    ended = Prefills.ended

    def early(self: Prefills, batch: Batch, elapsed_ns: int, waited_ns: int) -> None:
        for sequence, _ in batch:
            sequence.load_ns += 1
        ended(self, batch, elapsed_ns, waited_ns)

    monkeypatch.setattr(Prefills, "ended", early)


def _hits_of_the_other_tier(monkeypatch: Patch) -> None:
    admit = Account.admit
    monkeypatch.setattr(
        Account,
        "admit",
        lambda self, index, device, host, storage: admit(self, index, host, device, storage),
    )


def _refusals_miscounted(monkeypatch: Patch) -> None:
    monkeypatch.setattr(
        Observers, "refused", lambda self, backbone: {"no_pages": len(self.tally.evicted)}
    )


def _copies_counted_once(monkeypatch: Patch) -> None:
    def uncounted(self: Tally, event: object, outcomes: object, view: object) -> None:
        """Counts nothing."""

    monkeypatch.setattr(Tally, "on_outcomes", uncounted)


@pytest.mark.one_in(32)
@pytest.mark.parametrize(
    ("spoil", "figure"),
    [
        (_from_admission, "latency_s.ttft.mean"),
        (_queue_in_loads, "ns in passes"),
        (_hits_of_the_other_tier, "whole.hit_tokens.device"),
        (_refusals_miscounted, "refused"),
        (_copies_counted_once, "evicted_pages.device"),
    ],
)
def test_a_wrong_account_ends_the_replay(
    spoil: Any, figure: str, monkeypatch: Patch, capsys: Capsys
) -> None:
    spoil(monkeypatch)
    assert main(BUILT_IN) == 17
    out, err = capsys.readouterr()
    assert "ACCOUNTS: The accounts of a run equal those counted a second time" in err
    assert figure in err
    assert "Latency" not in out


@pytest.mark.one_in(16)
def test_nothing_is_written_where_the_accounts_are_wrong(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    path = tmp_path / "found.json"
    assert main([*BUILT_IN, "--json", str(path)]) == 0
    assert json.loads(path.read_text())["complete"]
    path.unlink()
    _hits_of_the_other_tier(monkeypatch)
    assert main([*BUILT_IN, "--json", str(path)]) == 17
    assert not path.exists()


def test_the_time_before_admission_belongs_to_the_queue() -> None:
    one = RequestResult(0, 1, 1, 0, 0, 1, 5, 25, 40, 40, 0, load_ns=2, compute_ns=9)
    assert one.queue_ns == 24
