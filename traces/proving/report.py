"""What a run has proved: the table of families, the verdict, and the JSON document."""

from __future__ import annotations

from typing import TextIO

from ..fuzzing.report import next_steps
from ..terminal.tables import console, pairs, print_sentences, table
from .jobs import Sum
from .work import MOST_JUMPED, Proved

FORMAT, VERSION = "hicache-prove", 1
PATHS = ("device", "host", "storage", "states", "healed", "restarts")  # as a hand counts them


def show(total: Sum, settings: dict[str, object], stream: TextIO) -> None:
    """Prints the tables, what to do about failures, and the verdict."""
    out = console(stream)
    rows = [(name, str(value)) for name, value in settings.items() if value not in ("", None)]
    out.print(pairs("Prove", [*rows, ("seconds", f"{total.seconds:.0f}")]))
    sums = table(
        "Logits with the cache against those without, and the largest difference in bounds",
        *("family", "requests", "passes", "largest", "bound", "bounds"),
        *("jumped", "failed"),
    )
    hits = table("What requests reused", "family", *PATHS)
    for family, one in total.families.items():
        sums.add_row(
            family,
            f"{one.requests:,}",
            f"{one.paths['passes']:,}",
            f"{one.difference:.1e}",
            f"{one.bound:.1e}",
            f"{one.bounds:.2g}",
            f"{one.paths['unstable']:,}",
            f"{len(one.failures):,}",
        )
        hits.add_row(family, *(f"{one.paths[name]:,}" for name in PATHS))
    out.print(sums)
    out.print(hits)
    for kind in total.failures.sorted_kinds():
        path = total.files.paths.get(kind.smallest.name)
        print(f"\n{kind.smallest.code} {kind.smallest.kind}", file=stream)
        text = kind.smallest.text.splitlines()
        for line in [*text[:4], *(next_steps(path, False) if path else ["not written"])]:
            print(f"    {line}", file=stream)
    print_sentences("In words", verdict(total), stream)


def verdict(total: Sum) -> list[str]:
    """What the run means."""
    failed = [name for name, one in total.families.items() if one.failures]
    failures = sum(len(one.failures) for one in total.families.values())
    why = "interrupted" if total.interrupted else "ended by an error"
    said = [] if total.complete else [f"The run was {why}."]
    if failed:
        said.append(
            f"{failures} sequence{'s' * (failures > 1)} failed ({', '.join(failed)}): shrink a "
            "tape, then explain the smaller one."
        )
    else:
        said += _clean(total)
    return [*said, *_open(total)]


def _clean(total: Sum) -> list[str]:
    """Of the families that were judged, in a run without a failure."""
    played = [one for one in total.families.values() if one.paths["passes"] and one.judged]
    if not played:
        return []
    passes = sum(one.paths["passes"] for one in played)
    unstable = sum(one.paths["unstable"] for one in played)
    worst = max(played, key=lambda one: one.bounds)
    said = [
        f"All {passes:,} passes of {_count(played)} gave the logits of a run without a cache: the "
        f"largest difference is {worst.bounds:.2g} times the bound ({worst.family}), where 10 are "
        "allowed."
    ]
    if unstable:
        said.append(
            f"{_times(unstable)} a model itself jumped: there, runs without a cache differ as much."
        )
    return said


def _open(total: Sum) -> list[str]:
    """Of the families about which the run says nothing."""
    said = [
        f"{name} was not judged: it jumped in {one.paths['unstable']:,} of "
        f"{one.paths['passes']:,} passes, more than {MOST_JUMPED} %, which can hide a fault. "
        "Prove it with --dtype fp32; if it jumps there too, its configuration chooses between "
        "near ties."
        for name, one in total.families.items()
        if not one.judged
    ]
    idle = [
        name for name, one in total.families.items() if not one.paths["passes"] and not one.failures
    ]
    if idle:
        said.append(f"No pass of {', '.join(idle)} was compared: give the run more time.")
    return said


def _count(played: list[Proved]) -> str:
    return f"{len(played)} famil{'y' if len(played) == 1 else 'ies'}"


def _times(count: int) -> str:
    return "Once" if count == 1 else f"{count:,} times"


def document(total: Sum, settings: dict[str, object], command: str) -> dict[str, object]:
    """The content of `--json`. Other programs read it: do not rename its keys."""
    return {
        "format": FORMAT,
        "version": VERSION,
        "command": command,
        "complete": total.complete,
        "exit_code": total.code,
        "settings": settings,
        "seconds": round(total.seconds, 3),
        "families": [
            {
                "family": name,
                "sequences": one.sequences,
                "requests": one.requests,
                "events": one.events,
                "passes": one.paths["passes"],
                "positions": one.paths["positions"],
                "difference": one.difference,
                "bound": one.bound,
                "bounds": one.bounds,
                "unstable": one.paths["unstable"],
                "unstable_difference": one.unstable,
                "judged": one.judged,
                "hits": {name: one.paths[name] for name in PATHS},
                "busy_seconds": round(one.busy_ns / 1e9, 3),
                "failures": len(one.failures),
            }
            for name, one in total.families.items()
        ],
        "failures": [
            {
                "code": kind.smallest.code,
                "kind": kind.smallest.kind,
                "times": kind.count,
                "seed": kind.seed,
                "entries": kind.smallest.at,
                "tape": total.files.paths.get(kind.smallest.name),
                "text": kind.smallest.text,
            }
            for kind in total.failures.sorted_kinds()
        ],
        "conclusions": verdict(total),
    }
