"""The requests that changed most between two replays, from their files of `--requests`.

The sums of the files must be those of the documents that they belong to. Does not word settings or
totals; see changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hicache.core.errors import CallerError
from hicache.files import NUMBER, TEXT, Maybe, fit, parsed, show

from ..html.document import AGAIN, TIERS
from .sides import Side

MOST = 10
_RECORD = {
    "request": NUMBER,
    "input_tokens": NUMBER,
    "hit_tokens": dict.fromkeys(TIERS, NUMBER),
    "lost_tokens": NUMBER,
    "hit_ended_by": TEXT,
    "lost_to": Maybe(TEXT),
    "ttft_ns": Maybe(NUMBER),
    "queue_ns": Maybe(NUMBER),
}


@dataclass(frozen=True, slots=True)
class Changed:
    """One request on both sides. Times in seconds; None without a clock."""

    request: int
    input_tokens: int
    hit_tokens: tuple[int, int]
    ended_by: tuple[str, str]
    ttft_s: tuple[float, float] | None
    queue_s: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Requests:
    """more, fewer: requests that hit more or fewer tokens. most: those that changed most, by time
    to first token, or by hits where there is no clock. ended: the commonest changes of what ended
    a hit, as (before, after, requests)."""

    requests: int
    more: int
    fewer: int
    most: list[Changed]
    ended: list[tuple[str, str, int]]


def compared(paths: tuple[str, str], one: Side, other: Side) -> Requests:
    """The requests of both sides. Raises CallerError for files of other replays."""
    first, second = _read(paths[0], one), _read(paths[1], other)
    both = [number for number in first if number in second]
    if not both:
        raise CallerError(
            f"{paths[1]}: expected requests of the same trace as {paths[0]}, found none of them; "
            "name the files of both replays"
        )
    changed = [_changed(first[number], second[number]) for number in both]
    differing = [item for item in changed if item.hit_tokens[0] != item.hit_tokens[1]]
    ended = Counter(item.ended_by for item in changed if item.ended_by[0] != item.ended_by[1])
    return Requests(
        requests=len(both),
        more=sum(item.hit_tokens[1] > item.hit_tokens[0] for item in differing),
        fewer=sum(item.hit_tokens[1] < item.hit_tokens[0] for item in differing),
        most=sorted(changed, key=_size)[:MOST],
        ended=[(*pair, times) for pair, times in ended.most_common(MOST)],
    )


def _size(item: Changed) -> tuple[float, int]:
    if item.ttft_s is not None:
        return -abs(item.ttft_s[1] - item.ttft_s[0]), item.request
    return -abs(item.hit_tokens[1] - item.hit_tokens[0]), item.request


def _changed(one: Mapping[str, Any], other: Mapping[str, Any]) -> Changed:
    def both(key: str) -> tuple[float, float] | None:
        if one[key] is None or other[key] is None:
            return None
        return one[key] / 1e9, other[key] / 1e9

    return Changed(
        request=one["request"],
        input_tokens=one["input_tokens"],
        hit_tokens=(sum(one["hit_tokens"].values()), sum(other["hit_tokens"].values())),
        ended_by=(one["lost_to"] or one["hit_ended_by"], other["lost_to"] or other["hit_ended_by"]),
        ttft_s=both("ttft_ns"),
        queue_s=both("queue_ns"),
    )


def _read(path: str, side: Side) -> dict[int, Mapping[str, Any]]:
    """The records by request; their hits must be those of the side's document."""
    found: dict[int, Mapping[str, Any]] = {}
    hits = total = 0
    try:
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                record = fit(_parsed(path, number, line), _RECORD, f"{path}:{number}", AGAIN)
                found[record["request"]] = record
                hits += sum(record["hit_tokens"].values())
                total += record["input_tokens"]
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no UTF-8"
        raise CallerError(
            f"{path}: expected a file of `hicache replay --requests`, found: {reason}; name another"
        ) from None
    rate = side.figures["hit_rate"] or 0.0
    if not total or abs(hits / total - rate) > 1e-9:
        raise CallerError(
            f"{path}: expected the requests of {side.label}, with a hit rate of {rate:.6f}, found "
            f"{hits / total if total else 0:.6f}; name the files in the order of the documents"
        )
    return found


def _parsed(path: str, number: int, line: str) -> object:
    try:
        return parsed(line)
    except ValueError:
        raise CallerError(
            f"{path}:{number}: expected one JSON object a line, found {show(line)}; name a file "
            "of `hicache replay --requests`"
        ) from None
