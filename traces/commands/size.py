"""`hicache size`: the cheapest machine that serves the whole trace within limits (`--slo`), in one
report. Takes the options of `hicache replay`.
"""

import sys
from dataclasses import dataclass
from typing import Any, Self

from hicache.core.errors import CallerError

from ..replaying.options import HOST_SIZES, ReplayOptions
from ..sizing.answer import show
from ..sizing.candidates import STORAGE, Purchase
from ..sizing.search import decision
from ..sweeping.points import How
from ..terminal import options as read
from ..terminal.options import Option, option, rows
from ..terminal.output import check_outputs
from ._options import WorkerOptions, of_replay

_WITHOUT = (*HOST_SIZES, *STORAGE, "hardware", "tp", "replicas", "pp")
EPILOG = (
    "Example: `hicache size trace.jsonl --slo ttft=2s,tpot=50ms -o report.html` says which machine "
    "to buy. docs/sizing.md has the rules."
)


@dataclass(frozen=True, kw_only=True)
class Options(Purchase, WorkerOptions):
    """replay: has none of what the search chooses."""

    replay: ReplayOptions
    output: str | None = option("write the report (HTML) here", *read.OUTPUT, short="-o")
    json: str | None = option(
        "also write the document that the report is drawn from; - is stdout", *read.OUTPUT
    )
    points: str | None = option(
        "keep each point here when it is done (JSON lines), and do only what is missing", *read.FILE
    )

    @classmethod
    def declared(cls) -> list[Option]:
        return [*rows(cls), *of_replay(without=_WITHOUT)]

    @classmethod
    def made(cls, values: dict[str, Any], texts: dict[str, str]) -> Self:
        own = {option.name: values.pop(option.name) for option in rows(cls)}
        return cls(**own, replay=ReplayOptions(**values))


def run(options: Options, command: str) -> int:
    replay_options = options.replay
    named = {"output": options.output, "json": options.json, "points": options.points}
    check_outputs(replay_options.inputs, **named)
    if replay_options.slo is None:
        raise CallerError(
            "--slo: expected the limits that requests must keep, found none; give them, such as "
            "--slo ttft=2s,tpot=50ms"
        )
    if replay_options.mode != "timed":
        raise CallerError(
            "--mode hits: a machine is judged by its times; leave it out, or take hicache sweep"
        )
    options.check(replay_options)
    out = sys.stderr if "-" in (options.output, options.json) else sys.stdout
    how = How(options.executor, options.jobs or 0, options.points, "size")
    result = decision(replay_options, options, how, command)
    if result.ended.error is not None and not result.answers:
        raise result.ended.error  # a fault of every replay: there is nothing to show
    show(result, command, out, options.output, options.json)
    return result.ended.ended()
