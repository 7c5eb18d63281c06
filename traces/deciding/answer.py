"""The sentences of a purchase: what to buy, what it costs and serves, how sure that is, and what
would change it. From the `decision` of a report alone; docs/json.md has its keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ..reporting.amounts import digits, percent, span

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


def in_words(decision: Document, complete: bool = True) -> dict[str, list[str]]:
    """The same in the parts that a reader asks for, shorter: `answer`, `load`, `cost`, `sure`, and
    `next`, what to do now. The first text of `answer` and of `sure` is its heading. complete:
    whether the search came to its end."""
    answer, rivals = decision["answer"], decision["confidence"]["rivals"]
    if not complete:
        known = [] if answer is None else [f"Until then {answer['label']} was the cheapest."]
        return {
            "answer": ["No answer yet", "The search was interrupted.", *known],
            "load": [*_short_load(decision)],
            "cost": [*_cheapest(decision), _source(decision)],
            "sure": ["Not at all", _tried(decision)],
            "next": ["Run the command again; with --points FILE it goes on where it was."],
        }
    if answer is None:
        return {
            "answer": ["Nothing that was tried meets the limits", *_short_of(decision)],
            "load": [*_short_load(decision)],
            "cost": [*_cheapest(decision), _source(decision)],
            "sure": ["Sure, for what was offered", _tried(decision)],
            "next": [*_look_further(decision)],
        }
    names = " or ".join(dict.fromkeys(one["label"] for one in (answer, *rivals)))
    which = f" with {answer['label']}" if rivals else ""
    kept = (
        f"{percent(answer['attained_rate'], 1)} of the requests keep {decision['limits']}{which}; "
        f"{percent(decision['attain'])} must."
    )
    sure = [*_draws(decision, answer), *_flips(decision), *_less(decision), *_shared(decision)]
    dearer = [one for one in rivals if one["cost_per_hour"] >= answer["cost_per_hour"]]
    reasons = [*_reasons(decision, answer)]
    if _is_open(decision) and not dearer:
        names += " or something stronger"
        reasons.append(_open_reason(decision))
    sure[:0] = [f"{text[0].upper()}{text[1:]}." for text in reasons]
    buy = f"Buy {names} for {_cost(decision, answer)}"
    return {
        "answer": [
            f"Undecided: {names}" if reasons else buy,
            _gloss(answer),
            kept,
            *_today(decision),
        ],
        "load": [*_short_load(decision)],
        "cost": [*_costs(decision, answer), *_next(decision, answer), _source(decision)],
        "sure": [
            "Undecided" if reasons else _ASSUMED if _is_assumed(decision) else "Decided",
            *sure,
            *_part(decision),
            *_few(decision),
            _tried(decision),
        ],
        "next": [*_to_do(decision, answer)],
    }


def _headline(decision: Document, answer: Document) -> str:
    rivals = decision["confidence"]["rivals"]
    load, limits = _load(decision), decision["limits"]
    kept = f"{percent(answer['attained_rate'], 1)} of the requests keep {limits} at {load}"
    if decision["sample"]:
        kept += f", in replays of {percent(decision['sample']['part'], 1)} of the trace"
    if not rivals and _is_open(decision):
        return (
            f"Undecided between {answer['label']} ({_cost(decision, answer)}) and something "
            f"stronger. {kept} with the first as modelled; {_open_reason(decision)}. "
            f"{_measure(decision, answer, rivals)}"
        )
    if not rivals:
        return f"Buy {answer['label']} for {_cost(decision, answer)}: {kept}."
    names = dict.fromkeys(f"{one['label']} ({_cost(decision, one)})" for one in rivals)
    others = " or ".join(names)
    why = "; ".join(_reasons(decision, answer))
    return (
        f"Undecided between {answer['label']} ({_cost(decision, answer)}) and {others}. {kept} "
        f"with the first as modelled; {why}. {_measure(decision, answer, rivals)}"
    )


def _reasons(decision: Document, answer: Document) -> Iterator[str]:
    """Why it is undecided."""
    rivals = decision["confidence"]["rivals"]
    yield from dict.fromkeys(_rival(decision, one, answer) for one in rivals)


def _open_reason(decision: Document) -> str:
    error = percent(_error(decision))
    return f"passes that take {error} longer, which is {_which(decision)}, need something stronger"


def _error(decision: Document) -> float:
    """Of a pass, and of what was sampled."""
    return float(decision["confidence"]["pass_error"] + decision["confidence"]["sample_error"])


def _which(decision: Document) -> str:
    sample = decision["confidence"]["sample_error"]
    return "the error to expect" + (f" and {percent(sample)} for the sample" if sample else "")


def _is_open(decision: Document) -> bool:
    """Whether the answer does not serve any more within the error to expect of passes, so that
    something dearer may be needed, whether it was found or not."""
    most = 1 + _error(decision)
    return any(
        flip["what"] == "passes" and flip["at"] is not None and flip["at"] <= most
        for flip in decision["confidence"]["flips"]
    )


def _rival(decision: Document, one: Document, answer: Document) -> str:
    dearer = one["cost_per_hour"] >= answer["cost_per_hour"]
    error = percent(_error(decision) if dearer else min(_error(decision), _MOST_LESS))
    which = f"which is {_which(decision)}"
    if one["why"] == "draw":
        return "other arrivals of the same requests change the answer"
    if one["why"] == "sample":
        return "another part of the trace may change the answer"
    if dearer:
        return f"passes that take {error} longer, {which}, need the second"
    return f"passes that take {error} less, {which}, make the cheaper one do"


def _measure(decision: Document, answer: Document, rivals: list[Document]) -> str:
    if rivals and all(one["why"] == "draw" for one in rivals):
        return "A longer trace of the same traffic would decide."
    if rivals and all(one["why"] == "sample" for one in rivals):
        return "A larger --sample would decide."
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
    nearest = _nearest(decision)
    told = f"Nothing that was tried meets the limits at {_load(decision)}"
    if nearest is not None:
        kept, must = percent(nearest["attained_rate"], 1), percent(decision["attain"])
        return (
            f"{told}: at most {kept} of the requests keep {decision['limits']} with "
            f"{nearest['label']}, and {must} should. {_advice(decision)}"
        )
    failed = [one for one in decision["candidates"] if one["served"] is False]
    compared = ("hits what ", "weaker than ")  # with another one, which has a reason of its own
    alone = [one for one in decision["candidates"] if not one["why"].startswith(compared)]
    found = (failed or [one for one in alone if one["why"]])[-1:]
    even = f" Even {found[0]['label']} does not: {found[0]['why']}." if found else ""
    return (
        f"{told}: {percent(decision['attain'])} of the requests should keep {decision['limits']}."
        f"{even} {_advice(decision)}"
    )


def _advice(decision: Document) -> str:
    if _is_impossible(decision):
        return "Ask for a longer limit of TTFT, or offer faster accelerators (--hardware)."
    return "Try more GPUs (--most-gpus), or other limits."


def _gloss(one: Document) -> str:
    """A candidate for readers who do not know its label."""
    ranks = one["gpus"] // one["replicas"]
    split = "" if ranks == 1 else ", split over them"
    copies = f"{one['replicas']} copies of the model (replicas), each {_gpus(ranks)}"
    what = f"one copy of the model{split}" if one["replicas"] == 1 else copies
    host = "with host memory" if one["host_bytes"] else "no host memory"
    return f"{one['label']}: {_gpus(one['gpus'])} of the kind {one['hardware']}, {what}, {host}."


def _gpus(count: int) -> str:
    return f"{count} GPU{'s' * (count > 1)}"


_ASSUMED = "Decided only if prompts share what was assumed"


def _is_assumed(decision: Document) -> bool:
    """Whether the answer needs an assumption about what the prompts of a log share."""
    tried = decision["confidence"]["tried"]
    return any(one["what"] == "sharing none" and not one["served"] for one in tried)


def _few(decision: Document) -> Iterator[str]:
    count = decision["demand"]["requests"]
    if 0 < count < _FEW:
        yield f"{count} requests are few: one of them is {percent(1 / count, 1)} of all."


_FEW = 100


def _short_of(decision: Document) -> Iterator[str]:
    """How far the best that was tried is from serving."""
    nearest = _nearest(decision)
    failed = [one for one in decision["candidates"] if one["why"][:4] not in ("", "hits")]
    must = f"{percent(decision['attain'])} of the requests must keep {decision['limits']}"
    if nearest is None and failed:
        yield f"{must}; but even with {failed[-1]['label']}: {failed[-1]['why']}."
    elif nearest is None:
        yield f"{must}; no replay came to its end, since too many requests missed them."
    else:
        kept = percent(nearest["attained_rate"], 1)
        yield f"{must}; with {nearest['label']}, the best of what was tried, {kept} do."
    yield from _today(decision)


def _nearest(decision: Document) -> Document | None:
    tried = [one for one in decision["candidates"] if one["attained_rate"] is not None]
    return max(tried, key=lambda one: float(one["attained_rate"]), default=None)


def _is_impossible(decision: Document) -> bool:
    """Whether no machine that was offered is fast enough for the prompts, even for one alone."""
    every = decision["candidates"]
    alone, machines = (
        {(one["hardware"], one["tp"], one["pp"]) for one in found}
        for found in ([one for one in every if one["why"].endswith(ALONE)], every)
    )
    return alone == machines


def _look_further(decision: Document) -> Iterator[str]:
    """What to do where nothing serves."""
    if _is_impossible(decision):
        yield (
            "Ask for a longer limit of TTFT, or offer faster accelerators: too many prompts miss "
            "it even when each is alone on a machine, so that more replicas or memory cannot help."
        )
        return
    most = max((one["gpus"] for one in decision["candidates"]), default=0)
    yield (
        f"Search again with more GPUs than the {most} that were offered (--most-gpus), with other "
        "accelerators (--hardware, --price), or with longer limits (--slo)."
    )


def _cheapest(decision: Document) -> Iterator[str]:
    costs = [one["cost_per_hour"] for one in decision["candidates"]]
    if costs:
        unit = decision["prices"]["currency"]
        yield (
            f"{len(costs)} machines were offered, for {min(costs):,.2f} to {max(costs):,.2f}"
            f"{f' {unit}' if unit else ''} an hour."
        )


def _costs(decision: Document, answer: Document) -> Iterator[str]:
    rivals = {one["label"]: one for one in decision["confidence"]["rivals"]}
    for one in (answer, *rivals.values()):
        hours = f"{_HOURS * one['cost_per_hour']:,.0f} a month of {_HOURS} hours"
        yield f"{one['label']}: {_cost(decision, one)} ({hours})."


_HOURS = 730
ALONE = "alone on it"  # ends the reason of a machine on which too many prompts are too slow


def _tried(decision: Document) -> str:
    error = percent(decision["confidence"]["pass_error"])
    count, replays = len(decision["candidates"]), decision["replays"]
    if decision["answer"] is None:
        how = f"with {replays} replays of the log" if replays else "and none needs a replay"
        return f"{count} machines were compared, {how}."
    kind = (
        "the error to expect"
        if decision["confidence"]["judged"]
        else "an assumed error, since nobody has judged times on this accelerator"
    )
    return (
        f"Times are simulated; a pass, one step of the model, errs by {error} ({kind}). {count} "
        f"machines were compared, with {replays} replays of the log."
    )


def _to_do(decision: Document, answer: Document) -> Iterator[str]:
    rivals = decision["confidence"]["rivals"]
    if rivals or _is_open(decision):
        yield _measure(decision, answer, rivals)
        safe = max((answer, *rivals), key=lambda one: float(one["cost_per_hour"]))
        if safe is answer and _is_open(decision):
            yield from _more_room(decision, answer)
        else:
            yield f"If it cannot wait, {safe['label']} is the safer choice."
        return
    if _is_assumed(decision):
        yield (
            "First find out what prompts share, for example from the prefix hits that the server "
            "counts; --growth, --shared-prefix and --sharing set it. Then search again."
        )
        return
    yield (
        "Order it, or rent it for a day first and play this log on it: the times of this report "
        "are simulated."
    )
    rate = decision["demand"]["requests_per_s"]
    for flip in decision["confidence"]["flips"]:
        if flip["what"] == "load" and flip["at"] is not None:
            when = f", {digits(flip['holds'] * rate)} requests a second" if rate else ""
            yield f"Search again before the load is {digits(flip['holds'])} times this one{when}."


def _more_room(decision: Document, answer: Document) -> Iterator[str]:
    """The cheapest that was seen to serve and that more requests keep the limits on, where nothing
    was seen to serve with longer passes."""
    for one in sorted(decision["candidates"], key=lambda one: float(one["cost_per_hour"])):
        more = one["served"] and one["attained_rate"] > answer["attained_rate"] + _CLEARLY
        if more and one["cost_per_hour"] >= answer["cost_per_hour"]:
            yield (
                f"If it cannot wait, {one['label']} has more room, for {_cost(decision, one)}: "
                f"{percent(one['attained_rate'], 1)} keep the limits as modelled. It was not "
                "replayed with longer passes."
            )
            return


_CLEARLY = 0.01  # of the requests


def _short_load(decision: Document) -> Iterator[str]:
    demand = decision["demand"]
    rate, count = demand["requests_per_s"], demand["requests"]
    if rate:
        span = count / rate
        time = f"{span / 3600:.3g} hours" if span >= 5400 else f"{span / 60:.3g} minutes"
        yield f"{digits(rate)} requests a second: {count:,} requests in {time}."
    else:
        yield f"{count:,} requests; a session sends its next one when it has the answer."
    if count:
        inputs, outputs = (round(demand[f"{name}_tokens"] / count) for name in ("input", "output"))
        yield f"A prompt has {inputs:,} tokens and an answer {outputs:,}, on average."


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
        rates = [answer["attained_rate"], *known]
        kept = span(rates, lambda one: percent(one, 1))
        if len({percent(one, 1) for one in rates}) == 1:
            kept = percent(rates[0], 1)
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
        "whole sessions, as a shorter trace of the same traffic. "
    )
    if part["hit_rate_error_most"] is not None:
        mean, most = (100 * part[f"hit_rate_error_{name}"] for name in ("mean", "most"))
        told += (
            f"On the exact curve of the whole trace such a part errs by {mean:.1f} points of hit "
            f"rate on average and {most:.1f} at most, at the memory of the candidates. "
        )
    if part["attained_error"] is not None:
        told += (
            "Another part, or the whole, would have up to "
            f"{100 * part['attained_error']:.1f} points more or fewer requests that keep the "
            "limits with this machine, 19 times of 20. "
        )
    yield told.rstrip()


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


def _source(decision: Document) -> str:
    return f"Prices are from {decision['prices']['source']}."


def _load(decision: Document) -> str:
    rate = decision["demand"]["requests_per_s"]
    return f"the load that was played, {_rate(rate)}" if rate else "this load"


def _rate(requests_per_s: float) -> str:
    told = digits(requests_per_s)
    return f"{told} request{'' if told == '1' else 's'} a second"


def _cost(decision: Document, one: Document) -> str:
    unit = decision["prices"]["currency"]
    return f"{one['cost_per_hour']:,.2f}{f' {unit}' if unit else ''} an hour"
