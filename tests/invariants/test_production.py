"""Checks in production: a core that decides wrongly is detached once, and the file of its events
tells the same again."""

import json
import sys
from dataclasses import replace
from itertools import count, pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hicache import registry
from hicache.core import core as core_module
from hicache.core.config import Config
from hicache.core.core import Core
from hicache.core.errors import CallerError, Detached
from hicache.core.events import AdmitWanted, Arrived, Finished, MatchWanted, PrefillDone
from hicache.runtime.driver import CheckOptions, ImmediateExecutor, driver_of
from invariants import production
from invariants.fuzz.hicache import play
from invariants.fuzz.hicache.draw import sample_config
from invariants.production import Production, replay
from traces.cli import main

CONFIG = Config(4, (40,), (40,))


class Served:
    """A core that serves prompts of four pages. now: its clock. notices: what it tells."""

    def __init__(self, folder: Path, config: Config = CONFIG) -> None:
        self.now, self.notices, self.number = 0.0, list[str](), 0
        check = CheckOptions("sampled", str(folder), lambda: self.now, self.notices.append)
        self.driver = driver_of(Core(config), ImmediateExecutor(), check)

    def prompts(self, prompts: int, seconds: float = 0.0) -> None:
        """seconds: between two events."""
        for _ in range(prompts):
            self.number += 1
            prompt = Arrived.from_tokens(self.number, [self.number % 20] * 16, 4)
            for event in (prompt, AdmitWanted(self.number, 16), None, Finished(*prompt[:3])):
                self.now += seconds
                last = max([0, *self.driver.core.view.transfers])
                self.driver.feed(PrefillDone(last) if event is None else event)
            self.driver.settle()


def path_in(notice: str) -> str:
    return notice.splitlines()[0].partition("hicache fuzz --replay ")[2]


@pytest.fixture(autouse=True)
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """A window follows the other."""
    monkeypatch.setattr(production, "SHARE", 1e9)


def test_checks_take_their_share_of_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if a comparison of one event takes as long as a hundred events."""
    monkeypatch.setattr(production, "SHARE", 0.05)
    served, began = Served(tmp_path), list[float]()
    real, state = production.DifferentialChecker.on_outcomes, production._state_of

    def on_outcomes(*args: Any) -> None:
        served.now += 1.0
        real(*args)

    def state_of(view: Any) -> str:
        began.append(served.now)
        served.now += 7.0
        return state(view)

    monkeypatch.setattr(production.DifferentialChecker, "on_outcomes", on_outcomes)
    monkeypatch.setattr(production, "_state_of", state_of)
    served.prompts(4_000, 0.5)
    spent_s, window_s = served.driver.check.spent_s, 7.0 + production.WINDOW
    assert len(began) > 2
    assert spent_s == len(began) * window_s
    assert min(b - a for a, b in pairwise(began)) >= window_s / 0.05
    assert max(b - a for a, b in pairwise(began[1:])) < window_s / 0.05 + 50
    assert spent_s <= 0.05 * served.now
    assert not served.notices


BUGS = {"order": "page", "crash": "RuntimeError", "lock": "available"}


def plant(monkeypatch: pytest.MonkeyPatch, bug: str) -> None:
    """Of the core: it evicts in another order, fails, or keeps the locks of a transfer."""
    close = core_module.close_transfer

    def fail(*_: Any) -> None:
        raise RuntimeError("broken")

    def keep(state: Any, transfer: Any) -> None:
        transfer.receipt = None
        close(state, transfer)

    if bug == "order":
        lru = "hicache.core.eviction_policies.Lru.rank"
        monkeypatch.setattr(lru, lambda _, node, component: -node.last_use[component])
    elif bug == "crash":
        monkeypatch.setattr("hicache.core.eviction.next_victim", fail)
    else:
        monkeypatch.setattr(core_module, "close_transfer", keep)


@pytest.mark.parametrize("bug", [*BUGS])
def test_a_failed_check_is_told_once_and_again_by_its_file(
    bug: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    served = Served(tmp_path)
    served.prompts(8)
    plant(monkeypatch, bug)
    with pytest.raises(Detached):
        served.prompts(30)
    monkeypatch.undo()
    with pytest.raises(Detached):
        served.driver.feed(MatchWanted(1))
    first, *lines = served.notices.pop().splitlines()
    assert not served.notices
    assert BUGS[bug] in first + lines[0]
    assert any(line.startswith("op ") for line in lines)
    [path] = tmp_path.iterdir()
    assert main(["fuzz", "--replay", str(path)]) == (10 if bug == "crash" else 11)
    printed = capsys.readouterr().out
    assert printed.startswith("\n".join(lines[: lines.index("story:")]))
    kind = first.partition("any more: ")[2].partition("; ")[0]
    assert printed.rstrip().endswith(kind)
    path.write_text("\n".join(path.read_text().splitlines()[:-2]))
    assert main(["fuzz", "--replay", str(path)]) == 2


def test_what_went_wrong_between_windows_is_found_in_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = Served(tmp_path)
    served.prompts(8)
    monkeypatch.setattr(production, "SHARE", -1)  # no window begins
    served.prompts(30, 1.0)
    plant(monkeypatch, "lock")
    served.prompts(3, 1.0)
    assert not served.notices
    monkeypatch.setattr(production, "SHARE", 1e9)
    with pytest.raises(Detached):
        served.prompts(1)
    assert "CoreBug" in served.notices[0]
    kind, text, at, events = replay("file", Path(path_in(served.notices[0])).read_text())
    assert kind == "SPEC available pages"
    assert "available device pages of full" in text
    assert 150 < at < events


@pytest.mark.parametrize("cause", ["policy mine", "KeyError"])
def test_what_the_specification_cannot_read_is_validated(
    cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(view: Any) -> str:
        raise KeyError("component")

    silent = SimpleNamespace(name="mine", whole_path=False, rank=lambda *_: 0)
    registry.add(registry.EVICTION_POLICIES, "mine", lambda: silent)
    try:
        config = replace(CONFIG, eviction_policy="mine") if "mine" in cause else CONFIG
        if cause == "KeyError":
            monkeypatch.setattr(production, "_state_of", fail)
        served = Served(tmp_path, config)
        served.prompts(8)
        plant(monkeypatch, "lock")
        with pytest.raises(Detached):
            served.prompts(3)
    finally:
        registry.remove(registry.EVICTION_POLICIES, "mine")
    row, failure = served.notices
    assert cause in row
    assert "\n" not in row
    assert "CoreBug; no events were kept" in failure.splitlines()[0]


@pytest.mark.parametrize("seed", [3, 8, 19, 34])
def test_events_from_any_state_on_are_compared_again(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is wrong with them but what is changed in the file."""
    monkeypatch.setattr(production, "WINDOW", 7)
    clock, notices, made = count(0, 2), list[str](), list[Production]()

    def follow(player: Any) -> None:
        core, now = player.core, lambda: float(next(clock))
        made.append(Production(core.view, core.validate, str(tmp_path), now, notices.append))
        player.observe(made[0])

    played = play.generate(sample_config(seed), 80, "off", follow=follow)
    assert played.failure is None, played.failure
    made[0].report(ValueError("written"))
    lines = Path(path_in(notices[0])).read_text().splitlines()
    events, start, last = len(lines) - 3, json.loads(lines[1]), json.loads(lines[-3])
    assert start["tick"], "it begins with an empty cache"

    def again(at: int, line: Any) -> Any:
        return replay("file", "\n".join([*lines[:at], json.dumps(line), *lines[at + 1 :]]))

    assert again(1, start) == ("ValueError", "written", events, events)
    start["tick"] += 1
    assert again(1, start)[0].startswith("SPEC ")
    last[3][0][0] += 1
    assert again(len(lines) - 3, last)[::2] == ("SPEC free pages", events - 1)


def test_a_wrong_option_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refusal(how: str, folder: str) -> str:
        with pytest.raises(CallerError) as refused:
            driver_of(Core(CONFIG), ImmediateExecutor(), CheckOptions(how, folder, float, print))
        return str(refused.value)

    assert refusal("often", "") == "check: expected sampled, found 'often'"
    assert refusal("sampled", "no folder") == "check_dir: expected a folder, found 'no folder'"
    monkeypatch.setitem(sys.modules, "invariants.production", None)
    assert refusal("sampled", "").startswith("check: expected the package invariants, found: ")
