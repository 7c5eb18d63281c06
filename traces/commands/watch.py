"""`hicache watch`: a running server beside the model, and what more memory would have brought.

Reads the metrics of a vLLM or SGLang server at intervals, follows its request log, and predicts the
same traffic now and then. It ends after a time, or at Ctrl-C, with a summary. Does not parse
metrics, predict or draw (see traces/watching).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TextIO

from rich.live import Live

from hicache.core.errors import CallerError

from ..replaying.options import OPTIONS
from ..reporting.head import head
from ..terminal import options as read
from ..terminal.output import check_outputs, write_json
from ..terminal.rows import add_rows, option
from ..terminal.signals import INTERRUPTED
from ..terminal.streams import ignore_broken_pipe
from ..terminal.tables import console, print_sentences
from ..watching import showing
from ..watching.predicting import Asked, Begun, Log, Predictor, lines_of, log_at, with_sizes
from ..watching.readings import Measured, Reading, between
from ..watching.readings import read as read_page
from ..watching.scraping import Unread, Url, scrape, url_of
from ..watching.showing import Shown
from ._options import OfReplays

SUMMARY = "watch a vLLM or SGLang server beside the model: hits, times, what more memory brings"
GROUP = "plan"
COMPILED = True
NS_PER_S = 1_000_000_000
_LINE_EVERY_S = 60.0
_FIRST_S = 10.0  # before the first prediction
_PART = 4  # predictions run for at most one in so much of the time
_PATIENCE_S = 5.0  # for the last prediction, before it is said that it takes a while
_HEADINGS = ("model, hardware", "cache", "host memory", "components")
_WITHOUT = ("pin", "ttl")


def _url(text: str) -> Url:
    try:
        return url_of(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


@dataclass(frozen=True, kw_only=True)
class Options(OfReplays):
    """lasts, interval: nanoseconds."""

    url: Url = option(
        "the server, such as http://127.0.0.1:8000; /metrics is added where there is no path",
        _url,
        "URL",
        positional=True,
        common=True,
    )
    log: str | None = option(
        "its request log, followed as it grows: of vLLM --enable-log-requests with "
        "VLLM_LOGGING_LEVEL=DEBUG, of SGLang --log-requests --log-requests-format json "
        "--log-requests-level 3",
        *read.FILE,
        common=True,
    )
    lasts: int = option(
        "how long, such as 10m; Ctrl-C ends it, too (default: 1h)",
        read.at_least(1, read.duration_ns),
        "TIME",
        named="--for",
        default=3600 * NS_PER_S,
        common=True,
    )
    interval: int = option(
        "time between two scrapes (default: 5s)",
        read.at_least(1_000_000, read.duration_ns),
        "TIME",
        default=5 * NS_PER_S,
        common=True,
    )
    once: bool = option("one scrape: all since the server was started", default=False, common=True)
    json: str | None = option("also write the result; - is stdout", *read.OUTPUT, common=True)


def add_options(parser: argparse.ArgumentParser) -> None:
    add_rows(
        parser,
        [one for one in OPTIONS if one.heading.startswith(_HEADINGS) and one.name not in _WITHOUT],
    )


def run(options: Options, command: str) -> int:
    check_outputs({"log": options.log, **options.replay.files}, json=options.json)
    out = sys.stderr if options.json == "-" else sys.stdout
    watch = _Watch(options, out)
    interrupted = False
    try:
        if not options.once:
            watch.follow()
    except KeyboardInterrupt:
        interrupted = True
    shown = watch.ended()
    with ignore_broken_pipe():
        console(out).print(showing.table_of(shown))
        print_sentences("In words", showing.sentences(shown), out)
    if options.json:
        found = head(command, complete=not interrupted) | showing.document(shown)
        write_json(options.json, found)
    return INTERRUPTED if interrupted else 0


class _Watch:
    """One server that is watched."""

    def __init__(self, options: Options, out: TextIO) -> None:
        """Reads the server and the log once. Raises CallerError if there is neither."""
        self._options, self._screen = options, console(out)
        self._predictor = Predictor()
        self._restarts = 0
        self._said: set[str] = set()
        self._trouble = ""
        try:
            self._now = read_page(scrape(options.url))
        except Unread as error:
            raise CallerError(f"{options.url}: {error}") from None
        self._log: Log | None = self._look()
        self._begin(self._now, anew=options.once)
        self._last = self._now

    # -- reading

    def _look(self) -> Log | None:
        """The log as it is now. Raises CallerError."""
        path = self._options.log
        return None if path is None else log_at(path, self._now.server.name)

    def _begin(self, before: Reading, anew: bool) -> None:
        """Counting begins here; anew: with all since the server was started."""
        self._predictor.forget()
        self._since = self._read_at = time.monotonic()
        self._first: Reading | None = None if anew else before
        self._anew = anew
        if self._log is not None:
            self._begun = Begun(lines_of(self._log), before.known, anew)
        self._predicted_at = self._since - (_PART - 1) * _FIRST_S  # the first one comes soon
        self._predicted: Log | None = None

    def _read(self) -> None:
        """One scrape, and a look at the log. What fails is said once, and the watch goes on."""
        try:
            now = read_page(scrape(self._options.url))
        except Unread as error:
            self._say(f"{self._options.url}: {error}; trying again.")
            return
        self._trouble, self._read_at = "", time.monotonic()
        if not now.follows(self._now):
            self._restarts += 1
            self._say("The server was started anew: its cache was empty, and counting begins here.")
            self._trouble = ""
            self._log = self._look() if self._log is not None else None
            self._begin(now, anew=True)
            self._last = now
        self._now = now
        if self._log is None:
            return
        try:
            log = self._look()
        except CallerError as error:
            self._say(f"{error}; trying again.")
            return
        assert log is not None
        if log.file != self._log.file or log.end < self._log.end:
            self._say("The log began anew: only what it has from here on counts.")
            self._trouble = ""
            self._log = log._replace(end=0)
            self._begin(now, anew=False)
            self._last = now
        self._log = log

    def _say(self, trouble: str) -> None:
        """Says what does not work, when it begins."""
        if trouble == self._trouble:
            return
        self._trouble = trouble
        with ignore_broken_pipe():
            self._screen.print(trouble, soft_wrap=True)

    # -- predicting

    def _asked(self) -> Asked:
        assert self._log is not None
        now, options = self._now, self._options.replay
        host = now.gauges.get("host_tokens")
        sized = with_sizes(
            options,
            now.server.name,
            now.page_tokens,
            now.capacity_tokens,
            None if host is None else int(host),
        )
        ended, generated = (now.counters.get(name) for name in ("requests", "generated_tokens"))
        output = round(generated / ended) if ended and generated else None
        measured = between(self._first, now).hit_rate
        return Asked(sized, self._log, self._begun, output, measured)

    def _predict(self) -> None:
        """Begins a prediction if the log has grown and the last one was long enough ago."""
        if self._log is None or self._predictor.busy:
            return
        found = self._predictor.found
        pause = _PART * max(_FIRST_S, found.took_s if found else 0.0)
        if self._log == self._predicted or time.monotonic() < self._predicted_at + pause:
            return
        self._predicted, self._predicted_at = self._log, time.monotonic()
        self._predictor.begin(self._asked())

    # -- showing

    def _shown(self) -> Shown:
        failed = f"Not predicted: {self._predictor.failed}" if self._predictor.failed else ""
        notes = [*showing.missing_of(self._now), *self._now.odd, failed, self._trouble]
        options = self._options
        return Shown(
            url=options.url,
            reading=self._now,
            measured=between(self._first, self._now),
            seconds=self._read_at - self._since,
            whole=self._anew,
            log=options.log,
            predicted=self._predictor.found,
            times=options.replay.model is not None,
            restarts=self._restarts,
            notes=[note for note in notes if note],
        )

    def follow(self) -> None:
        """Reads and shows until the time is over."""
        end = time.monotonic() + self._options.lasts / NS_PER_S
        interval = self._options.interval / NS_PER_S
        line_at = time.monotonic() + _LINE_EVERY_S
        with self._live() as live:
            while (left := end - time.monotonic()) > 0:
                time.sleep(min(interval, left))
                self._read()
                self._predict()
                if live is not None:
                    live.update(showing.table_of(self._shown(), brief=True), refresh=True)
                elif time.monotonic() >= line_at:
                    line_at += _LINE_EVERY_S
                    self._line()

    @contextmanager
    def _live(self) -> Iterator[Live | None]:
        """The table on a terminal; None elsewhere."""
        if not self._screen.is_terminal:
            yield None
            return
        first = showing.table_of(self._shown(), brief=True)
        with Live(first, console=self._screen, auto_refresh=False, transient=True) as live:
            yield live

    def _line(self) -> None:
        """Prints what happened since the last line, if there was a scrape."""
        if self._now is self._last:
            return
        with ignore_broken_pipe():
            last: Measured = between(self._last, self._now)
            self._screen.print(showing.line_of(self._shown(), last), soft_wrap=True)
        self._last = self._now

    def ended(self) -> Shown:
        """The end: one more scrape, and a prediction of all that the log has."""
        self._predictor.stop()
        if not self._options.once:
            self._read()
        if self._log is not None:
            self._predictor.begin(self._asked())
            said = time.monotonic() + _PATIENCE_S

            def waiting() -> None:
                nonlocal said
                if time.monotonic() > said:
                    said += _LINE_EVERY_S
                    print("predicting all that the log has", file=sys.stderr, flush=True)

            self._predictor.wait(waiting)
        return self._shown()
