"""What is printed of a run on a peer: what was reached, and each failure once."""

from __future__ import annotations

from typing import Any, TextIO

from invariants.peers.laws import LAWS

from ..terminal.tables import console, pairs
from ._session import Session

MOST_ENTRIES = 20
INDENT = "    "


def show(session: Session, document: dict[str, Any], stream: TextIO) -> None:
    """Prints a run."""
    out = console(stream, piped=100)
    rows = [
        ("sequences", f"{document['sequences']:,}"),
        ("operations", f"{document['operations']:,}"),
        ("operations a second", f"{document['operations_per_second']:,}"),
        ("kinds of failures", str(len(document["failures"]))),
    ]
    out.print(pairs(session.environment.name, rows))
    reached = [(name, f"{count:,}") for name, count in document["reached"].items()]
    if reached:
        out.print(pairs("Reached", reached))
    for name in document["not_reached"]:
        out.print(f"never reached: {name}", soft_wrap=True)
    for failure in document["failures"]:
        for line in told(failure):
            out.print(line, soft_wrap=True)
    if not document["failures"]:
        out.print("\nEvery law held.")


def told(failure: dict[str, Any]) -> list[str]:
    """The lines that tell a failure."""
    known = failure["known"]
    how = "by law and functions" if known and known["functions"] else "by its law and kind alone"
    new = f"known {how}" if known else "not known"
    times = f"{failure['sequences']} sequence{'s' * (failure['sequences'] != 1)}"
    lines = [
        "",
        f"{failure['kind']} ({times}; the first after {failure['seconds']} s, {new})",
        *([f"{INDENT}{known['report']}: {known['text']}"] if known else ()),
        f"{INDENT}{LAWS.get(failure['law'], 'The harness itself failed.')}",
        f"{INDENT}{failure['text']}",
    ]
    entries = failure["entries"]
    lines.append(f"  the sequence, {len(entries)} operations:")
    lines += [f"{INDENT}{one}" for one in entries[:MOST_ENTRIES]]
    if len(entries) > MOST_ENTRIES:
        lines.append(f"{INDENT}and {len(entries) - MOST_ENTRIES} more, in the tape")
    if failure["engine_lines"]:
        lines.append("  the engine's lines in the error, the innermost first:")
        lines += [f"{INDENT}{_spelled(one)}" for one in failure["engine_lines"][:8]]
    if failure["suspected_lines"]:
        lines.append("  lines that ran in it and in few sequences without one of its operations:")
        lines += [f"{INDENT}{_spelled(one)}" for one in failure["suspected_lines"]]
    for file in failure["files"]:
        what = "script" if file.endswith(".py") else "tape"
        lines.append(f"  {what}: {file}")
    says, crash = failure["script_says"], failure["law"] == "CRASH"
    error = failure["text"].partition(":")[0] if crash else f"Broken: {failure['law']}:"
    if any(file.endswith(".py") for file in failure["files"]) and error not in says:
        lines.append(f"  the script, run by itself, {says or 'does not fail'}: it is no proof")
    return lines


def _spelled(one: dict[str, Any]) -> str:
    return f"{one['file']}:{one['line']} {one['function']}: {one['text']}"
