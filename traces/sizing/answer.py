"""What a decision says: one sentence to forward, the table of candidates, the error to expect and
what flips the answer; and the document of the report.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import asdict
from typing import TextIO

from rich.table import Table

from ..expected import together
from ..html import render, report
from ..replaying.load import Slo
from ..reporting import digits, gigabytes, percent
from ..reporting.outputs import time_warnings
from ..reporting.report import load_rows
from ..sweeping.work import Document
from ..terminal.output import as_json, write_all
from ..terminal.streams import ignore_broken_pipe
from ..terminal.tables import console, pairs, print_written, table
from .decision import DRAW, PASSES, SHARING, Decision, Flip, Row
from .search import kept_of

_SHOWN = 10  # rows of the table on a terminal


def show(found: Decision, command: str, out: TextIO, html: str | None, json: str | None) -> None:
    """Prints the decision and writes the files that were asked for, each whole or not at all."""
    places = dict.fromkeys((found.answer, found.runner_up, found.today))
    documents = [found.rows[place].found for place in places if place is not None]
    variants = [one for one in documents if one and "stopped" not in one]
    trace, slo = found.trace, found.options.slo
    assert slo is not None
    headline = sentence(found, slo)
    first, rest = [*_sure(found)], [*_facts(found)]
    settings = found.offered.settings
    whole = report(
        f"What to buy for {os.path.basename(trace.path)}",
        command,
        {
            "path": trace.path,
            "format": trace.format,
            "requests": len(trace.jobs),
            "input_tokens": trace.jobs.input_tokens,
        },
        variants,
        curve=found.offered.curves.document() if found.offered.curves else None,
        verdict={
            "sentences": [headline, *(f"{name}: {text}" for name, text in first)],
            "best": None if found.answer is None else found.rows[found.answer].candidate.label,
        },
        decision=document(found, slo),
        slo={f"{name}_s": limit / 1e9 for name, limit in slo.limits},
        warnings=[*trace.notes, *time_warnings(trace.jobs, settings.speed, settings.load)],
        estimates=[f"{name}: {text}" for name, text in rest],
        complete=not found.ended.over,
    )
    with ignore_broken_pipe():
        shown = console(out)
        shown.print(f"\n{headline}")
        if any(row.found for row in found.rows):
            shown.print(_table(found))
        shown.print(pairs("", [*first, *(("warning", one) for one in whole["warnings"]), *rest]))
    files = [(html, [render(whole)])] if html else []
    files += [(json, as_json(whole))] if json else []
    write_all(files)
    print_written((path for path, _ in files), out)


# -- the sentence


def sentence(found: Decision, slo: Slo) -> str:
    limits, load, rows = _limits(slo), _load(found), found.rows
    must = percent(float(found.attain))
    if found.answer is None or found.ended.over:
        served = [row for row in rows if row.served]
        if found.ended.over and not served:
            return "The search did not end; nothing was seen to serve yet."
        if found.ended.over:
            seen = _offer(found, served[0])
            return f"The search did not end; the cheapest that was seen to serve is {seen}."
        tried = [row for row in rows if row.found and "stopped" not in row.found]
        best = max(tried, key=lambda row: kept_of(row.found), default=None)
        rest = f"; {best.candidate.label} keeps {percent(kept_of(best.found), 1)}" if best else ""
        return (
            f"Nothing that was offered keeps {limits} for {must} of the requests at {load}{rest}."
        )
    answer = rows[found.answer]
    kept = f"{percent(kept_of(answer.found), 1)} of the requests keep {limits} at {load}"
    others = dict.fromkeys(one.label for one, _ in found.sure.rivals)
    if not others and not _is_open(found):
        return f"Buy {_offer(found, answer)}: {kept}."
    names = " or ".join(others) or "something stronger"
    return (
        f"Undecided between {_offer(found, answer)} and {names}: {kept} with the first as modelled."
    )


def _is_open(found: Decision) -> bool:
    """Whether the answer does not serve any more within the error to expect of passes, so that
    something dearer may be needed, whether it was found or not."""
    most = 1 + found.sure.error + found.part.work
    return any(
        one.what == PASSES and one.at is not None and one.at <= most for one in found.sure.flips
    )


def _limits(slo: Slo) -> str:
    def spelled(seconds: float) -> str:
        return f"{seconds:g} s" if seconds >= 1 else f"{seconds * 1000:g} ms"

    return " and ".join(f"{name.upper()} {spelled(limit / 1e9)}" for name, limit in slo.limits)


def _load(found: Decision) -> str:
    rate = found.offered.demand.requests_per_s
    return f"{digits(rate)} requests a second" if rate else "the pace of its answers"


def _offer(found: Decision, row: Row) -> str:
    unit = found.offered.prices.currency
    return f"{row.candidate.label} for {row.cost:,.2f}{f' {unit}' if unit else ''} an hour"


# -- rows


def _sure(found: Decision) -> Iterator[tuple[str, str]]:
    """The error to expect, and what flips the answer."""
    if found.answer is None or not found.sure.flips:
        return
    sure, document = found.sure, found.rows[found.answer].found or {}
    lines = together([document.get("expected_error")])
    told = [line.removeprefix("Expected error: ") for line in lines]
    if sure.chance is not None:
        told.append(f"by chance {100 * sure.chance:.1f} points of the requests")
    yield "expected error", "; ".join(told) or "not known"
    yield "flips", "; ".join(_flip(one) for one in sure.flips)


def _flip(one: Flip) -> str:
    more = "passes as long" if one.what == PASSES else "the load"
    if one.at is None:
        return f"not at {float(one.holds):g} x {more}"
    to = f", to {one.to.label}" if one.to else ""
    return f"at {float(one.at):g} x {more} (holds at {float(one.holds):g}){to}"


def _facts(found: Decision) -> Iterator[tuple[str, str]]:
    sure, demand = found.sure, found.offered.demand
    if found.today is not None:
        row = found.rows[found.today]
        kept = "" if row.found is None else f", {_kept(row, found)} keep the limits"
        yield "today", f"{_offer(found, row)}: {'serves' if row.served else 'does not serve'}{kept}"
    for one in sure.tried:
        if one.what in (DRAW, *SHARING):
            yield one.what, f"{percent(one.kept, 1)} keep the limits"
    if sure.probed:
        yield "flips are of", f"a part of the sessions, {sure.probed:,} requests"
    if found.part.rate < 1:
        told = (
            f"{percent(float(found.part.rate), 1)} of the trace, {found.part.requests:,} requests"
        )
        if found.part.hits_most is not None:
            told += f"; hit rates err by at most {100 * found.part.hits_most:.1f} points"
        yield "replayed", told
    yield (
        "trace",
        f"{demand.requests:,} requests, {_load(found)}, {demand.input_tokens:,} prompt tokens, "
        f"{demand.output_tokens:,} to generate",
    )
    yield from load_rows(found.trace)
    if found.spread:
        yield "arrivals", "at random within the steps of the trace's clock (--spread, --seed)"
    hosts = sorted({row.candidate.host_bytes for row in found.rows})
    sizes = ", ".join(gigabytes(size) if size else "none" for size in hosts)
    yield "offered", f"{len(found.rows)} machines, host memory of a replica {sizes}"
    yield "replays", f"{found.replays}, {found.searched} of them until the answer was known"
    for reason, machines in found.offered.refused.items():
        yield "left out", f"{', '.join(machines)}: {reason}"
    known = ", ".join(f"{name} {digits(price)}" for name, price in sorted(_prices(found).items()))
    unit = found.offered.prices.currency
    yield "prices an hour", f"{known}{f' {unit}' if unit else ''} ({found.offered.prices.source})"


def _prices(found: Decision) -> dict[str, float]:
    """The prices of what the candidates have; of host memory and storage 0 without one."""
    given = found.offered.prices
    names = {row.candidate.hardware for row in found.rows}
    used = {name: given.of_gpu(name) or 0.0 for name in names}
    if any(row.candidate.host_bytes for row in found.rows):
        used["host"] = given.per_hour.get("host", 0.0)
    if any(row.candidate.stored for row in found.rows):
        used["storage"] = given.per_hour.get("storage", 0.0)
    return used


def _table(found: Decision) -> Table:
    """Those that were replayed: those that serve, the cheapest first, then the nearest others."""
    known = [row for row in found.rows if row.found]
    known.sort(key=lambda row: (not row.served, row.cost if row.served else -kept_of(row.found)))
    marks = {found.today: "=", found.runner_up: "+", found.answer: "*"}
    named = {id(found.rows[place]): mark for place, mark in marks.items() if place is not None}
    result = table(
        f"{min(len(known), _SHOWN)} of {len(known)} machines replayed: * answer, + next, = today's",
        *("accelerator", "tp", "repl", "host", "in all", "cost/h", "p50 s", "p90 s", "kept %"),
    )
    for row in known[:_SHOWN]:
        one = row.candidate
        host = [gigabytes(size) for size in (one.host_bytes, one.host_bytes * one.replicas)]
        times = [_ttft(row.found, name) for name in ("p50", "p90")]
        result.add_row(
            " ".join([one.hardware, *["store"] * one.stored, named.get(id(row), "")]),
            f"{one.tp}" + f" x {one.pp}" * (one.pp > 1),
            f"{one.replicas}",
            *(host if one.host_bytes else ("none", "none")),
            f"{row.cost:,.2f}",
            *("" if time is None else f"{time:.2f}" for time in times),
            _kept(row, found).removesuffix(" %"),
        )
    return result


def _kept(row: Row, found: Decision) -> str:
    if row.found is not None and "stopped" in row.found:
        return f"< {percent(float(found.attain))}"
    return percent(kept_of(row.found), 1)


# -- the document


def document(found: Decision, slo: Slo) -> Document:
    """The `decision` of the report; docs/json.md describes it."""
    rows = [_row(one) for one in found.rows]
    of = {one.candidate: row for one, row in zip(found.rows, rows, strict=True)}
    sure, demand, part = found.sure, found.offered.demand, found.part

    def at(place: int | None) -> Document | None:
        return None if place is None else rows[place]

    return {
        "answer": at(found.answer),
        "runner_up": at(found.runner_up),
        "today": at(found.today),
        "limits": _limits(slo),
        "attain": float(found.attain),
        "demand": {
            "requests": demand.requests,
            "requests_per_s": demand.requests_per_s or None,
            "input_tokens": demand.input_tokens,
            "output_tokens": demand.output_tokens,
        },
        "prices": {
            "per_hour": _prices(found),
            "source": found.offered.prices.source,
            "currency": found.offered.prices.currency,
        },
        "confidence": {
            "pass_error": sure.error,
            "sample_error": part.work,
            "judged": sure.judged,
            "attained_error": sure.chance,
            "part_requests": sure.probed,
            "tried": [
                {
                    "what": one.what,
                    "factor": float(one.factor),
                    "label": one.candidate.label,
                    "served": one.serves,
                    "attained_rate": None if "stopped" in one.document else one.kept,
                    "ttft_p90_s": _ttft(one.document, "p90"),
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
        "sample": None
        if part.rate == 1
        else {
            "part": float(part.rate),
            "requests": part.requests,
            "hit_rate_error_mean": part.hits_mean,
            "hit_rate_error_most": part.hits_most,
        },
        "candidates": rows,
        "refused": [
            {"reason": reason, "machines": list(machines)}
            for reason, machines in found.offered.refused.items()
        ],
        "replays": found.replays,
    }


def _row(one: Row) -> Document:
    whole = one.found if one.found and "stopped" not in one.found else {}
    goodput = (whole.get("slo") or {}).get("goodput_requests_per_s")
    return {
        "label": one.candidate.label,
        **asdict(one.candidate),
        "gpus": one.candidate.gpus,
        "host_bytes_total": one.candidate.host_bytes * one.candidate.replicas,
        "cost_per_hour": one.cost,
        **{f"ttft_{name}_s": _ttft(whole, name) for name in ("p50", "p90", "p99")},
        "attained_rate": kept_of(whole) if whole else None,
        "goodput_requests_per_s": goodput,
        "goodput_per_cost": goodput * 3600 / one.cost if goodput is not None and one.cost else None,
        "served": one.served,
        "why": _why(one),
    }


def _why(one: Row) -> str:
    if one.found is not None and "stopped" in one.found:
        part = one.found["stopped"]
        return f"{part['missed']:,} of the first {part['ended']:,} requests missed the limits"
    return one.why


def _ttft(found: Document | None, name: str) -> float | None:
    times = (found or {}).get("latency_s")
    return times["ttft"][name] if times else None
