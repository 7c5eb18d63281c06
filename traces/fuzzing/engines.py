"""Engines, and caches of the user, as targets: their sequences are played in a process of their own
(see session), and failures are shrunk, compared with those that are known, and told.

invariants/fuzz/known/ENGINE.json has a row for each failure that is known:

    report        where it was reported, or what it is; text: one sentence
    law, kind     the law, and what the failure's kind begins with behind it; empty and without
                  functions it is the law alone
    functions     that must run in the shrunk sequence, as file:function; a file may be its end
    first, last   the releases that have it; last is null while it is not mended
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from hicache.core.errors import CallerError, unknown
from invariants.fuzz.laws import LAWS
from invariants.fuzz.sequence import loads

from ..terminal.streams import command_line
from .results import Failure, Result
from .session import TARGETS, Answer, Ended, Engine, Session

CODE = 11  # exit code of a failure
BATCH = 8  # sequences for which the process is asked at a time
HANG_S = 60.0  # without a sequence that ends
SHRINK_S = 60.0
PLAY_S = 120.0  # of one sequence, with all that is told of it
APART_S = 3.0  # for an operation, or a sequence, that may not end
MOST_ENDED = 20  # times that the process is started again
MOST_ENTRIES = 20  # that are told
ENDS = ("HANG", "DEATH")  # laws whose failure ends the process


def configured(session: Session, given: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The settings that are not drawn. Raises CallerError for what the engine does not take."""
    name, takes, found = session.engine.name, session.opened["takes"], {}
    for key, text in given:
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        if key not in takes:
            raise unknown(f"setting of {name}", key, list(takes))
        if takes[key] and value not in takes[key]:
            raise unknown(f"{key} of {name}", str(value), [str(each) for each in takes[key]])
        if not takes[key] and (type(value) is not int or value < 0):
            raise CallerError(f"{name}: {key}: expected a whole number, found {value!r}")
        found[key] = value
    return found


def known(name: str) -> list[dict[str, Any]]:
    """The known failures of an engine."""
    path = TARGETS.parent / "known" / f"{name}.json"
    rows: list[dict[str, Any]] = json.loads(path.read_text("utf-8")) if path.exists() else []
    return rows


def match(
    rows: Sequence[dict[str, Any]], engine: Engine, failure: Answer, ran: Sequence[Sequence[str]]
) -> dict[str, Any] | None:
    """The row that a failure is, or None. ran: file and name of each function that did."""

    def has_run(name: str) -> bool:
        file, _, function = name.rpartition(":")
        return any(path.endswith(file) and each == function for path, each in ran)

    at = engine.releases.index
    for row in rows:
        kind = failure["kind"][len(row["law"]) :].strip()
        fits = kind.startswith(row["kind"]) if row["kind"] or row["functions"] else not kind
        has = at(row["first"]) <= at(engine.release) <= at(row["last"] or engine.releases[-1])
        if row["law"] == failure["code"] and fits and has and all(map(has_run, row["functions"])):
            return row
    return None


@dataclass
class Process:
    """An engine as a target. name: as the user gave it. fixed: what is not drawn. ended: how often
    its process was started again."""

    session: Session
    name: str
    operations: int = 0
    fixed: Mapping[str, Any] | None = None
    output: str = ""
    ended: int = 0
    reaches: Sequence[str] = ()

    def results(self, seeds: Iterator[int]) -> Generator[Result]:
        while batch := [*islice(seeds, BATCH)]:
            while batch:
                played = self._played(batch[0], len(batch))
                batch = batch[len(played) :]
                yield from played

    def _played(self, seed: int, count: int) -> list[Result]:
        """The results of sequences, up to one that ends the process."""
        request: Answer = {"seed": seed, "length": self.operations, "fixed": dict(self.fixed or {})}
        found: list[Result] = []
        try:
            for said in self.session.answers(request | {"do": "fuzz", "count": count}, HANG_S):
                failure = self._failure(said["tape"], said["failure"]) if said["failure"] else None
                counted = said["operations"], 0, said["busy_ns"], said["counts"]
                found.append(Result(said["seed"], *counted, failure))
        except Ended as ended:
            self.ended += 1
            if self.ended > MOST_ENDED:
                raise CallerError(f"{self.name}: ended too often; no more is played") from None
            request |= {"do": "draw", "seed": seed + len(found)}
            tape = ""
            with suppress(Ended):
                for said in self.session.answers(request, APART_S):
                    tape = said["tape"]
            at = len(loads(tape).entries)
            failure = self._failure(tape, ended.failure(at))
            found.append(Result(request["seed"], at, 0, 0, {}, failure))
        return found

    def named(self, failure: Failure) -> Failure:
        return self.told(failure.sequence, dict(failure.raw))

    def shrunk(self, failure: Failure) -> Failure:
        ends = failure.raw["code"] in ENDS
        best: Answer = {"tape": failure.sequence, "failure": dict(failure.raw)}
        request = best | {"do": "shrink", "seconds": APART_S if ends else 0}
        with suppress(Ended):  # it was not shrunk to the end
            for smaller in self.session.answers(request, SHRINK_S, whole=True):
                best = smaller
        text = {"text": failure.raw["text"]} if ends else {}
        return self.told(best["tape"], best["failure"] | text)

    def told(self, tape: str, failure: Answer, path: str = "") -> Failure:
        """A failure with what led to it, the row that it is, and a script that repeats it. path: of
        the sequence, if it has a file already."""
        about: Answer = {"functions": [], "answers": [], "script": ""}
        engine = self.session.engine
        if failure["code"] not in ENDS:
            head = f"{engine.title}: {failure['text']}\n\n{failure['kind']}."
            with suppress(Ended):
                about = self.session.ask({"do": "explain", "tape": tape, "head": head}, PLAY_S)
        ran = [(line[0], line[2]) for line in failure["lines"]] + about["functions"]
        row, script = match(known(engine.name), engine, failure, ran), about["script"]
        found = replace(self._failure(tape, failure), known=row, script="" if path else script)
        return replace(found, text=self._text(found, path or self._path(found), about["answers"]))

    def replay(self, path: str, text: str) -> tuple[Failure | None, dict[str, Any]]:
        """Plays one sequence. Returns its failure and what its document has besides."""
        entries = len(loads(text, path).entries)
        try:
            said = self.session.ask({"do": "play", "tape": text}, PLAY_S)
        except Ended as ended:
            said = {"failure": ended.failure(entries), "unfit": 0, "counts": {}}
        if said["unfit"]:
            raise CallerError(f"{path}: {self.name} takes no such configuration")
        failure = self.told(text, said["failure"], path) if said["failure"] else None
        return failure, {"events": 0, "counts": said["counts"], "entries": entries}

    def _command(self, *words: str) -> str:
        source = self.session.engine.source
        more = ["--source", source] if source else []
        return command_line(["hicache", "fuzz", self.name, *more, *words])

    def _failure(self, tape: str, failure: Answer) -> Failure:
        """One that is not worked up yet."""
        found = Failure(CODE, failure["kind"], "", failure["at"], tape, raw=failure)
        return replace(found, text=self._text(found, self._path(found)))

    def _path(self, failure: Failure) -> str:
        return str(Path(self.output) / f"{failure.name}.jsonl")

    def _text(self, found: Failure, path: str, answers: Sequence[str] = ()) -> str:
        law = found.raw["code"]
        lines = [f"{law}: {LAWS.get(law, 'The harness failed.')}", f"    {found.raw['text']}"]
        if found.known:
            lines.append(f"known: {found.known['report']}: {found.known['text']}")
        if found.raw["lines"]:
            lines.append("lines of the engine, the innermost first:")
            lines += ["    {}:{} {}: {}".format(*line) for line in found.raw["lines"]]
        if answers:
            told = zip(map(str, loads(found.sequence).entries), answers, strict=False)
            rows = [f"    {entry}" + f" -> {answer}" * bool(answer) for entry, answer in told]
            lines += ["the last operations, and what was answered:", *rows[-MOST_ENTRIES:]]
        if found.script:
            script = str(Path(path).with_suffix(".py"))
            says = self.session.script_fails(found.script, PLAY_S).rpartition("\n")[2]
            lines.append(f"its own calls: {self._command('--replay', script)}")
            lines.append(f"    {says or 'no error'}")
        return "\n".join([*lines, f"replay: {self._command('--replay', path)}"])
