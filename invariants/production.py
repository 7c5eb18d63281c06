"""Checks a core that serves, for a small share of the time, and keeps its last events.

Now and then the state is validated, and a window of events is compared with the specification,
which begins at the state of then. The longer that took, the later the next window begins. The state
is kept every minute, with the events since the minute before. After a failure they are written, and
`hicache fuzz --replay` compares all of them:

    {"hicache_events": 1, "config": {...}, "failure": [kind, text]}
    {"tick": 7, "nodes": [...], ...}                              the state before the events
    ["Arrived", [...], [["Matched", [...]], ...], [[64, 64], ...], [5, ...]]
    {"tick": 9, ...}                                              after them; null if it is unknown

An event has its outcomes, pages free and available after it, and the nodes that it has touched;
nothing if the core failed in it.
"""

import json
from collections import deque
from collections.abc import Callable, Sequence
from shlex import quote
from tempfile import NamedTemporaryFile
from types import SimpleNamespace
from typing import Any, NamedTuple, get_args

import msgspec
import numpy as np

from hicache.core.actions import Outcome
from hicache.core.config import Config
from hicache.core.errors import CallerError
from hicache.core.events import Event
from hicache.core.node import Node
from hicache.core.types import Key
from hicache.core.view import CoreView
from hicache.runtime.config_document import config_of, written

from .differential import TIERS, WINDOW, DifferentialChecker
from .shadow.story import Story

SHARE = 0.02  # of the time that passes
KEPT_S, KEPT_EVENTS = 60.0, 10_000  # of a recording
FORMAT = "hicache_events"
BEGIN = f'{{"{FORMAT}"'  # of a file
_KINDS = {kind.__name__: kind for kind in (*get_args(Event), *get_args(Outcome))}
_NOT_READ = {"transfer", "shared_node", "known_node"}  # of other records
_OF_NODES = (
    *("id", "parent", "key", "label", "end_page", "pages", "last_use", "inserted", "hits"),
    *("priority", "store_failures", "host_refused"),
)


class _Recording(NamedTuple):
    """Events from a state on, as lines of a file. began_s: when."""

    state: str
    began_s: float
    rows: list[str]


class Production:
    """Observes a core, and raises what it finds. validate: that of the core. folder: for files of
    events; empty: that of the system. now_s: seconds of a clock that never goes back. spent_s:
    seconds that this has taken."""

    def __init__(
        self,
        view: CoreView,
        validate: Callable[[], None],
        folder: str,
        now_s: Callable[[], float],
        notice: Callable[[str], object],
    ) -> None:
        self._view, self._validate, self._folder = view, validate, folder
        self._now_s, self._notice = now_s, notice
        self._recordings: deque[_Recording] = deque(maxlen=2)
        self._window: DifferentialChecker | None = None
        self._event: Event | None = None  # that the core has not answered
        self._born_s = self._began_s = now_s()  # this, and the last window
        self._cost_s = self.spent_s = 0.0  # since then; in all
        self._unfit = ""

    def on_event(self, event: Event, view: CoreView) -> None:
        began_s = self._now_s()
        if (
            self._window is None
            and self._cost_s <= SHARE * (began_s - self._began_s)
            and self.spent_s + self._cost_s <= SHARE * (began_s - self._born_s)
        ):
            self._began_s, self._cost_s = began_s, 0.0
            self._begin(view)
        self._event = event
        self._count(began_s)

    def on_outcomes(self, event: Event, outcomes: Sequence[Outcome], view: CoreView) -> None:
        began_s, self._event = self._now_s(), None
        if self._recordings:
            rows = self._recordings[-1].rows
            answers = [(type(item).__name__, item) for item in outcomes]
            nodes = [*view.touched]
            rows.append(_line((type(event).__name__, event, answers, _pools(view), nodes)))
            if len(rows) > KEPT_EVENTS and self._window is None:
                self._recordings.clear()
        if self._window is not None:
            self._window.on_outcomes(event, outcomes, view)
            if self._window.compared == WINDOW:
                self._window = None
        self._count(began_s)

    def _count(self, began_s: float) -> None:
        spent_s = self._now_s() - began_s
        self.spent_s += spent_s
        self._cost_s += spent_s

    def _begin(self, view: CoreView) -> None:
        """Validate the state, and begin a window if the specification can read it."""
        self._validate()
        if self._unfit:
            return
        try:
            window = DifferentialChecker(view.config, every=WINDOW, view=view)
            if not self._recordings or self._began_s - self._recordings[-1].began_s > KEPT_S:
                self._recordings.append(_Recording(_state_of(view), self._began_s, []))
            self._unfit = window.unspecified
        except Exception as error:
            self._unfit = ": ".join(_named(error))
        if self._unfit:
            self._recordings.clear()
            self._notice(f"hicache: check: states are validated, and no events: {self._unfit}")
        else:
            self._window = window

    def report(self, failure: Exception) -> None:
        """Write the events, and tell of the failure."""
        kind, text = _named(failure)
        story, components = Story(), self._view.config.components
        for number, line in enumerate(self._rows(), 1):
            event, outcomes, _, nodes = _row(msgspec.json.decode(line))
            story.add(number, event, outcomes, nodes)
        lines = story.about(getattr(failure, "about", ()), components[0])
        first = f"hicache: a check has failed, the cache is not used any more: {kind}"
        self._notice("\n".join([f"{first}; {self._write(kind, text)}", text, "story:", *lines]))

    def _rows(self) -> list[str]:
        return [line for recording in self._recordings for line in recording.rows]

    def _write(self, kind: str, text: str) -> str:
        """Returns how the failure is repeated."""
        if not self._recordings:
            return "no events were kept"
        folder, view = self._folder or None, self._view
        try:
            head = {FORMAT: 1, "config": written(view.config), "failure": (kind, text)}
            lines = [_line(head), self._recordings[0].state, *self._rows()]
            if self._event is not None:
                lines.append(_line((type(self._event).__name__, self._event)))
            lines.append("null" if self._event is not None else _state_of(view))
            with NamedTemporaryFile(
                "w", encoding="utf-8", suffix=".jsonl", prefix="hicache-", dir=folder, delete=False
            ) as file:
                file.writelines(f"{line}\n" for line in lines)
        except Exception as error:  # of a full disk, or of a state that cannot be read
            return f"its events could not be written: {error}"
        return f"hicache fuzz --replay {quote(file.name)}"


def _named(failure: Exception) -> tuple[str, str]:
    """The kind of a failure, and its text."""
    kind = getattr(failure, "kind", type(failure).__name__)
    return kind, getattr(failure, "text", str(failure))


def _pools(view: CoreView) -> list[tuple[int, int]]:
    """Free and available pages of each."""
    pools = [pool for tier in TIERS for pool in view.pools(tier)]
    return [(pool.free, pool.available) for pool in pools]


# -- lines of a file


def _line(value: Any) -> str:
    return msgspec.json.encode(value, enc_hook=np.ndarray.tolist).decode()


def _state_of(view: CoreView) -> str:
    """The state of a core, as far as `invariants/spec/reading.py` reads it."""
    kinds, transfers = range(len(view.config.components)), [*view.transfers.values()]
    names = ("tick", "attached", "periods", "store_queue", "distrusted")
    state = {name: getattr(view, name) for name in names} | {
        "running": [*view.running],
        "tree": [
            {name: getattr(node, name) for name in _OF_NODES}
            | {"stored": [kind for kind in kinds if view.believed(node, kind)]}
            for node in view.nodes()
        ],
        "requests": [*view.requests.values()],
        "transfers": transfers,
        "pins": [*view.pins.values()],
        "outdated": [transfer.id for transfer in transfers if view.is_outdated(transfer)],
        "pools": _pools(view),
    }
    return json.dumps(state, default=_plain, separators=(",", ":"))


def _plain(value: Any) -> dict[str, Any]:
    """What JSON says of a value. Of a node that another record names, where it ends."""
    if isinstance(value, np.ndarray):
        return {"int64": value.tolist()}
    if isinstance(value, bytes | memoryview):
        return {"bytes": value.hex()}
    if isinstance(value, Node):
        return {"id": value.id, "end_page": value.end_page}
    names = {name for name in dir(value) if name[0] != "_"} - _NOT_READ
    key = getattr(value, "key", None)
    return {name: getattr(value, name) for name in names} | {"key": key and key._asdict()}


def _value(row: dict[str, Any]) -> Any:
    match row:
        case {"int64": numbers}:
            return np.array(numbers, dtype=np.int64)
        case {"bytes": text}:
            return bytes.fromhex(text)
        case {"raw": _}:
            return Key(**row)
    return SimpleNamespace(**row)


def _row(row: Any) -> tuple[Event, list[Outcome], Any, tuple[int, ...]]:
    """An event, its outcomes, the pools after it, and the nodes that it has touched."""

    def value(kind: str, value: Any) -> Any:
        return msgspec.convert(value, _KINDS[kind], dec_hook=lambda _, pages: np.array(pages))

    kind, event, answers, pools, nodes = row
    return value(kind, event), [value(*answer) for answer in answers], pools, tuple(nodes)


def _view(config: Config, state: Any, pools: Any = None) -> Any:
    """A view that shows a state. pools: of a later one."""
    names, sizes = config.components, (config.device_pages, config.host_pages)
    shown = SimpleNamespace(**vars(state), config=config, nodes=lambda: state.tree)
    for name in ("requests", "transfers", "pins"):
        setattr(shown, name, {item.id: item for item in getattr(state, name)})
    shown.believed = lambda node, kind: kind in node.stored
    shown.is_outdated = lambda transfer: transfer.id in state.outdated

    def pool(tier: int, kind: int) -> Any:
        free, available = (pools or state.pools)[tier * len(names) + kind]
        numbers = {"capacity": sizes[tier][kind], "free": free, "available": available}
        return SimpleNamespace(component=names[kind], **numbers)

    shown.pool = pool
    return shown


def replay(name: str, text: str) -> tuple[str, str, int, int]:
    """Compares the events of a file with the specification. Returns the kind and text of the first
    difference, its event, and the number of events; without one, the failure that was written.

    Raises CallerError for a file that is not whole."""
    try:
        first, before, *lines, after = text.splitlines()
        head, rows = msgspec.json.decode(first), [*map(msgspec.json.decode, lines)]
        kind, why = head["failure"]
        items = head["config"].items()
        config = config_of({key: tuple(x) if type(x) is list else x for key, x in items})
        start, end = (json.loads(line, object_hook=_value) for line in (before, after))
        answered = [_row(row) for row in rows if len(row) > 2]
        views = [_view(config, start, row[2]) for row in answered]
        if answered and end:
            views[-1] = _view(config, end)
        every = len(answered) + (end is None)  # whole states: the last one
        checker = DifferentialChecker(config, None, every, _view(config, start))
    except (CallerError, LookupError, TypeError, ValueError, AttributeError) as error:
        expected = "expected the events of a cache as a failed check has written them"
        raise CallerError(f"{name}: {expected}, found {error}; copy it anew") from None
    for at, (row, view) in enumerate(zip(answered, views, strict=True), 1):
        try:
            checker.on_outcomes(*row[:2], view)
        except Exception as failure:
            return *_named(failure), at, len(rows)
    return kind, why, len(rows), len(rows)
