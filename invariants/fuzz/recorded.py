"""A peer that answers from a recording: what an engine once did, without the engine.

    line 1      {"recording": "hicache-peer", "config": {...}, "can": {...}}
    then        {"verb": "admit", "given": [3], "gave": [8, 0], ...}, one per call

Only what the laws read is kept: the answers of the verbs, the state of the pools after each, and
the error that a verb or a law of the engine's own raised. It plays exactly the tape that was
recorded; any other call breaks the law CONTRACT.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from invariants.fuzz import target as base
from invariants.fuzz.records import Job
from invariants.fuzz.script import Recorder
from invariants.fuzz.target import (
    Broken,
    Can,
    Config,
    Hit,
    Holding,
    Peer,
    PoolState,
    Transfer,
    need,
)

FORMAT = "hicache-peer"
_VERBS = (
    *("match", "admit", "prefill", "decode", "finish", "retract", "evict", "arrive", "step"),
    *(
        "abort",
        "reset",
        "transfers",
        "answer",
        "poll",
        "self_check",
        "laws",
        "fits",
        "let_go",
        "cool",
    ),
)
_NAMES = {kind.__name__: kind for kind in Transfer.__subclasses__()}


def recording(kind: type[Peer], lines: list[str]) -> type[Peer]:
    """The peer, whose calls are written to `lines` while it plays."""

    def record(verb: str) -> Callable[..., Any]:
        real = getattr(kind, verb)

        def call(self: Any, *given: Any) -> Any:
            if self.inside:  # one verb that calls another
                return real(self, *given)
            self.inside = True
            row: dict[str, Any] = {"verb": verb, "given": [_plain(self, one) for one in given]}
            try:
                gave = real(self, *given)
                row["gave"] = _plain(self, gave)
                return gave
            except Broken as error:
                row["broken"] = [error.law, error.text, error.kind]
                raise
            except Exception as error:
                row["raised"] = f"{type(error).__name__}: {error}"
                raise
            finally:
                self.inside = False
                jobs = [one for one in given if isinstance(one, Job)]
                row["computed"] = [one.computed for one in jobs]
                lines.append(json.dumps(row))

        return call

    def init(self: Peer, config: Config, recorder: Recorder) -> None:
        kind.__init__(self, config, recorder)
        self.seen_transfers, self.inside = {}, False  # type: ignore[attr-defined]
        head = {"recording": FORMAT, "config": config, "can": self.can._asdict()}
        lines.append(json.dumps(head))

    def pools(self: Peer) -> Sequence[PoolState]:
        found = kind.pools(self)
        lines.append(
            json.dumps({"verb": "pools", "given": [], "gave": [_pool(one) for one in found]})
        )
        return found

    verbs = {verb: record(verb) for verb in _VERBS}
    return type(kind.__name__, (kind,), {**verbs, "pools": pools, "__init__": init})


def _plain(peer: Peer, value: Any) -> Any:
    if isinstance(value, Job):
        return value.id
    if isinstance(value, Transfer):
        known: dict[int, tuple[int, Transfer]] = peer.seen_transfers  # type: ignore[attr-defined]
        number, _ = known.setdefault(id(value), (len(known), value))
        return [type(value).__name__, number]
    if isinstance(value, (list, tuple)):
        return [_plain(peer, one) for one in value]
    return value


def _pool(one: PoolState) -> dict[str, Any]:
    """Only the contents that a holder names."""
    contents = one.contents
    return {
        "name": one.name,
        "page": one.page,
        "slots": one.slots,
        "free": one.free,
        "shares": one.shares,
        "counted": one.counted,
        "protected": one.protected,
        "held": [
            [
                held.owner,
                held.slots.tolist(),
                None if held.expected is None else held.expected.tolist(),
                None if contents is None else contents[held.slots].tolist(),
            ]
            for held in one.holdings
        ],
    }


def _pool_of(row: dict[str, Any]) -> PoolState:
    holdings: list[Holding] = []
    written: dict[int, int] = {}
    for owner, slots, expected, contents in row.pop("held"):
        known = None if expected is None else np.array(expected, np.int64)
        holdings.append(Holding(owner, np.array(slots, np.int64), known))
        written.update(zip(slots, contents or (), strict=False))
    contents = None
    if written:
        contents = np.full(1 + max(written), base.UNWRITTEN, np.int64)
        contents[list(written)] = list(written.values())
    return PoolState(**row, holdings=holdings, contents=contents)


def recorded(text: str) -> type[Peer]:
    """The peer that a recording holds."""
    rows = [json.loads(line) for line in text.splitlines()]
    config, able = rows[0]["config"], rows[0]["can"]
    able["evicts"] = tuple(able["evicts"])

    class Recorded(Peer):
        """Answers from the recording."""

        can = Can(**able)

        def __init__(self, config: Config, recorder: Recorder) -> None:
            super().__init__(config, recorder)
            self.left: Iterator[dict[str, Any]] = iter(rows[1:])
            self.moving: dict[int, Transfer] = {}

        def pools(self) -> Sequence[PoolState]:
            return [_pool_of(dict(one)) for one in self.next("pools", ())]

        def next(self, verb: str, given: Sequence[Any]) -> Any:
            row = next(self.left, {"verb": "nothing", "given": []})
            said = [self.named(one) for one in given]
            text = f"expected {row['verb']}{row['given']} of the recording, found {verb}{said}"
            need((row["verb"], row["given"]) == (verb, said), "CONTRACT", text)
            if "broken" in row:
                law, text, kind = row["broken"]
                raise Broken(law, text, kind.removeprefix(law).strip())
            if "raised" in row:
                raise RuntimeError(row["raised"])
            for job, computed in zip(_jobs(given), row.get("computed", ()), strict=True):
                job.computed = computed
            return row["gave"]

        def named(self, value: Any) -> Any:
            if isinstance(value, Job):
                return value.id
            if isinstance(value, Transfer):
                return value.what
            return list(value) if isinstance(value, (list, tuple)) else value

    def verb(name: str) -> Callable[..., Any]:
        def call(self: Any, *given: Any) -> Any:
            gave = self.next(name, given)
            if name == "transfers":
                return [_NAMES[kind]([kind, number]) for kind, number in gave]
            if name in ("match", "admit"):
                return None if gave is None else Hit(*gave)
            return gave

        return call

    for name in _VERBS:
        setattr(Recorded, name, verb(name))
    Recorded.config_of_recording = config  # type: ignore[attr-defined]
    return Recorded


def _jobs(given: Sequence[Any]) -> list[Job]:
    return [one for one in given if isinstance(one, Job)]
