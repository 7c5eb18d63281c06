"""Results of the serving benchmarks of vLLM (--save-detailed) and SGLang (--output-details).

Fields of a run: input_lens and output_lens, one for each request; start_times (seconds), where the
version writes them. Nothing says which prompts begin alike. Without start_times all requests arrive
at once. Requests without output failed, and are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from . import base
from ._documents import elements
from ._rows import About, Head, Row
from .base import Lines, Record

SUMMARY = "results of vLLM's and SGLang's serving benchmarks: input_lens, output_lens; lengths only"

SAMPLE = """\
{"backend": "vllm", "num_prompts": 2, "completed": 2, "input_lens": [600, 1000], \
"output_lens": [3, 1], "start_times": [7.5, 8.0]}
"""

_FAILED = "requests without output were left out; they failed."
_AT_ONCE = "requests arrive at once: the file does not say when they started."


def recognises(head: Head) -> bool:
    return {"input_lens", "output_lens"} <= head.keys and not head.is_list


def rows(files: Iterable[Lines], about: About) -> Iterator[Row]:
    for lines in about.each(files):
        about.lengths_only()
        runs = elements(lines)
        run = next(runs)
        yield from _requests(lines, about, run)
        for _ in runs:
            lines.wrong("one run in the file", "another one", "put each run into a file of its own")


def _requests(lines: Lines, about: About, run: Record) -> Iterator[Row]:
    inputs = _list(lines, run, "input_lens", -1)
    outputs = _list(lines, run, "output_lens", len(inputs))
    starts: list[Any] = []
    if run.get("start_times"):
        starts = _list(lines, run, "start_times", len(inputs))
    order = range(len(inputs))
    times = [0] * len(inputs)
    for place, value in enumerate(starts):
        lines.element = f"start_times[{place}]"
        times[place] = base.nanoseconds(lines, {"start": value}, "start", base.NS_PER_S)
    first_ns = min(times, default=0)
    for place in sorted(order, key=times.__getitem__):
        lines.number = place + 1
        if outputs[place] == 0:
            about.notes[_FAILED] += 1
            continue
        if not starts:
            about.notes[_AT_ONCE] += 1
        lengths = []
        for name, values in (("input_lens", inputs), ("output_lens", outputs)):
            lines.element = f"{name}[{place}]"
            most = base.MAX_REQUEST_TOKENS
            lengths.append(base.integer(lines, {name: values[place]}, name, 1, most))
        yield Row(times[place] - first_ns, lengths[0], lengths[1])
    lines.element = ""


def _list(lines: Lines, run: Record, field: str, count: int) -> list[Any]:
    """A list of `count` elements; -1 for any number, but not none."""
    found = run.get(field)
    if type(found) is not list or (count < 0 and not found):
        lines.wrong_field(run, field, "a list with one element for each request")
    if count not in (-1, len(found)):
        lines.wrong(f"{count} {field}, as many as input_lens", str(len(found)), "correct the file")
    return found
