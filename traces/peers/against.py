"""`hicache peers against`: the same sequences on two engines, and where their answers differ."""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

from invariants.fuzz.tapes.tape import spoken
from invariants.peers.tape import loads

from ..reporting.head import head
from ..terminal import options as read
from ..terminal.options import OptionRecord
from ..terminal.output import check_outputs, write_json
from ..terminal.rows import option
from ..terminal.signals import INTERRUPTED
from ..terminal.streams import ignore_broken_pipe
from ..terminal.tables import console, table
from ._folders import environment_of
from ._given import FOLDER_HELP, configured, setting
from ._session import Ended, Session

SUMMARY = "play the same sequences on two engines or releases, and say where they differ"
PLAY_S = 60.0
BATCH = 8
SHOWN = 3  # examples


@dataclass(frozen=True, slots=True)
class Options(OptionRecord):
    one: str = option(
        "a peer and its release, which draws the sequences",
        read.name,
        "PEER",
        positional=True,
        default="",
    )
    other: str = option(
        "the peer and release that plays them, too", read.name, "PEER", positional=True, default=""
    )
    seconds: int = option("stop after this many seconds", read.at_least(1), "S", default=30)
    operations: int = option("operations in a sequence", read.between(1, 10_000), "N", default=60)
    seed: int = option("seed of the first sequence", read.at_least(0), default=0)
    config: tuple[tuple[str, Any], ...] = option(
        "fix one setting of both, such as page=4; may be repeated",
        setting,
        "KEY=VALUE",
        several=True,
        default=(),
    )
    other_config: tuple[tuple[str, Any], ...] = option(
        "fix one setting of the second alone, such as core=python; may be repeated",
        setting,
        "KEY=VALUE",
        several=True,
        default=(),
    )
    json: str | None = option(
        "also write the results to this file as JSON; - is stdout", *read.OUTPUT
    )
    folder: str | None = option(FOLDER_HELP, read.name, "DIR")


class Difference(NamedTuple):
    """The first difference of a sequence. cause: in words, with the operation."""

    cause: str
    seed: int
    at: int
    entry: str
    one: dict[str, Any]
    other: dict[str, Any]


def run(options: Options, command: str) -> int:
    check_outputs({}, json=options.json)
    first = environment_of(options.one, None, options.folder)
    second = environment_of(options.other, None, options.folder)
    stream = sys.stderr if options.json == "-" else sys.stdout
    complete = True
    counts: Counter[str] = Counter()
    found: list[Difference] = []
    with Session(first, options.folder) as one, Session(second, options.folder) as other:
        one.start()
        other.start()
        fixed = configured(first.facts.name, options.config, one.opened["takes"])
        own = configured(second.facts.name, options.other_config, other.opened["takes"])
        due, seed = time.monotonic() + options.seconds, options.seed
        try:
            while time.monotonic() < due:
                for tape, answers in _drawn(one, seed, options.operations, fixed):
                    counts["sequences"] += 1
                    found += _compared(other, tape, answers, own, counts)
                seed += BATCH
        except KeyboardInterrupt:
            complete = False
    document = _document(options, counts, found)
    with ignore_broken_pipe():
        _show(document, stream)
    if options.json:
        write_json(options.json, head(command, complete=complete) | document)
    return 0 if complete else INTERRUPTED


def _drawn(
    session: Session, seed: int, length: int, fixed: dict[str, Any]
) -> list[tuple[str, list[dict[str, Any]]]]:
    """Sequences of one peer, with what it answered."""
    played: list[tuple[str, list[dict[str, Any]]]] = []
    request = {"do": "fuzz", "seed": seed, "count": BATCH, "length": length, "fixed": fixed}

    def on(answer: dict[str, Any]) -> None:
        if "answers" in answer:
            played.append((answer["tape"], answer["answers"]))

    session.ask(request | {"answers": True}, PLAY_S, on)
    return played


def _compared(
    session: Session,
    text: str,
    answers: list[dict[str, Any]],
    own: dict[str, Any],
    counts: Counter[str],
) -> list[Difference]:
    """Plays a sequence on the other peer. Returns the first difference, if there is one."""
    request = {"do": "adopt", "tape": text, "fixed": own}
    tape = session.ask(request, PLAY_S)["tape"]
    try:
        said = session.ask({"do": "play", "tape": tape}, PLAY_S)
    except Ended:
        counts["ended"] += 1
        return []
    if said["unfit"]:
        counts["unfit"] += 1
        return []
    entries = loads(text).entries
    for at, (one, other) in enumerate(zip(answers, said["answers"], strict=False)):
        counts["operations"] += 1
        cause = difference(one, other)
        if cause:
            return [Difference(cause, loads(text).seed, at, spoken(entries[at]), one, other)]
    counts["alike"] += 1
    return []


def _refuses(answer: dict[str, Any]) -> bool:
    return bool(answer.get("refused")) or answer.get("admitted") is False


def difference(one: dict[str, Any], other: dict[str, Any]) -> str:
    """Why two answers to one operation differ, in words; empty if they do not."""
    op = one["op"]
    if _refuses(one) != _refuses(other):
        return f"{op}: only the {'first' if _refuses(one) else 'second'} refuses"
    for key, what in (("device", "hits more on device"), ("host", "hits more on host")):
        other_name = "hit" if key == "device" else ""  # some peers say the hit alone
        a, b = (said.get(key, said.get(other_name)) for said in (one, other))
        if a is not None and b is not None and a != b:
            return f"{op}: the {'first' if a > b else 'second'} {what}"
    a, b = one.get("evicted"), other.get("evicted")
    if a is not None and b is not None and a != b:
        return f"{op}: the {'first' if a > b else 'second'} evicts more"
    if one.get("emptied") != other.get("emptied"):
        return f"{op}: only one is emptied"
    return ""


def _document(options: Options, counts: Counter[str], found: list[Difference]) -> dict[str, Any]:
    causes = Counter(one.cause for one in found)
    examples = {one.cause: one for one in reversed(found)}
    return {
        "first": options.one,
        "second": options.other,
        "sequences": counts["sequences"],
        "unfit_sequences": counts["unfit"],
        "alike_sequences": counts["alike"],
        "operations": counts["operations"],
        "causes": [
            {"cause": cause, "sequences": count, "example": examples[cause]._asdict()}
            for cause, count in causes.most_common()
        ],
    }


def _show(document: dict[str, Any], stream: Any) -> None:
    out = console(stream, piped=100)
    rows = table(f"{document['first']} and {document['second']}", "first difference", "sequences")
    rows.add_row("none", f"{document['alike_sequences']:,}")
    for one in document["causes"]:
        rows.add_row(one["cause"], f"{one['sequences']:,}")
    out.print(rows)
    said = f"{document['sequences']:,} sequences, {document['operations']:,} operations compared"
    out.print(said + f", {document['unfit_sequences']} that the second cannot play.")
    for one in document["causes"][:SHOWN]:
        example = one["example"]
        out.print(f"\n{one['cause']}, seed {example['seed']}:", soft_wrap=True)
        for key in ("entry", "one", "other"):
            out.print(f"    {example[key]}", soft_wrap=True)
