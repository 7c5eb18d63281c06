"""The sentences of a purchase: what to buy, what it costs and serves, how sure that is, and what
would change it. From the `decision` of a report alone; docs/json.md has its keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .limits import digits, percent
from .measured import span

Document = Mapping[str, Any]
_MOST_LESS = 0.99  # of the time of a pass


def sentences(decision: Document, complete: bool = True) -> list[str]:
    """The first one is the one to forward. complete: whether the run came to its end."""
    answer = decision["answer"]
    if answer is None:
        first = _nothing(decision) if complete else _unfinished(decision)
        told = [first, *_today(decision), *_part(decision)]
        return [*told, _demand(decision), _prices(decision)]
    told = [_headline(decision, answer)]
    if not complete:
        told.append("The run did not end: it is not known how sure this is.")
    told += [*_next(decision, answer), *_today(decision)]
    told += [*_draws(decision, answer), *_flips(decision), *_less(decision), *_shared(decision)]
    return [*told, *_part(decision), _demand(decision), _prices(decision)]


def _headline(decision: Document, answer: Document) -> str:
    rivals = decision["confidence"]["rivals"]
    load, limits = _load(decision), decision["limits"]
    kept = f"{percent(answer['attained_rate'], 1)} of the requests keep {limits} at {load}"
    if decision["sample"]:
        kept += f", in replays of {percent(decision['sample']['part'], 1)} of the trace"
    if not rivals:
        return f"Buy {answer['label']} for {_cost(decision, answer)}: {kept}."
    names = dict.fromkeys(f"{one['label']} ({_cost(decision, one)})" for one in rivals)
    others = " or ".join(names)
    why = "; ".join(dict.fromkeys(_rival(decision, one, answer) for one in rivals))
    return (
        f"Undecided between {answer['label']} ({_cost(decision, answer)}) and {others}. {kept} "
        f"with the first as modelled; {why}. {_measure(decision, answer, rivals)}"
    )


def _rival(decision: Document, one: Document, answer: Document) -> str:
    sure = decision["confidence"]
    dearer = one["cost_per_hour"] >= answer["cost_per_hour"]
    error = sure["pass_error"] + sure["sample_error"]
    error = percent(error if dearer else min(error, _MOST_LESS))
    which = "which is the error to expect"
    if sure["sample_error"]:
        which += f" and {percent(sure['sample_error'])} for the sample"
    if one["why"] == "draw":
        return "other arrivals of the same requests change the answer"
    if dearer:
        return f"passes that take {error} longer, {which}, need the second"
    return f"passes that take {error} less, {which}, make the cheaper one do"


def _measure(decision: Document, answer: Document, rivals: list[Document]) -> str:
    if all(one["why"] == "draw" for one in rivals):
        return "A longer trace of the same traffic would decide."
    names = " and ".join(dict.fromkeys(one["hardware"] for one in (answer, *rivals)))
    return f"Measured times would decide: hicache calibrate on {names}, then --hardware FILE."


def _unfinished(decision: Document) -> str:
    """The search was interrupted or failed, so cheaper candidates may serve, too."""
    serving = [one for one in decision["candidates"] if one["served"]]
    if not serving:
        return "The search did not end: nothing of what was replayed so far meets the limits."
    first = serving[0]
    return (
        "The search did not end. The cheapest machine that was seen to serve so far is "
        f"{first['label']} for {_cost(decision, first)}: {percent(first['attained_rate'], 1)} of "
        f"the requests keep {decision['limits']} at {_load(decision)}. A cheaper one may serve, "
        "too."
    )


def _nothing(decision: Document) -> str:
    tried = [one for one in decision["candidates"] if one["attained_rate"] is not None]
    told = f"Nothing that was tried meets the limits at {_load(decision)}"
    if tried:
        most = max(tried, key=lambda one: one["attained_rate"])
        return (
            f"{told}: at most {percent(most['attained_rate'], 1)} of the requests keep "
            f"{decision['limits']} with {most['label']}, and {percent(decision['attain'])} should. "
            "Try more GPUs (--most-gpus), or other limits."
        )
    failed = [one for one in decision["candidates"] if one["served"] is False]
    compared = ("hits what ", "weaker than ")  # with another one, which has a reason of its own
    alone = [one for one in decision["candidates"] if not one["why"].startswith(compared)]
    found = (failed or [one for one in alone if one["why"]])[-1:]
    even = f" Even {found[0]['label']} does not: {found[0]['why']}." if found else ""
    return (
        f"{told}: {percent(decision['attain'])} of the requests should keep {decision['limits']}."
        f"{even} Try more GPUs (--most-gpus), or other limits."
    )


def _next(decision: Document, answer: Document) -> Iterator[str]:
    second = decision["runner_up"]
    if second is not None:
        more = second["cost_per_hour"] / answer["cost_per_hour"] - 1
        cost = f"{_cost(decision, second)}, {percent(more)} more" if more else "the same price"
        yield (
            f"Next is {second['label']} for {cost}; {percent(second['attained_rate'], 1)} keep the "
            "limits."
        )


def _today(decision: Document) -> Iterator[str]:
    today, answer = decision["today"], decision["answer"]
    if today is None:
        return
    if answer is not None and today["label"] == answer["label"]:
        yield "That is today's machine."
    elif today["served"]:
        yield (
            f"Today's {today['label']} serves it, too: {percent(today['attained_rate'], 1)} keep "
            f"the limits, for {_cost(decision, today)}."
        )
    else:
        kept = today["attained_rate"]
        what = "" if kept is None else f": {percent(kept, 1)} keep the limits"
        yield f"Today's {today['label']} does not serve it{what or ': ' + today['why']}."


def _draws(decision: Document, answer: Document) -> Iterator[str]:
    drawn = [
        one["attained_rate"]
        for one in decision["confidence"]["tried"]
        if one["what"] == "draw" and one["label"] == answer["label"]
    ]
    known = [one for one in drawn if one is not None]
    if known:
        kept = span([answer["attained_rate"], *known], lambda one: percent(one, 1))
        yield f"With {len(drawn) + 1} draws of the arrivals {kept} of the requests keep the limits."


def _flips(decision: Document) -> Iterator[str]:
    told = []
    for flip in decision["confidence"]["flips"]:
        passes = flip["what"] == "passes"
        if flip["at"] is None:
            what = "with passes" if passes else "with"
            more = f"{digits(flip['holds'])} times {'as long' if passes else 'the load'}"
            told.append(f"it holds {what} {more}, and more was not tried")
            continue
        to = f", for example to {flip['to']['label']}," if flip["to"] else ""
        if passes:
            less, more = (percent(flip[name] - 1) for name in ("holds", "at"))
            told.append(f"it flips{to} if passes take {more} longer than modelled, not if {less}")
        else:
            less, more = (digits(flip[name]) for name in ("holds", "at"))
            told.append(f"it flips{to} with {more} times the load, not with {less}")
    if told:
        yield f"What changes the answer: {'; '.join(told)}."


def _less(decision: Document) -> Iterator[str]:
    """Whether something cheaper would do with less to do."""
    tried = decision["confidence"]["tried"]
    easier = [one for one in tried if one["what"] == "load" and one["factor"] < 1]
    if easier:
        factor = f"{digits(easier[0]['factor'])} times the load"
        cheap = [one for one in easier if one["served"]]
        if cheap:
            yield f"With {factor} {cheap[0]['label']} is enough."
        else:
            yield f"With {factor} nothing cheaper of what was tried is enough."


def _shared(decision: Document) -> Iterator[str]:
    """What the answer owes to an assumption about which tokens prompts share."""
    tried = {one["what"]: one for one in decision["confidence"]["tried"]}
    none, most = tried.get("sharing none"), tried.get("sharing most")
    if none and most:
        kept = [
            f"less than {percent(decision['attain'])}"
            if one["attained_rate"] is None
            else percent(one["attained_rate"], 1)
            for one in (none, most)
        ]
        holds = "The answer holds" if none["served"] else "The answer does not hold"
        yield (
            f"The log does not say which tokens prompts share: if none did, {kept[0]} of the "
            f"requests would keep the limits, and {kept[1]} if all did that could. {holds} if none "
            "did."
        )


def _part(decision: Document) -> Iterator[str]:
    """What was replayed of a long trace, and the error of that."""
    part = decision["sample"]
    if part is None:
        return
    told = (
        f"Replayed were {part['requests']:,} requests of the trace ({percent(part['part'], 1)}), "
        "whole sessions, on machines scaled to them. "
    )
    if part["hit_rate_error_most"] is not None:
        mean, most = (100 * part[f"hit_rate_error_{name}"] for name in ("mean", "most"))
        told += (
            f"On the exact curve of the whole trace such a part errs by {mean:.1f} points of hit "
            f"rate on average and {most:.1f} at most, at the memory of the candidates. "
        )
    yield (
        f"{told}The error of its times is not known: pauses within sessions and bursts are "
        f"{digits(1 / part['part'])} times shorter and make longer queues, so a cheaper machine "
        "may do. A larger --sample, or --sample 1, would say."
    )


def _demand(decision: Document) -> str:
    demand = decision["demand"]
    rate = demand["requests_per_s"]
    told = _rate(rate) if rate else "at the pace of its answers"
    return (
        f"The load: {demand['requests']:,} requests, {told}, {demand['input_tokens']:,} prompt "
        f"tokens and {demand['output_tokens']:,} to generate."
    )


def _prices(decision: Document) -> str:
    prices = decision["prices"]
    known = ", ".join(f"{name} {digits(one)}" for name, one in sorted(prices["per_hour"].items()))
    unit = f" {prices['currency']}" if prices["currency"] else ""
    return f"Prices{unit} an hour, from {prices['source']}: {known}.{_free(decision)}"


def _free(decision: Document) -> str:
    """What candidates have that has no price."""
    named = {
        "host memory (host=AMOUNT/GB/h)": ("host", "host_bytes"),
        "storage (storage=AMOUNT/GB/h)": ("storage", "stored"),
    }
    free = [
        told
        for told, (price, amount) in named.items()
        if price not in decision["prices"]["per_hour"]
        and any(one[amount] for one in decision["candidates"])
    ]
    return f" What has no price counts as free: {' and '.join(free)}." if free else ""


def _load(decision: Document) -> str:
    rate = decision["demand"]["requests_per_s"]
    return f"the load that was played, {_rate(rate)}" if rate else "this load"


def _rate(requests_per_s: float) -> str:
    told = digits(requests_per_s)
    return f"{told} request{'' if told == '1' else 's'} a second"


def _cost(decision: Document, one: Document) -> str:
    unit = decision["prices"]["currency"]
    return f"{one['cost_per_hour']:,.2f}{f' {unit}' if unit else ''} an hour"
