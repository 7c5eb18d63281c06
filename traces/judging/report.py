"""What a run with vLLM has shown: the tables of families and engines, the verdict, and the JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TextIO

from ..proving.jobs import NOT_JUDGED
from ..terminal.signals import INTERRUPTED
from ..terminal.tables import console, pairs, print_sentences, table
from .playing import CONNECTOR, LEAK, OWN, WRONG_ANSWER, Judged
from .rule import JUMPED, NEAR, SAME, TIE, WRONG

FORMAT, VERSION = "hicache-prove-vllm", 1
KINDS = (SAME, NEAR, TIE, JUMPED, WRONG)
COUNTS = (
    *("prompts", "hits", "host_tokens", "storage_tokens", "preemptions"),
    *("failed_loads", "failed_saves"),
)
_WORST = (12, 13, 11, 15)  # of exit codes


@dataclass
class Total:
    """files: of each failure, in their order."""

    families: dict[str, Judged]
    files: dict[tuple[str, int], list[str]] = field(default_factory=dict)
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def code(self) -> int:
        """That of the worst failure, or 17 if a family was not judged."""
        found = [one.code for family in self.families.values() for one in family.failures]
        if found:
            return min(found, key=_WORST.index)
        if self.interrupted:
            return INTERRUPTED
        good = all(one.requests and not one.jumped for one in self.families.values())
        return 0 if good else NOT_JUDGED


def show(total: Total, settings: dict[str, object], stream: TextIO) -> None:
    """Prints the tables, the failures, and the verdict."""
    out = console(stream)
    rows = [(name, str(value)) for name, value in settings.items() if value not in ("", None)]
    out.print(pairs("Prove with vLLM", [*rows, ("seconds", f"{total.seconds:.0f}")]))
    answers = table(
        "Answers against those of one request at a time without any cache",
        *("family", "engine", "equal", "near", "tie", "jumped", "wrong", "largest", "bound"),
    )
    hits = table(
        "What the engines reused, in tokens",
        *("family", "engine", "prompts", "hits", "host", "store", "preempted", "failed"),
    )
    for family, one in total.families.items():
        for name, side in one.sides.items():
            kinds = [f"{side.answers[kind]:,}" for kind in KINDS]
            answers.add_row(
                *(family, name, *kinds),
                *(f"{side.difference:.1e}", f"{one.bound:.1e}"),
            )
            counts = side.counts
            hits.add_row(family, name, *(f"{counts[key]:,}" for key in COUNTS[:6]))
    out.print(answers)
    out.print(hits)
    for family, one in total.families.items():
        for number, failure in enumerate(one.failures):
            where = f"life {failure.life}, sequence {failure.sequence}"
            where += f", request {failure.request}" if failure.request >= 0 else ""
            print(f"\n{failure.code} {failure.kind} {family} {failure.side}: {where}", file=stream)
            print(f"    {failure.text}", file=stream)
            for path in total.files.get((family, number), []):
                print(f"    {path}", file=stream)
    print_sentences("In words", verdict(total), stream)


def verdict(total: Total) -> list[str]:
    """What the run means."""
    said = ["The run was interrupted."] if total.interrupted else []
    judged = [one for one in total.families.values() if one.requests]
    for one in total.families.values():
        if one.error:
            said.append(f"{one.family} did not run to its end: {one.error}")
        elif not one.requests:
            said.append(f"No request of {one.family} was judged: give the run more time.")
        if one.jumped:
            said.append(f"{one.family} was not judged: too many of its answers jumped.")
    for name, whose in ((CONNECTOR, "with the connector"), (OWN, "with vLLM's own cache alone")):
        wrong = [
            one.family
            for one in judged
            if any(each.side == name and each.kind == WRONG_ANSWER for each in one.failures)
        ]
        if wrong:
            said.append(f"Wrong answers {whose}: {', '.join(wrong)}.")
        elif judged:
            count = sum(one.sides[name].answers.total() for one in judged)
            equal = sum(one.sides[name].answers[SAME] for one in judged)
            said.append(f"None of {count:,} answers {whose} was wrong; {equal:,} are bit-equal.")
    if any(one.kind == LEAK for each in judged for one in each.failures):
        said.append("Something was held though nothing was under way.")
    elif sequences := sum(one.sequences for one in judged):
        kills = sum(one.kills for one in judged)
        said.append(
            f"Nothing was held after {sequences:,} sequences; {kills:,} processes were killed, "
            f"{sum(one.ended for one in judged):,} ended by themselves."
        )
    return said


def document(total: Total, settings: dict[str, object], command: str) -> dict[str, object]:
    """The content of `--json`. Other programs read it: do not rename its keys."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "command": command,
        "complete": not total.interrupted,
        "exit_code": total.code,
        "settings": settings,
        "seconds": round(total.seconds, 3),
        "families": [
            {
                "family": name,
                "requests": one.requests,
                "sequences": one.sequences,
                "lives": one.lives,
                "kills": one.kills,
                "ended": one.ended,
                "faults": dict(sorted(one.faults.items())),
                "bound": one.bound,
                "judged": bool(one.requests) and not one.jumped,
                "error": one.error,
                "engines": [
                    {
                        "engine": whose,
                        "answers": {kind: side.answers[kind] for kind in KINDS},
                        "difference": side.difference,
                        "tokens": {key: side.counts[key] for key in COUNTS[:4]},
                        **{key: side.counts[key] for key in COUNTS[4:]},
                    }
                    for whose, side in one.sides.items()
                ],
            }
            for name, one in total.families.items()
        ],
        "failures": [
            {
                "family": name,
                "engine": failure.side,
                "code": failure.code,
                "kind": failure.kind,
                "life": failure.life,
                "sequence": failure.sequence,
                "request": failure.request,
                "text": failure.text,
                "files": total.files.get((name, number), []),
            }
            for name, one in total.families.items()
            for number, failure in enumerate(one.failures)
        ],
        "conclusions": verdict(total),
    }
