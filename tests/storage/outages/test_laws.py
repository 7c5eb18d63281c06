"""The laws of outages hold in drawn histories, and each finds the mistake that it is for."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hicache.storage import breaker as module
from hicache.storage.base import Status
from hicache.storage.breaker import Breaker
from hicache.storage.health import Health

from . import laws

HISTORIES = 300


def test_no_loss_is_silent_and_no_notice_is_needless(tmp_path: Path) -> None:
    met = laws.play_many(HISTORIES, 1, tmp_path)
    assert min(met[name] for name in ("outages", "write_outages", *laws.LOCAL)) > 10, met
    assert met["lookups_unanswered"] > 1000


def _first_failure(self: Health, failures: int, patience_s: float) -> bool:
    return self._failures >= failures


MISTAKES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "look-ups without an answer are not counted": lambda m: m.setattr(
        Breaker, "_count", _without("lookups_unanswered", Breaker._count)
    ),
    "refused writes are not counted": lambda m: m.setattr(
        Breaker, "_count", _without("writes_refused", Breaker._count)
    ),
    "refused writes count for the whole store": lambda m: m.setattr(
        Breaker, "_gone", Breaker._go_out
    ),
    "a time-out is one failure like others": lambda m: m.setattr(Health, "is_over", _first_failure),
    "the pause does not grow": lambda m: m.setattr(
        Health, "failed_probe", lambda self, now: _again(self, now)
    ),
    "the pause grows without an end": lambda m: m.setattr(Health, "failed_probe", _longer),
    "what is out is asked": lambda m: m.setattr(Breaker, "_may_ask", lambda self, call: True),
    "it never comes back": lambda m: m.setattr(Breaker, "_back", lambda self: None),
    "answers do not end a run of slow failures": lambda m: m.setattr(
        Health, "answered", lambda self: setattr(self, "_failures", 0)
    ),
    "probes that hung are lost for ever": lambda m: m.setattr(
        Breaker, "_hung_probes", _Highest(), raising=False
    ),
    "there are notices for each failure": lambda m: m.setattr(Breaker, "_refuses", _twice),
    "a full store is well": lambda m: m.setattr(module, "_LOST", (Status.FAILED,)),
}


class _Highest:
    """A number that never goes down."""

    def __get__(self, of: Any, kind: type) -> int:
        return int(vars(of).get("highest", 0))

    def __set__(self, of: Any, number: int) -> None:
        vars(of)["highest"] = max(number, vars(of).get("highest", 0))


def _without(name: str, count: Callable[..., None]) -> Callable[..., None]:
    def counted(self: Breaker, *arguments: Any) -> None:
        before = getattr(self._losses, name)
        count(self, *arguments)
        setattr(self._losses, name, before)

    return counted


def _again(self: Health, now: float) -> None:
    self._probing = False
    self._probe_at = now + self._pause


def _longer(self: Health, now: float) -> None:
    self._probing = False
    self._pause *= 2
    self._probe_at = now + self._pause


_REFUSES = Breaker._refuses


def _twice(self: Breaker) -> None:
    _REFUSES(self)
    _REFUSES(self)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_laws_find_mistakes(
    mistake: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    MISTAKES[mistake](monkeypatch)
    with pytest.raises(laws.Broken):
        laws.play_many(HISTORIES, 1, tmp_path)
