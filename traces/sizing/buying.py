"""What a decision says: the sentences, the table of candidates, the report and its document.

Does not search or replay; see decision.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import Any, TextIO

from ..deciding.answer import in_words, sentences
from ..expected.table import together as errors_together
from ..html.collecting import hot_prefixes
from ..html.document import report
from ..html.page import render
from ..reporting import timestamps
from ..reporting.amounts import gigabytes
from ..reporting.report import load_rows
from ..terminal.output import as_json, write_all
from ..terminal.streams import ignore_broken_pipe
from ..terminal.tables import console, percent, print_sentences, print_written, table
from .decision import Decision, Row

_SHOWN = 20  # rows of the table on a terminal
_TAILS = "Nobody has validated p90 and p99: published runs to compare them with are too few."


def show(found: Decision, command: str, out: TextIO, html: str | None, json: str | None) -> None:
    """Prints the decision and writes the files that were asked for, each whole or not at all."""
    decision = document(found)
    complete = not (found.ended.code or found.ended.error)
    decision["in_words"] = in_words(decision, complete)
    shown = dict.fromkeys((found.answer, found.runner_up, found.today))
    documents = [found.rows[place].found for place in shown if place is not None]
    variants = [one["variant"] for one in documents if one and "stopped" not in one]
    best = None if found.answer is None else found.rows[found.answer].candidate.label
    trace, jobs, settings, slo = found.trace, found.trace.jobs, found.settings, found.options.slo
    whole = report(
        f"What to buy for {os.path.basename(trace.path)}",
        command,
        {
            "path": trace.path,
            "format": trace.format,
            "requests": len(jobs),
            "input_tokens": jobs.input_tokens,
        },
        variants,
        curve=found.curves.document() if found.curves else None,
        verdict={"sentences": sentences(decision, complete), "best": best},
        decision=decision,
        slo=None if slo is None else {f"{name}_s": limit / 1e9 for name, limit in slo.limits},
        # of a trace too long to replay, counting every page takes gigabytes
        prefixes=hot_prefixes(found.paged) if trace.identity and found.part.rate == 1 else None,
        warnings=[*trace.notes, *timestamps.warnings(jobs, settings.speed, settings.load)],
        estimates=assumptions(found),
        complete=complete,
    )
    with ignore_broken_pipe():
        print_sentences("What to buy", whole["verdict"]["sentences"], out)
        _print_table(found, out)
        if whole["warnings"]:
            print_sentences("Warnings", whole["warnings"], out)
        print_sentences("What was assumed", whole["estimates"], out)
    files = [(html, [render(whole)])] if html else []
    files += [(json, as_json(whole))] if json else []
    write_all(files)
    print_written((path for path, _ in files), out)


def document(found: Decision) -> dict[str, Any]:
    """The `decision` of the document; docs/json.md describes it."""
    rows = [_row(one, found.part.rate < 1) for one in found.rows]
    of = {one.candidate: row for one, row in zip(found.rows, rows, strict=True)}
    slo = found.options.slo
    assert slo is not None
    limits = " and ".join(f"{name.upper()} {_spelled(limit / 1e9)}" for name, limit in slo.limits)
    sure = found.sure

    def at(place: int | None) -> dict[str, Any] | None:
        return None if place is None else rows[place]

    return {
        "answer": at(found.answer),
        "runner_up": at(found.runner_up),
        "today": at(found.today),
        "limits": limits,
        "attain": float(found.attain),
        "demand": {
            "requests": found.demand.requests,
            "requests_per_s": found.demand.requests_per_s or None,
            "input_tokens": found.demand.input_tokens,
            "output_tokens": found.demand.output_tokens,
        },
        "prices": {
            "per_hour": _used(found),
            "source": found.prices.source,
            "currency": found.prices.currency,
        },
        "confidence": {
            "pass_error": sure.error,
            "sample_error": sure.work,
            "judged": sure.judged,
            "tried": [
                {
                    "what": one.what,
                    "factor": float(one.factor),
                    "label": one.candidate.label,
                    "served": one.serves,
                    "attained_rate": _attained(one.found),
                    "ttft_p90_s": _ttft(one.found, "p90"),
                }
                for one in sure.tried
            ],
            "flips": [
                {
                    "what": one.what,
                    "holds": float(one.holds),
                    "at": None if one.at is None else float(one.at),
                    "to": None if one.to is None else of[one.to],
                }
                for one in sure.flips
            ],
            "rivals": [of[one] | {"why": why} for one, why in sure.rivals],
        },
        "sample": _sample(found),
        "candidates": rows,
        "refused": [
            {"reason": reason, "machines": list(machines)}
            for reason, machines in found.refused.items()
        ],
        "replays": found.replays,
    }


def _sample(found: Decision) -> dict[str, Any] | None:
    part = found.part
    if part.rate == 1:
        return None
    return {
        "part": float(part.rate),
        "requests": part.requests,
        "hit_rate_error_mean": part.error and part.error.mean,
        "hit_rate_error_most": part.error and part.error.largest,
        "attained_error": part.kept,
    }


def _used(found: Decision) -> dict[str, float]:
    """The prices of what the candidates have."""
    names = {one.candidate.hardware for one in found.rows} | {"gpu", "host"}
    names |= {"storage"} if any(one.candidate.stored for one in found.rows) else set()
    return {name: price for name, price in found.prices.per_hour.items() if name in names}


def _row(one: Row, sampled: bool = False) -> dict[str, Any]:
    slo = (one.found or {}).get("slo") or {}
    goodput = slo.get("goodput_requests_per_s")
    return {
        "label": one.candidate.label,
        **asdict(one.candidate),
        "gpus": one.candidate.gpus,
        "cost_per_hour": one.cost,
        **{f"ttft_{name}_s": _ttft(one.found, name) for name in ("p50", "p90", "p99")},
        "attained_rate": _attained(one.found),
        "goodput_requests_per_s": goodput,
        "goodput_per_cost": goodput * 3600 / one.cost if goodput is not None and one.cost else None,
        "served": one.served,
        "why": _why(one, sampled),
    }


def _why(one: Row, sampled: bool) -> str:
    if one.found is not None and "stopped" in one.found:
        part = one.found["stopped"]
        which = "replayed requests" if sampled else "requests"
        return f"{part['missed']:,} of the first {part['ended']:,} {which} missed the limits"
    return one.why


def _ttft(found: dict[str, Any] | None, name: str) -> float | None:
    times = (found or {}).get("latency_s")
    return times["ttft"][name] if times else None


def _attained(found: dict[str, Any] | None) -> float | None:
    slo = (found or {}).get("slo")
    return slo["attained_rate"] if slo else None


def _print_table(found: Decision, out: TextIO) -> None:
    """The candidates that were replayed: those that serve, the cheapest first, then the others."""
    known = sorted((row for row in found.rows if row.found), key=lambda row: not row.served)
    if not known:
        count = len(found.rows)
        print(f"None of {count:,} candidates was replayed (--json says why).", file=out)
        return
    title = f"{len(known)} of {len(found.rows)} candidates, {found.replays} replays in all"
    result = table(title, "candidate", "cost/h", "p50 s", "p90 s", "p99 s", "keep", "good/cost")
    for row in known[:_SHOWN]:
        one = _row(row)
        kept, value = one["attained_rate"], one["goodput_per_cost"]
        times = [one[f"ttft_{name}_s"] for name in ("p50", "p90", "p99")]
        name = row.candidate.label + (" *" if row.served else "")
        less = f"< {percent(float(found.attain), 0)}"
        result.add_row(
            name,
            f"{row.cost:,.2f}",
            *("" if time is None else f"{time:.2f}" for time in times),
            less if kept is None else percent(kept, 1),
            "" if value is None else f"{value:,.0f}",
        )
    console(out).print(result)
    more = len(known) - _SHOWN
    rest = f"; {more} more were replayed (--json has all)" if more > 0 else ""
    print(f"* serves; good/cost: requests within the limits for a unit of cost{rest}", file=out)


def assumptions(found: Decision) -> list[str]:
    """What was chosen without being asked for, and how good estimates are."""
    told = [f"{name}: {value}." for name, value in load_rows(found.trace)]
    told.append(
        f"A candidate serves if {percent(float(found.attain), 0)} of the requests keep every limit "
        "(--attain). A replay ends as soon as fewer can."
    )
    hosts = sorted({one.candidate.host_bytes for one in found.rows})
    if len(hosts) > 1:
        told.append(f"Host memory of a replica that was offered: {_sizes(hosts)} (--host-bytes).")
    if found.part.rate < 1:
        told.append(_sampling(found))
    if found.options.spread:
        coarse = "The clock of the trace is coarse: requests" if found.spread else "Requests"
        told.append(f"{coarse} arrive at random times until the next timestamp (--spread, --seed).")
    for reason, machines in found.refused.items():
        told.append(f"Left out: {', '.join(machines)}: {reason}.")
    documents = [one.found for one in found.rows if one.served]
    if found.answer is not None:
        documents = [found.rows[found.answer].found]
    told += errors_together((one or {}).get("expected_error") for one in documents)
    return [*told, _TAILS]


def _sampling(found: Decision) -> str:
    return (
        f"Replays are of {percent(float(found.part.rate), 1)} of the trace (--sample): whole "
        "sessions and groups with a common prefix, as a shorter trace: sessions begin so much "
        "closer together that as many run at once, and keep their pauses."
    )


def _sizes(hosts: list[int]) -> str:
    return ", ".join(gigabytes(size) if size else "none" for size in hosts)


def _spelled(seconds: float) -> str:
    return f"{seconds:g} s" if seconds >= 1 else f"{seconds * 1000:g} ms"
