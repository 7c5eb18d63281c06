"""What a decision says: one sentence to forward, the table of candidates, the error to expect and
what flips the answer.
"""

import os
from collections.abc import Iterator
from typing import TextIO

from rich.table import Table

from ..error_bars import together
from ..html import render, report
from ..reporting import digits, gigabytes, percent, pools_note
from ..reporting.warnings import time_warnings
from ..results.record import TraceFigures
from ..results.record import document as as_document
from ..sweeping.points import Document
from ..terminal.output import as_json, write_all
from ..terminal.tables import console, pairs, print_written, table
from .search import PASSES, Decision

_SHOWN = 10  # rows of the table on a terminal
_SYMBOLS = {"today": "=", "runner_up": "+", "answer": "*"}


def show(decision: Decision, command: str, out: TextIO, html: str | None, json: str | None) -> None:
    """Prints the decision and writes the files that were asked for, each whole or not at all."""
    trace, settings = decision.trace, decision.offer.settings
    rows, answer = decision.document["candidates"], decision.document["answer"]
    bought = [decision.document[name] for name in ("answer", "runner_up", "today")]
    documents = [decision.answers.get(rows.index(item)) for item in bought if item]
    headline, first, rest = sentence(decision), [*_sensitivity(decision)], [*_facts(decision)]
    full = report(
        f"What to buy for {os.path.basename(trace.path)}",
        command,
        as_document(TraceFigures.of(trace)),
        [document for document in documents if document and "stopped" not in document],
        curve=as_document(decision.offer.curves.figures) if decision.offer.curves else None,
        verdict={
            "sentences": [headline, *(f"{name}: {text}" for name, text in first)],
            "best": answer and answer["label"],
        },
        decision=decision.document,
        warnings=[*trace.notes, *time_warnings(trace.jobs, settings.speed, settings.load)],
        estimates=[f"{name}: {text}" for name, text in rest],
        complete=not decision.ended.over,
    )
    shown = console(out)
    shown.print(f"\n{headline}")
    if decision.answers:
        shown.print(_table(decision.document))
    shown.print(pairs("", [*first, *(("warning", item) for item in full["warnings"]), *rest]))
    files = [(html, [render(full)])] if html else []
    files += [(json, as_json(full))] if json else []
    write_all(files)
    print_written((path for path, _ in files), out)


def sentence(result: Decision) -> str:
    """What to buy, what it costs and what it serves."""
    decision, answer, load = result.document, result.document["answer"], _load(result.document)
    if result.ended.over:
        served = (_offer(decision, row) for row in decision["candidates"] if row["served"])
        seen = next(
            (f"{text} was seen to serve" for text in served), "nothing was seen to serve yet"
        )
        return f"The search did not end; {seen}."
    limits, must = decision["limits"], decision["attain"]
    if answer is None:
        part = percent(must)
        return f"Nothing that was offered keeps {limits} for {part} of the requests at {load}."
    kept, confidence = answer["attained_rate"], decision["confidence"]
    keeps = f"{percent(kept, 1)} of the requests keep {limits} at {load}"
    # within the errors to expect the answer does not serve any more
    most = round(1 + confidence["pass_error"], 2)
    near = [x for x in confidence["flips"] if x["what"] == PASSES and (x["at"] or 9) <= most]
    if not near and kept - (confidence["attained_error"] or 0) >= must:
        return f"Buy {_offer(decision, answer)}: {keeps}."
    other = next((item["to"]["label"] for item in near if item["to"]), "something stronger")
    return f"Undecided between {_offer(decision, answer)} and {other}: {keeps} with the first."


def _load(decision: Document) -> str:
    rate = decision["demand"]["requests_per_s"]
    return f"{digits(rate)} requests a second" if rate else "the pace of its answers"


def _offer(decision: Document, row: Document) -> str:
    return f"{row['label']} for {row['cost_per_hour']:,.2f} {_unit(decision)}an hour"


def _unit(decision: Document) -> str:
    unit = decision["prices"]["currency"]
    return f"{unit} " if unit else ""


# -- rows


def _sensitivity(result: Decision) -> Iterator[tuple[str, str]]:
    """The error to expect, and what flips the answer."""
    decision, confidence = result.document, result.document["confidence"]
    if not confidence["flips"]:
        return
    answer = result.answers[decision["candidates"].index(decision["answer"])]
    lines = together([answer.get("expected_error")])
    message = [line.removeprefix("Expected error: ") for line in lines]
    if confidence["attained_error"] is not None:
        message.append(f"by chance {100 * confidence['attained_error']:.1f} points of the requests")
    yield "expected error", "; ".join(message) or "not known"
    yield "flips", "; ".join(map(_crossover, confidence["flips"]))


def _crossover(document: Document) -> str:
    more = "passes as long" if document["what"] == PASSES else "the load"
    if document["at"] is None:
        return f"not at {document['holds']:g} x {more}"
    to = f", to {document['to']['label']}" if document["to"] else ""
    return f"at {document['at']:g} x {more} (holds at {document['holds']:g}){to}"


def _facts(result: Decision) -> Iterator[tuple[str, str]]:
    decision, demand = result.document, result.offer.demand
    if row := decision["today"]:
        serves = "serves" if row["served"] else f"does not serve, {row['why']}".rstrip(", ")
        yield "today", f"{_offer(decision, row)}: {serves}"
    if probed := decision["confidence"]["part_requests"]:
        yield "flips are of", f"a part of the sessions, {probed:,} requests"
    if sample := decision["sample"]:
        text = f"{percent(sample['part'], 1)} of the trace, {sample['requests']:,} requests"
        if sample["hit_rate_error"] is not None:
            text += f"; hit rates err by at most {100 * sample['hit_rate_error']:.1f} points"
        yield "replayed", text
    yield (
        "trace",
        f"{demand.requests:,} requests, {_load(decision)}, {demand.input_tokens:,} prompt tokens, "
        f"{demand.output_tokens:,} to generate",
    )
    yield from result.trace.load_rows
    if result.spread:
        yield "arrivals", "at random within steps of the clock (--arrivals spread)"
    rows, prices = decision["candidates"], decision["prices"]
    sizes = sorted({row["host_bytes"] for row in rows})
    hosts = ", ".join(gigabytes(size) if size else "none" for size in sizes)
    yield "offered", f"{len(rows)} machines, host memory of a replica {hosts}"
    if result.offer.curves and (note := pools_note(result.offer.settings.core.components)):
        yield "sizes of host memory", f"from a curve that {note}; the replays have all"
    replays = f"{decision['replays']}, {decision['searched']} of them until the answer was known"
    yield "replays", replays
    for item in decision["refused"]:
        yield "left out", f"{', '.join(item['machines'])}: {item['reason']}"
    known = ", ".join(f"{name} {digits(it)}" for name, it in sorted(prices["per_hour"].items()))
    yield "prices an hour", f"{known} {_unit(decision)}({prices['source']})"


def _table(decision: Document) -> Table:
    """Those that were replayed: those that serve, the cheapest first, then the dearest others."""
    known = [row for row in decision["candidates"] if row["served"] is not None]
    costs = {id(row): row["cost_per_hour"] for row in known}
    known.sort(key=lambda row: (not row["served"], costs[id(row)] * (1 if row["served"] else -1)))
    symbols = {id(decision[name]): symbol for name, symbol in _SYMBOLS.items()}
    result = table(
        f"{min(len(known), _SHOWN)} of {len(known)} machines replayed: * answer, + next, = today's",
        *("accelerator", "tp", "repl", "host", "in all", "cost/h", "p50 s", "p90 s", "kept %"),
    )
    for row in known[:_SHOWN]:
        kept, sizes = row["attained_rate"], (row["host_bytes"], row["host_bytes_total"])
        times = (row["ttft_p50_s"], row["ttft_p90_s"])
        result.add_row(
            f"{row['hardware']} {symbols.get(id(row), '')}".strip(),
            *(f"{row['tp']}", f"{row['replicas']}"),
            *(gigabytes(size) if size else "none" for size in sizes),
            f"{row['cost_per_hour']:,.2f}",
            *("" if time is None else f"{time:.2f}" for time in times),
            f"< {100 * decision['attain']:.0f}" if kept is None else f"{100 * kept:.1f}",
        )
    return result
