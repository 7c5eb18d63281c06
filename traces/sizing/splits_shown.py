"""What a search of splits says: which serves most, what binds each, the table and the document.

Does not search or replay; see splits.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, TextIO

from ..deciding.limits import digits
from ..deciding.verdict import spelled
from ..reporting import timestamps
from ..reporting.conclusions import scaled
from ..reporting.head import head
from ..terminal.output import write_json
from ..terminal.streams import ignore_broken_pipe
from ..terminal.tables import console, percent, print_sentences, print_written, table
from .candidates import SURE
from .output import arrivals_told
from .splits import LOOSE, Split, Splits

_NAMES = {"pool": "pool", "exchanges": "exchanges", "idle": "idle"}


def show(found: Splits, command: str, out: TextIO, json: str | None) -> None:
    """Prints what was found, and writes the document."""
    told, assumed = sentences(found), assumptions(found)
    trace = found.trace
    jobs, settings = trace.jobs, found.settings
    warnings = [*trace.notes, *timestamps.warnings(jobs, settings.speed, settings.load)]
    with ignore_broken_pipe():
        print_sentences(f"How to split {_machine(found)}", told, out)
        _print_table(found, out)
        if warnings:
            print_sentences("Warnings", warnings, out)
        print_sentences("What was assumed", assumed, out)
    if json:
        document = {
            **head(command, not (found.ended.code or found.ended.error)),
            "trace": {"path": trace.path, "requests": len(jobs)},
            "splits": [_document(found, one) for one in found.found],
            "refused": [
                {"reason": reason, "machines": list(machines)}
                for reason, machines in found.refused.items()
            ],
            "replays": found.replays,
            "warnings": warnings,
            "conclusions": told,
            "estimates": assumed,
        }
        write_json(json, document)
    print_written((json,), out)


def binds(one: Split) -> list[str]:
    """What keeps a split from more load: the limit that most requests miss at the load that it does
    not serve (`ttft`, `tpot`, ...), behind it `pool` and `exchanges` where these are why, and
    `idle` where too few keep the limit with hardly any load. Empty for one that serves all that was
    tried."""
    over = one.over or (one.idle if one.served is None else None)
    if over is None:
        return []
    missed = {name: count for name, count in over["slo"]["missed"].items() if count}
    limit = max(missed, key=missed.__getitem__)
    found = [limit, *["pool"] * one.pool, *["idle"] * (one.over is None)]
    if one.exchanges is not None and _share(one, limit) >= LOOSE:
        found.append("exchanges")
    return found


def sentences(found: Splits) -> list[str]:
    """The split that serves most, then why each serves no more."""
    best = found.found[0] if found.found else None
    told = []
    if best is None or best.served is None:
        told.append(f"No split of {_machine(found)} serves a load that was tried.")
    else:
        kept = percent((best.best or {})["slo"]["attained_rate"], 1) if best.best else "enough"
        told.append(
            f"{_label(best)} serves most: {_load(found, best)}; {kept} of the requests keep "
            f"{_limits(found)} there."
        )
        near = [
            _label(one)
            for one in found.found[1:]
            if one.refused is not None and one.refused > best.served
        ]
        if near:
            told.append(
                f"{' and '.join(near)} may serve as much: loads were searched to within 5 %."
            )
    told += _between(found)
    told += [f"{_label(one)}: {_why(found, one)}." for one in found.found]
    told += [f"{', '.join(which)}: {reason}." for reason, which in found.refused.items()]
    return told


def _between(found: Splits) -> list[str]:
    """What goes up and down from few replicas to many."""
    known = sorted((one for one in found.found if one.over), key=lambda one: one.candidate.replicas)
    if len(known) < 2:
        return []
    few, many = known[0], known[-1]
    parts = [f"the pool from {few.pool_tokens:,} to {many.pool_tokens:,} tokens"]
    if found.trace.identity:
        hits = [percent(one.over["whole"]["hit_rate"], 1) for one in (few, many) if one.over]
        parts.insert(0, f"hits go from {hits[0]} to {hits[1]}, as each has a cache of its own")
    if few.exchanges and many.exchanges:
        sent = [percent(one.exchanges[0], 0) for one in (few, many) if one.exchanges]
        parts.append(f"exchanges from {sent[0]} to {sent[1]} of a prefill pass")
    replicas = f"{few.candidate.replicas} to {many.candidate.replicas}"
    return [f"From {replicas} replicas {', '.join(parts[:-1])} and {parts[-1]}."]


def assumptions(found: Splits) -> list[str]:
    attain = percent(float(found.asked.attain), 0)
    told = [
        *scaled(found.trace),
        f"A load is served if {attain} of the requests keep every limit (--attain).",
        f"The pool binds if twice its pages serve {SURE:g} times the load that is not served; "
        f"exchanges bind if passes would be {SURE:g} times as fast without them.",
    ]
    if found.asked.host_bytes:
        told.append("Host memory is divided among the replicas.")
    return [*told, *arrivals_told(found)]


def _why(found: Splits, one: Split) -> str:
    over = one.over
    if over is None and one.served is not None:
        return f"{_load(found, one)}, the largest load that was tried"
    if over is None:
        misses = _misses(one.idle) if one.idle else "nothing is known"
        return f"serves no load: with hardly any, {misses}"
    first, *why = binds(one)
    waits = percent((over.get("load") or {}).get("queueing_share", 0.0), 0)
    said = [
        f"{_load(found, one)}; {first.upper()} binds: at {float(one.refused or 0):g} x "
        f"{_misses(over)}",
        f"{waits} of the time to first token is waiting in the queue",
    ]
    if found.trace.identity:
        said.append(f"{percent(over['whole']['hit_rate'], 1)} of the prompt tokens hit")
    if one.exchanges is not None and one.candidate.ranks > 1:
        prefill, decode = (percent(part, 0) for part in one.exchanges)
        said.append(f"exchanges take {prefill} of a prefill pass and {decode} of a decoding one")
    if "pool" in why:
        said.append(
            f"the pool of {one.pool_tokens:,} tokens is what is short: twice the pages serve "
            f"{SURE:g} times that load"
        )
    return ", ".join(said)


def _misses(found: Mapping[str, Any]) -> str:
    return " and ".join(
        f"{percent(part, 1)} miss {name.upper()}" for name, part in _missed(found).items() if part
    )


def _share(one: Split, limit: str) -> float:
    """The part of the passes that decide a limit that is exchanges. A token waits for its pass,
    which may have a piece of a prompt."""
    assert one.exchanges is not None
    return one.exchanges[0] if limit == "ttft" else max(one.exchanges)


def _machine(found: Splits) -> str:
    return f"{found.asked.accelerators} x {found.asked.hardware}"


def _label(one: Split) -> str:
    count, pp = one.candidate.replicas, one.candidate.pp
    stages = f", pp {pp}" * (pp > 1)
    return f"tp {one.candidate.tp}{stages}, {count} replica{'s' * (count > 1)}"


def _load(found: Splits, one: Split) -> str:
    if one.served is None:
        return "serves no load that was tried"
    rate = digits(float(one.served) * found.demand.requests_per_s)
    return f"{float(one.served):g} x the speed of the trace, {rate} requests a second"


def _limits(found: Splits) -> str:
    slo = found.settings.slo
    assert slo is not None
    return " and ".join(f"{name.upper()} {spelled(limit / 1e9)}" for name, limit in slo.limits)


def _print_table(found: Splits, out: TextIO) -> None:
    title = f"{len(found.found)} splits of {_machine(found)}, {found.replays} replays in all"
    names = ("serves", "not", "a second", "hit", "pool", "binds")
    result = table(title, "tp x pp x replicas", *names)
    for one in found.found:
        served, refused = (
            "" if load is None else f"{float(load):g} x" for load in (one.served, one.refused)
        )
        over = one.over
        result.add_row(
            f"{one.candidate.tp} x {one.candidate.pp} x {one.candidate.replicas}",
            served or "none",
            refused,
            digits(float(one.served) * found.demand.requests_per_s) if one.served else "",
            percent(over["whole"]["hit_rate"], 1) if over and found.trace.identity else "",
            f"{one.pool_tokens:,}",
            ", ".join(_NAMES.get(name, name.upper()) for name in binds(one)),
        )
    console(out).print(result)
    name = os.path.basename(found.trace.path)
    print(
        f"serves, not: multiples of the speed of {name}; a second: requests; pool: tokens", file=out
    )


def _document(found: Splits, one: Split) -> dict[str, Any]:
    over, best = one.over, one.best
    prefill, decode = one.exchanges or (None, None)
    return {
        "label": _label(one),
        "tp": one.candidate.tp,
        "pp": one.candidate.pp,
        "replicas": one.candidate.replicas,
        "host_bytes": one.candidate.host_bytes,
        "pool_tokens": one.pool_tokens,
        "idle_rate": one.idle["slo"]["attained_rate"] if one.idle else None,
        "served": None if one.served is None else float(one.served),
        "refused": None if one.refused is None else float(one.refused),
        "attained_rate": best["slo"]["attained_rate"] if best else None,
        "hit_rate": over["whole"]["hit_rate"] if over and found.trace.identity else None,
        "missed": _missed(over) if over else None,
        "exchanged_prefill": prefill,
        "exchanged_decode": decode,
        "binds": binds(one),
        "why": _why(found, one),
    }


def _missed(over: Mapping[str, Any]) -> dict[str, float | None]:
    """The part of the requests that misses each limit."""
    requests = over["whole"]["requests"]
    return {
        name: None if count is None else count / requests
        for name, count in over["slo"]["missed"].items()
    }
