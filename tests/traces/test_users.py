"""More and fewer sessions (`--scale-sessions`), held to a second description of what they are.

The reference sees the requests as they were drawn: lists of tokens, names of sessions, times. It
compares every pair of requests, and knows nothing of pages' ids.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from hypothesis import strategies as st

from traces.cli import parse
from traces.formats.base import Paged, Trace
from traces.replaying.load.trace import loaded
from traces.replaying.options import ReplayOptions

from .rig import HEADER, mooncake, native, read

PAGE = 4
MS = 10**6
FACTORS = [Fraction(one) for one in ("0.1", "0.5", "0.9", "1", "1.1", "1.5", "2", "2.7")]

Token = tuple[str, int]


@dataclass(frozen=True)
class Request:
    """A request as it was drawn. tokens: prompt and output, or ids of blocks of 512. time: in ms,
    of its arrival or after the end of another request, whose place is `after`."""

    session: str
    tokens: tuple[Any, ...]
    prompt: int
    output: int
    time: int
    after: int = -1


@dataclass(frozen=True)
class Case:
    """A trace, the requests that it was written from, and its page size in tokens and elements."""

    trace: Trace
    requests: list[Request]
    page: int
    elements: int


def options(*words: str) -> ReplayOptions:
    _, found = parse(["replay", "trace", *words])
    assert isinstance(found, ReplayOptions)
    return found


def scaled(trace: Trace, factor: Fraction | str, *words: str) -> Trace:
    return loaded(options("--scale-sessions", str(float(Fraction(factor))), *words), trace)


# What is drawn


@st.composite
def of_tokens(draw: st.DrawFn) -> Case:
    """Conversations whose turns extend each other or begin anew, behind prompts that several have;
    in open and in closed loop."""
    requests: list[Request] = []
    segments: list[list[tuple[str, int]]] = []
    last: dict[str, int] = {}
    records: list[object] = [HEADER]
    time = 0
    for place in range(draw(st.integers(1, 14))):
        time += draw(st.sampled_from([0, 0, 1, 700, 5000]))
        session = f"s{draw(st.integers(0, 5))}"
        before = last.get(session, -1)
        waits = before >= 0 and draw(st.booleans())
        goes_on = before >= 0 and draw(st.integers(0, 3)) > 0
        prompt = segments[before] if goes_on else [("system", draw(st.integers(1, 9)))]
        prompt = [*prompt, (f"p{draw(st.integers(0, 3))}", draw(st.integers(1, 9)))]
        output = (f"o{place}", draw(st.integers(1, 6)))
        delay = draw(st.sampled_from([0, 3, 900]))
        at = {"after": before, "delay": delay} if waits else {"timestamp": time}
        records.append(native(*prompt, output=output, session=session, **at))
        segments.append([*prompt, output])
        last[session] = place
        tokens = tuple((name, n) for name, count in segments[-1] for n in range(count))
        requests.append(
            Request(
                session,
                tokens,
                len(tokens) - output[1],
                output[1],
                delay if waits else time,
                before if waits else -1,
            )
        )
    return Case(read(*records), requests, PAGE, PAGE)


@st.composite
def of_blocks(draw: st.DrawFn, most: int = 40) -> Case:
    """Prompts of blocks, some behind blocks that many have; the trace names no sessions."""
    walks = draw(
        st.lists(
            st.tuples(st.integers(0, 2), st.lists(st.integers(0, 4), max_size=3)),
            min_size=1,
            max_size=most,
        )
    )
    requests, records, numbers, time = [], [], dict[tuple[int, ...], int](), 0
    for common, walk in walks:
        time += draw(st.sampled_from([0, 1, 300]))
        path = (-1, *([-2] * common), *walk)
        ids = [numbers.setdefault(path[: n + 1], len(numbers)) for n in range(len(path))]
        records.append(mooncake(ids, timestamp=time))
        requests.append(Request("", tuple(ids), 512 * len(ids), 1, time))
    groups = by_prefix([one.tokens for one in requests])
    named = [
        Request(group, one.tokens, one.prompt, one.output, one.time)
        for group, one in zip(groups, requests, strict=True)
    ]
    return Case(read(*records), named, 512, 1)


def by_prefix(prompts: Sequence[tuple[Any, ...]]) -> list[str]:
    """The shortest prefix that at most eight requests, or one in a hundred, have; without one, a
    request is alone."""
    few = max(8, len(prompts) // 100)
    found = []
    for place, prompt in enumerate(prompts):
        lengths = (
            length
            for length in range(1, len(prompt) + 1)
            if sum(other[:length] == prompt[:length] for other in prompts) <= few
        )
        length = next(lengths, 0)
        found.append(str(prompt[:length]) if length else f"alone {place}")
    return found


cases = st.one_of(of_tokens(), of_blocks())
seeds = st.integers(0, 3)


# The reference


def common(one: Sequence[Any], other: Sequence[Any], elements: int) -> int:
    """The whole pages that two begin with."""
    same = 0
    while same < min(len(one), len(other)) and one[same] == other[same]:
        same += 1
    return same // elements


def held(case: Case, request: Request) -> tuple[Any, ...]:
    """What a cache can hold of a request: the last token of an output has no KV."""
    return request.tokens if case.elements == 1 else request.tokens[:-1]


def shared(case: Case, place: int) -> int:
    """The pages that a request has in common with a request of another session."""
    own = case.requests[place]
    others = [one for one in case.requests if one.session != own.session]
    return max(
        (common(held(case, own), held(case, one), case.elements) for one in others), default=0
    )


def places(trace: Trace, case: Case) -> list[int]:
    """The drawn request that each request of the trace repeats."""
    first = 2 if case.elements > 1 else 1
    return [line - first for line in trace.line_numbers]


def pages(paged: Paged, case: Case, place: int, drawn: int) -> list[bytes]:
    """The pages of a request as a cache compares them."""
    length = (
        len(held(case, case.requests[drawn]))
        if case.elements > 1
        else paged.jobs[place].input_length
    )
    key = paged.key(paged.jobs[place], length)
    return [key.raw[at : at + key.stride] for at in range(0, len(key.raw), key.stride)]


@dataclass(frozen=True)
class Play:
    """A session of a scaled trace: the drawn requests, when they arrive, and their pages."""

    drawn: tuple[int, ...]
    times: tuple[int, ...]
    contents: tuple[tuple[bytes, ...], ...]

    @property
    def begins(self) -> int:
        return self.times[0]


def plays(trace: Trace, case: Case) -> list[Play]:
    """The sessions of a trace: by its own fields, or of blocks, of which the first copy that lacks
    the request; two copies of one session never share a page that is theirs alone."""
    paged, drawn = trace.paged(case.page), places(trace, case)
    members: dict[Any, list[int]] = defaultdict(list)
    root: list[Any] = []
    for place, job in enumerate(trace.jobs):
        name = case.requests[drawn[place]].session
        if case.elements > 1:
            root.append(root[job.after] if job.after >= 0 else (name, job.session))
        else:
            own = pages(paged, case, place, drawn[place])[shared(case, drawn[place]) :]
            root.append((name, own[0][-1:] if own else place))
        members[root[place]].append(place)
    return [
        Play(
            tuple(drawn[place] for place in group),
            tuple(trace.jobs[place].arrival_ns // MS for place in group),
            tuple(tuple(pages(paged, case, place, drawn[place])) for place in group),
        )
        for group in members.values()
    ]
