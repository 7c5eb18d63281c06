"""Engines, and caches of the user, as targets: their sequences are played in a process of their own
(see session), and failures are shrunk, compared with those that are known, and told.

invariants/fuzz/known/ENGINE.json has a row for each failure that is known:

    report        where it was reported, or what it is; text: one sentence
    law, kind     the law, and what the failure's kind begins with behind it; empty and without
                  functions it is the law alone
    functions     that must run in the shrunk sequence, as file:function; a file may be its end
    first, last   the releases that have it; last is null while it is not mended
"""

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


def configured(session: Session, texts: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """The settings that are not drawn. Raises CallerError for what the engine does not take."""
    name, takes, result = session.engine.name, session.opened["takes"], {}
    for key, text in texts:
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
        result[key] = value
    return result


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
        results: list[Result] = []
        try:
            for answer in self.session.answers(request | {"do": "fuzz", "count": count}, HANG_S):
                raw = answer["failure"]
                failure = self._failure(answer["sequence"], raw) if raw else None
                counted = answer["operations"], 0, answer["busy_ns"], answer["counts"]
                results.append(Result(answer["seed"], *counted, failure))
        except Ended as ended:
            self.ended += 1
            if self.ended > MOST_ENDED:
                raise CallerError(f"{self.name}: ended too often; no more is played") from None
            request |= {"do": "draw", "seed": seed + len(results)}
            sequence = ""
            with suppress(Ended):
                for message in self.session.answers(request, APART_S):
                    sequence = message["sequence"]
            at = len(loads(sequence).entries)
            failure = self._failure(sequence, ended.failure(at))
            results.append(Result(request["seed"], at, 0, 0, {}, failure))
        return results

    def named(self, failure: Failure) -> Failure:
        return self.failure_of(failure.sequence, dict(failure.raw))

    def shrunk(self, failure: Failure) -> Failure:
        ends = failure.raw["code"] in ENDS
        best: Answer = {"sequence": failure.sequence, "failure": dict(failure.raw)}
        request = best | {"do": "shrink", "seconds": APART_S if ends else 0}
        with suppress(Ended):  # it was not shrunk to the end
            for smaller in self.session.answers(request, SHRINK_S, full=True):
                best = smaller
        text = {"text": failure.raw["text"]} if ends else {}
        return self.failure_of(best["sequence"], best["failure"] | text)

    def failure_of(self, sequence: str, failure: Answer, path: str = "") -> Failure:
        """A failure with what led to it, the row that it is, and a script that repeats it. path: of
        the sequence, if it has a file already."""
        about: Answer = {"functions": [], "answers": [], "script": ""}
        engine = self.session.engine
        if failure["code"] not in ENDS:
            head = f"{engine.title}: {failure['text']}\n\n{failure['kind']}."
            request = {"do": "explain", "sequence": sequence, "head": head}
            with suppress(Ended):
                about = self.session.ask(request, PLAY_S)
        ran = [(line[0], line[2]) for line in failure["lines"]] + about["functions"]
        row, script = match(known(engine.name), engine, failure, ran), about["script"]
        result = replace(self._failure(sequence, failure), known=row, script="" if path else script)
        text = self._text(result, path or self._path(result), about["answers"])
        return replace(result, text=text)

    def replay(self, path: str, text: str) -> tuple[Failure | None, dict[str, Any]]:
        """Plays one sequence. Returns its failure and what its document has besides."""
        entries = len(loads(text, path).entries)
        try:
            message = self.session.ask({"do": "play", "sequence": text}, PLAY_S)
        except Ended as ended:
            message = {"failure": ended.failure(entries), "unfit": 0, "counts": {}}
        if message["unfit"]:
            raise CallerError(f"{path}: {self.name} takes no such configuration")
        failure = self.failure_of(text, message["failure"], path) if message["failure"] else None
        return failure, {"events": 0, "counts": message["counts"], "entries": entries}

    def _command(self, *words: str) -> str:
        source = self.session.engine.source
        more = ["--source", source] if source else []
        return command_line(["hicache", "fuzz", self.name, *more, *words])

    def _failure(self, sequence: str, failure: Answer) -> Failure:
        """One that is not worked up yet."""
        result = Failure(CODE, failure["kind"], "", failure["at"], sequence, raw=failure)
        return replace(result, text=self._text(result, self._path(result)))

    def _path(self, failure: Failure) -> str:
        return str(Path(self.output) / f"{failure.name}.jsonl")

    def _text(self, failure: Failure, path: str, answers: Sequence[str] = ()) -> str:
        law = failure.raw["code"]
        lines = [f"{law}: {LAWS.get(law, 'The harness failed.')}", f"    {failure.raw['text']}"]
        if failure.known:
            lines.append(f"known: {failure.known['report']}: {failure.known['text']}")
        if failure.raw["lines"]:
            lines.append("lines of the engine, the innermost first:")
            lines += ["    {}:{} {}: {}".format(*line) for line in failure.raw["lines"]]
        if answers:
            message = zip(map(str, loads(failure.sequence).entries), answers, strict=False)
            rows = [f"    {entry}" + f" -> {answer}" * bool(answer) for entry, answer in message]
            lines += ["the last operations, and what was answered:", *rows[-MOST_ENTRIES:]]
        if failure.script:
            script = str(Path(path).with_suffix(".py"))
            says = self.session.script_fails(failure.script, PLAY_S).rpartition("\n")[2]
            lines.append(f"its own calls: {self._command('--replay', script)}")
            lines.append(f"    {says or 'no error'}")
        return "\n".join([*lines, f"replay: {self._command('--replay', path)}"])
