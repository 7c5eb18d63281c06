"""What is done with a failing sequence: shrunk, written as a tape and a script, explained, told."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from hicache.core.errors import CallerError
from invariants.fuzz.facts import known, match
from invariants.fuzz.laws import LAWS
from invariants.fuzz.sequence import loads, write_text

from .session import Answer, Ended, Session, script_fails

NEW_FAILURE = 11  # exit code, where a failure is not known
ENDS = ("HANG", "DEATH")  # laws whose failure ends the process
SHRINK_S = 60.0
EXPLAIN_S = 60.0
APART_S = 20.0  # for a sequence that may not end
MOST_ENTRIES = 20  # that are told
LINE = ("file", "line", "function", "text")
SPELLED = "{file}:{line} {function}: {text}"


def work_up(
    session: Session, failed: Answer, folder: Path, tell: Callable[[str], None]
) -> dict[str, Any]:
    """Shrinks a failure, writes its tape and script, and returns its document."""
    kind, ends = failed["failure"]["kind"], failed["failure"]["code"] in ENDS
    tell(f"shrink {kind}")
    best = {"tape": failed["tape"], "failure": failed["failure"]}
    request = best | {"do": "shrink", "seconds": APART_S if ends else 0}
    try:
        best |= session.ask(request, SHRINK_S, best.update, whole=True)
    except Ended:
        tell(f"{kind}: shrunk for {SHRINK_S:.0f} s, and not to the end")
    tape, failure = best["tape"], best["failure"]
    folder.mkdir(parents=True, exist_ok=True)
    slug = "".join(one if one.isalnum() else " " for one in f"{session.engine.name} {kind}")
    path = folder / f"{'-'.join(slug.split())[:80]}-{loads(tape).seed}.tape"
    write_text(path, tape)
    script = None if ends else path.with_suffix(".py")
    return explained(session, tape, failure, path, script)


def described(tape: str, failure: Answer) -> dict[str, Any]:
    """The document of a failure that is not explained yet."""
    played = loads(tape)
    return {
        "law": failure["code"],
        "kind": failure["kind"],
        "text": failure["text"],
        "seed": played.seed,
        "entries": [str(entry) for entry in played.entries],
        "engine_lines": [dict(zip(LINE, one, strict=True)) for one in failure["lines"]],
        "suspected_lines": [],
        "files": [],
        "script_says": "",
        "known": None,
    }


def explained(
    session: Session, tape: str, failure: Answer, path: Path, script: Path | None = None
) -> dict[str, Any]:
    """The document of a failure: with the lines of the engine that led to it, and the row that it
    is. path: of the tape. script: the file for the engine's own calls, which are run."""
    engine, where = session.engine, [(str(one[0]), str(one[2])) for one in failure["lines"]]
    files, says, suspected = [str(path)], "", []
    if failure["kind"] not in ENDS:
        with suppress(Ended):
            where += session.ask({"do": "ran", "tape": tape}, EXPLAIN_S)["functions"]
            suspected = session.ask({"do": "led", "tape": tape}, EXPLAIN_S)["lines"]
    if script is not None and _write_script(session, tape, failure, script):
        files.append(str(script))
        says = script_fails(session, script, EXPLAIN_S).rpartition("\n")[2]
    spelled = [dict(zip(LINE, one, strict=True)) for one in suspected]
    row = match(known(engine.facts.name), engine.facts.releases, engine.release, failure, where)
    found = {"suspected_lines": spelled, "files": files, "script_says": says, "known": row}
    return described(tape, failure) | found


def _write_script(session: Session, tape: str, failure: Answer, path: Path) -> bool:
    engine = session.engine
    source = f" --source {engine.source}" if engine.source else ""
    head = (
        f"{engine.name}: {failure['text']}\n\n{failure['kind']}. Run it with\n\n"
        f"    hicache peers play {path.name}{source}\n\nor, where the engine is installed, with "
        "python or pytest."
    )
    try:
        said = session.ask({"do": "script", "tape": tape, "head": head}, EXPLAIN_S)
    except (Ended, CallerError):
        return False
    if said["failure"] is not None:
        write_text(path, said["script"])
    return said["failure"] is not None


def told(failure: dict[str, Any]) -> list[str]:
    """The lines that tell the document of a failure."""
    row, entries, says = failure["known"], failure["entries"], failure["script_says"]
    how = "by law and functions" if row and row["functions"] else "by its law and kind alone"
    title = f"{failure['kind']} ({f'known {how}' if row else 'not known'})"
    if "sequences" in failure:
        title += f", {failure['sequences']} sequences, the first after {failure['seconds']} s"
    about = [f"{row['report']}: {row['text']}"] if row else []
    about += [LAWS.get(failure["law"], "The harness itself failed."), failure["text"]]
    if len(entries) > MOST_ENTRIES:
        entries = [*entries[:MOST_ENTRIES], f"and {len(entries) - MOST_ENTRIES} more, in the tape"]
    error = failure["text"].partition(":")[0] if failure["law"] == "CRASH" else "Broken: "
    if len(failure["files"]) > 1 and error not in says:
        about.append(f"the script, run by itself, {says or 'does not fail'}: it is no proof")
    ran = "lines that ran in it and in few sequences without one of its operations"
    blocks = {
        f"  the sequence, {len(failure['entries'])} operations:": entries,
        "  the engine's lines in the error, the innermost first:": failure["engine_lines"],
        f"  {ran}:": failure["suspected_lines"],
        "  files:": failure["files"],
    }
    lines = ["", title, *(f"    {one}" for one in about)]
    for head, block in blocks.items():
        lines += [head] if block else ()
        lines += [f"    {one if isinstance(one, str) else SPELLED.format(**one)}" for one in block]
    return lines
