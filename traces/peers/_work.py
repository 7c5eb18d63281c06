"""What is done with a failing sequence: shrunk, written as a tape and as a script, explained."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hicache.core.errors import CallerError
from invariants.fuzz.tapes.tape import Entry, spoken, write_text
from invariants.peers.tape import loads

from ._known import Report, match, reports
from ._session import Answer, Ended, Session, script_fails

ENDS = ("HANG", "DEATH")  # laws whose failure ends the process
SHRINK_S = 60.0
EXPLAIN_S = 60.0
APART_S = 20.0  # for a sequence that may not end


@dataclass
class Found:
    """A kind of failure. failure: of the tape that is kept. count: sequences that failed so. files:
    tape and script. shown: what the script's last line says where it was run; empty if it does not
    fail. known: the report that it is."""

    failure: Answer
    tape: str
    seed: int
    seconds: float
    count: int = 1
    lines: list[list[Any]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    shown: str = ""
    known: Report | None = None

    @property
    def entries(self) -> tuple[Entry, ...]:
        return loads(self.tape).entries

    def document(self) -> dict[str, Any]:
        return {
            "law": self.failure["code"],
            "kind": self.failure["kind"],
            "text": self.failure["text"],
            "sequences": self.count,
            "seed": self.seed,
            "seconds": round(self.seconds, 1),
            "entries": [spoken(entry) for entry in self.entries],
            "engine_lines": [_line(one) for one in self.failure["lines"]],
            "suspected_lines": [_line(one) for one in self.lines],
            "files": self.files,
            "script_says": self.shown,
            "known": None if self.known is None else asdict(self.known),
        }


def _line(one: list[Any]) -> dict[str, Any]:
    return dict(zip(("file", "line", "function", "text"), one, strict=True))


def work_up(session: Session, found: Found, folder: Path, tell: Callable[[str], None]) -> None:
    """Shrinks a failure, explains it and writes its files. What a step cannot do is left out."""
    kind = found.failure["kind"]
    ends = found.failure["code"] in ENDS
    tell(f"shrink {kind}")
    best: Answer = {"tape": found.tape, "failure": found.failure}
    request = best | {"do": "shrink", "seconds": APART_S if ends else 0}
    try:
        best |= session.ask(request, SHRINK_S, best.update, whole=True)
    except Ended:
        tell(f"{kind}: shrunk for {SHRINK_S:.0f} s, and not to the end")
    found.tape, found.failure = best["tape"], best["failure"]
    facts, release = session.environment.facts, session.environment.release
    explain(session, found)
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{facts.name}-{release}-{_slug(kind)}-{found.seed}"
    write_text(folder / f"{name}.tape", found.tape)
    found.files = [str(folder / f"{name}.tape")]
    if not ends:
        tell(f"write the script of {kind}")
        write_script(session, found, folder / f"{name}.py")


def explain(session: Session, found: Found) -> None:
    """Finds the lines of the engine that led to a failure, unless it ends the process, and the
    report that it is."""
    facts, release = session.environment.facts, session.environment.release
    where = [[str(one[0]), str(one[2])] for one in found.failure["lines"]]
    if found.failure["kind"] not in ENDS:
        with suppress(Ended):
            where += session.ask({"do": "ran", "tape": found.tape}, EXPLAIN_S)["functions"]
            found.lines = session.ask({"do": "led", "tape": found.tape}, EXPLAIN_S)["lines"]
    found.known = match(reports(facts.name), facts.releases, release, found.failure, where)


def write_script(session: Session, found: Found, path: Path) -> None:
    """Writes the engine's own calls, and runs them where the peer runs."""
    facts, release = session.environment.facts, session.environment.release
    failure, name = found.failure, f"{facts.name} {release}".strip()
    played = f"hicache peers play {path.name} --peer {session.environment.name}"
    if session.environment.source is not None:
        played += f" --source {session.environment.source}"
    head = (
        f"{name}: {failure['text']}\n\n{failure['kind']}. Written by hicache peers fuzz. Run it "
        f"with\n\n    {played}\n\nor, where the engine is installed, with python or pytest."
    )
    try:
        said = session.ask({"do": "script", "tape": found.tape, "head": head}, EXPLAIN_S)
    except (Ended, CallerError):
        return
    if said["failure"] is None:
        return
    write_text(path, said["script"])
    found.files.append(str(path))
    found.shown = script_fails(session, path, EXPLAIN_S).rpartition("\n")[2]


def _slug(kind: str) -> str:
    letters = "".join(one if one.isalnum() else "-" for one in kind)
    return "-".join(part for part in letters.split("-") if part)[:60]
