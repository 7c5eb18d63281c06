"""A replay by ranks that are processes decides as a single process does, with real bytes.

Some tests start processes. These are ended by the command itself, which the tests look at."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hicache import models
from hicache.core.actions import Backup, Copy, Fetch, Load, Lookup
from hicache.core.events import BackupDone, FetchDone, LoadDone, LookupDone
from hicache.devices.base import DeviceOptions, Direction
from hicache.devices.cpu import CpuDevice
from hicache.models import TINY, as_document
from hicache.runtime.executors import ImmediateExecutor
from hicache.runtime.group import Diverged
from hicache.runtime.storage.pages import Rank
from sim.engine.accesses import Accesses
from sim.engine.sequence import final_length
from sim.errors import StuckError, WrongBytesError
from traces.cli import main
from traces.ranks import parent
from traces.ranks.content import Content
from traces.ranks.folder import Folder, Said
from traces.replaying import modes
from traces.replaying.builtin import opened
from traces.replaying.options import ReplayOptions
from traces.replaying.playing import Moving
from traces.replaying.settings import load_components, resolve
from traces.terminal.rows import Parser, add_rows, rows

from .rig import HEADER, Capsys, Patch, fails, mooncake, native, write

pytest.importorskip("torch.distributed", exc_type=ImportError)
together = pytest.importorskip("traces.ranks.together", exc_type=ImportError)

SMALL = ["--mode", "hits", "--model", "tiny", "--page-size", "64"]
SMALL += ["--device-pages", "24", "--host-pages", "80"]
Wait = Callable[..., None]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Prompts that come again at once, when the device has lost them, or when the host has."""
    firsts = [number % 3 if number % 4 else 50 + number // 4 % 2 for number in range(30)]
    records = [
        mooncake([first, 100 + number // 2], 900 + number % 3)
        for number, first in enumerate(firsts)
    ]
    return str(write(tmp_path_factory.mktemp("ranks") / "trace.jsonl", *records, records[-1]))


@pytest.fixture(scope="module")
def turns(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Conversations of two turns, whose second repeats the output of the first."""
    first = [native((f"a{one}", 300), output=(f"b{one}", 70)) for one in range(8)]
    second = [
        native((f"a{one}", 300), (f"b{one}", 70), ("c", 30), output=("d", 9), after=one)
        for one in range(8)
    ]
    path = tmp_path_factory.mktemp("turns") / "turns.jsonl"
    return str(write(path, HEADER, *first, *second))


class Watched:
    """The processes that the command started, and their folder. Before it waits for them, `act`
    gets both."""

    def __init__(self, patch: Patch, act: Callable[[Watched], None]) -> None:
        self.processes: Sequence[subprocess.Popen[bytes]] = ()
        self.folder = Folder("")
        waits: Wait = parent._wait

        def wait(folder: Folder, processes: Any, *more: Any) -> None:
            self.folder, self.processes = folder, processes
            act(self)
            waits(folder, processes, *more)

        patch.setattr(parent, "_wait", wait)

    def until_exchange(self, number: int) -> None:
        """Wait until every rank has come to an exchange, or one has ended."""
        ranks = range(len(self.processes))
        while all(one.poll() is None for one in self.processes) and any(
            self.folder.said(rank).exchange < number for rank in ranks
        ):
            pass

    def assert_gone(self, count: int) -> None:
        assert len(self.processes) == count
        assert all(one.returncode is not None for one in self.processes)
        assert not self.folder.path.exists()


@pytest.mark.one_in(3)
@pytest.mark.parametrize(("stages", "shared"), [(1, False), (2, False), (2, True)])
def test_ranks_decide_as_a_single_process_does(
    stages: int, shared: bool, trace: str, tmp_path: Path, monkeypatch: Patch, capsys: Capsys
) -> None:
    watched = Watched(monkeypatch, lambda _: None)
    out = tmp_path / "out.json"
    command = ["replay", trace, *SMALL, "--prefetch-threshold", "0", "--json", str(out)]
    command += ["--pp", f"{stages}"]
    assert main([*command, "--storage", "sim:"]) == 0
    alone = json.loads(out.read_text())
    command += ["--storage", f"file:{tmp_path / 'store'}"] if shared else []
    assert main([*command, "--processes", "--ranks", f"{4 // stages}"]) == 0
    found = json.loads(out.read_text())
    watched.assert_gone(4)
    assert found["digest"] == alone["digest"]
    tiers = found["whole"]["hit_tokens"]
    assert min(*tiers.values()) > 0
    told = found["ranks"]
    assert told["exchanges"] > 20
    assert told["most_collectives"] == 1
    assert told["collectives"] == told["exchanges"]
    pages = found["components"]["full"]
    for rank, one in enumerate(told["ranks"]):
        assert (one["rank"], one["digest"]) == (rank, found["digest"])
        assert one["d2h_bytes"] == pages["backed_up"] * pages["page_bytes"]
        assert one["h2d_bytes"] == pages["loaded"] * pages["page_bytes"]
        assert one["written_bytes"] == one["d2h_bytes"], "each page is written once"
        assert one["read_bytes"] >= tiers["storage"] // 64 * pages["page_bytes"]
        assert one["compared_pages"] * 64 >= sum(tiers.values())
    assert "a single process on each of 4 ranks" in capsys.readouterr().out


def refused(capsys: Capsys, *arguments: str) -> str:
    """The line that ends a replay of ranks; others are progress."""
    assert main(["replay", *arguments, "--processes"]) == 2
    *progress, line = capsys.readouterr().err.splitlines()
    assert all(": " in one and one.endswith(("requests", "exchanges")) for one in progress)
    return line


def killed(signal_number: int) -> Callable[[Watched], None]:
    def act(watched: Watched) -> None:
        watched.until_exchange(3)
        watched.processes[1].send_signal(signal_number)

    return act


def test_a_killed_rank_is_named_with_its_last_decision(
    trace: str, monkeypatch: Patch, capsys: Capsys
) -> None:
    watched = Watched(monkeypatch, killed(signal.SIGKILL))
    said = refused(capsys, trace, *SMALL, "--ranks", "2")
    watched.assert_gone(2)
    assert "--processes: rank 1 was ended by signal 9 (SIGKILL); last, " in said
    where = said.split("last, ")[1]
    assert "rank 0 " in where or "ranks 1 and 0 at exchange" in where
    assert "events, decisions " in where


@pytest.mark.one_in(8)
class _Runs:
    """A process that ends after so many looks at it."""

    def __init__(self, looks: int) -> None:
        self.looks, self.returncode = looks, None

    def poll(self) -> int | None:
        self.looks -= 1
        return None if self.looks > 0 else 0


@pytest.mark.parametrize("goes_on", [True, False])
def test_a_replay_may_last_as_long_as_its_ranks_go_on(goes_on: bool, monkeypatch: Patch) -> None:
    """Its time is counted anew with each exchange; without one it ends."""
    now_s, said = [0.0], Said()

    class Clock:
        monotonic = staticmethod(lambda: now_s[0])

        @staticmethod
        def sleep(_: float) -> None:
            now_s[0] += 10.0

    class Tells(Folder):
        def said(self, rank: int) -> Said:
            return said._replace(exchange=int(now_s[0]) if goes_on else 0)

    monkeypatch.setattr(parent, "time", Clock)
    runs: Any = [_Runs(1_000), _Runs(1_000)]
    parent._wait(Tells("nowhere"), runs, 20.0, lambda exchanges: None)
    assert (runs[0].looks <= 0) == goes_on


@pytest.mark.parametrize("ranks", ["--tp 2", "--tp 2 --pp 2", "--tp 1 --pp 4"])
def test_pools_of_all_ranks_have_the_bytes_of_the_model(
    ranks: str, trace: str, monkeypatch: Patch
) -> None:
    parser, told = Parser(prog="replay"), dict[str, int]()
    add_rows(parser, rows(ReplayOptions))
    given = opened(ReplayOptions.read(parser.parse_args([trace, *SMALL, *ranks.split()])))
    monkeypatch.setattr(parent, "check_room", told.update)
    parent.check_pools(resolve(*given)[0])
    page = models.get("tiny").bytes_per_page("full", 64)
    assert sorted(told.values()) == [24 * page, 80 * page]


@pytest.mark.parametrize(("wait_s", "between_s"), [(1.0, 0.75), (8.0, 6.0), (60.0, 58.0)])
def test_a_part_of_the_wait_is_for_the_end(wait_s: float, between_s: float) -> None:
    assert parent.between_ranks(wait_s) == between_s


def test_a_rank_that_hangs_is_named_within_the_wait(
    trace: str, monkeypatch: Patch, capsys: Capsys
) -> None:
    watched = Watched(monkeypatch, killed(signal.SIGSTOP))
    said = refused(capsys, trace, *SMALL, "--ranks", "2", "--wait", "15s")
    watched.assert_gone(2)
    assert "--processes: rank 1 hangs, and was ended; last, " in said


@pytest.mark.one_in(4)
def test_ctrl_c_leaves_nothing(trace: str, monkeypatch: Patch, capsys: Capsys) -> None:
    def interrupt(watched: Watched) -> None:
        raise KeyboardInterrupt

    watched = Watched(monkeypatch, interrupt)
    assert main(["replay", trace, *SMALL, "--processes", "--ranks", "2"]) == 130
    watched.assert_gone(2)


@pytest.mark.one_in(4)
def test_an_error_of_a_rank_is_that_of_the_command(
    trace: str, monkeypatch: Patch, capsys: Capsys
) -> None:
    """The others miss it, which says less."""
    before = Folder.order

    def smaller(folder: Folder, orders: Any) -> None:
        before(folder, orders)
        (folder.path / "store-1").write_text("a file where the store belongs")

    watched = Watched(monkeypatch, lambda _: None)
    monkeypatch.setattr(Folder, "order", smaller)
    said = refused(capsys, trace, *SMALL, "--ranks", "2")
    watched.assert_gone(2)
    assert "store-1" in said


def test_other_decisions_are_a_difference() -> None:
    parent._compare("a", ["a", "a"])
    with pytest.raises(Diverged, match="single process has digest a, ranks 1 and 2 b") as found:
        parent._compare("a", ["a", "b", "b"])
    assert found.value.exit_code == 15


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("--ranks 2", "--ranks: expected ranks that are processes, found none"),
        ("--wait 2s", "--wait: expected ranks that are processes, found none"),
        ("--processes", "--ranks: expected 2 to 64 processes, found 1"),
        ("--processes --ranks 3", "--ranks: expected a divisor or a multiple of 2 heads, found 3"),
        ("--processes --ranks 2 --tp 4", "--ranks: expected 4 as --tp says, found 2"),
        (
            "--processes --tp 2 --mode timed",
            "expected --mode hits, found --mode timed",
        ),
        ("--processes --tp 2 --storage nowhere:x", "storage: expected one of"),
        ("--processes --tp 2 --storage sim:loss=0.1", "found sim:loss=0.1; name one with"),
        (
            "--processes --tp 2 --storage file:x --model deepseek-v3",
            "since the ranks of deepseek-v3 have rows alike, found file:x; leave --storage out",
        ),
        ("--processes --tp 2 --storage-size 1G", "expected stores without a limit"),
        ("--processes --tp 2 --attention-dp 2", "expected ranks that share each request"),
        ("--processes --tp 2 --dcp 2", "expected ranks with all tokens, found --dcp 2; omit it"),
        ("--processes --tp 2 --host-copies node", "expected host memory of each rank, found"),
        ("--processes --tp 2 --pp 5", "pp: expected 1 to 4 stages, one for each layer of tiny"),
        ("--processes --tp 32 --pp 4", "expected 2 to 64 processes, found 128 with --pp 4"),
        ("--processes --tp 2 --replicas 2", "--processes: expected one replica, found several"),
        ("--processes --tp 2 --host-pages 0", "expected a host pool, found none"),
        ("--processes --tp 2 --device-pages unbounded", "expected a device of real memory"),
        ("--processes --tp 2 --device-pages 60000000", "the system has"),
        ("--processes --tp 2 --stream", "--processes: expected a trace that is held"),
    ],
)
def test_what_cannot_be_is_one_line(
    trace: str, given: str, told: str, monkeypatch: Patch, capsys: Capsys
) -> None:
    monkeypatch.delattr(parent, "replayed")  # nothing is started
    assert told in fails(capsys, "replay", trace, *SMALL, *given.split())


class Alone:
    """A group of one rank, which waits for nobody."""

    rank, size, waits, entered = 0, 1, True, 0

    def minimum(self, purpose: str, values: Sequence[int]) -> Iterator[Any]:
        self.entered += 1
        yield from ()
        return tuple(values)

    conjunction = minimum


class Late:
    """An executor whose actions end in the reverse order, one at each poll."""

    def __init__(self) -> None:
        self.actions: list[Any] = []
        self.held = 0

    def submit(self, action: Any) -> None:
        self.actions.append(action)

    def start(self) -> None:
        """Begins nothing."""

    def poll(self) -> list[Any]:
        replies = {Load: LoadDone, Backup: BackupDone, Fetch: FetchDone, Lookup: LookupDone}
        if len(self.actions) <= self.held:
            return []
        action = self.actions.pop()
        return [replies[type(action)](action.flight, 1)]


def test_replies_come_in_the_order_of_submission_those_of_storage_last() -> None:
    said: list[tuple[Any, ...]] = []
    late = Late()
    executor = together.Together(late, Alone(), {"full": 8}, 60.0, lambda *one: said.append(one))
    for action in (
        Lookup(1, 0, 0, (b"a",), 0, (0,)),
        Load(2, 0, ()),
        Backup(3, ()),
        Load(4, 0, ()),
    ):
        executor.submit(action)
    assert executor.poll() == [], "nothing was started"
    executor.start()
    executor.submit(Backup(5, ()))
    late.held = 1
    late.actions.insert(0, late.actions.pop())
    assert [reply.flight for reply in executor.poll()] == [2, 3, 4, 1]
    [exchange] = executor.exchanges
    assert exchange.collectives == 1
    assert said == [(0, 0, said[0][2])]
    late.held = 0
    executor.start()
    assert [reply.flight for reply in executor.poll()] == [5]


def test_work_that_does_not_end_is_bounded() -> None:
    late = Late()
    late.held = 1
    executor = together.Together(late, Alone(), {}, 0.01, lambda *_: None)
    executor.submit(Load(1, 0, ()))
    executor.start()
    with pytest.raises(StuckError, match="found 1 that did not"):
        executor.poll()


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("engine", [(), ("--engine", "vllm")])
@pytest.mark.parametrize("moves", [True, False])
@pytest.mark.parametrize("windows", [False, True])
def test_a_page_that_was_not_copied_is_found(
    trace: str,
    turns: str,
    known: bool,
    engine: tuple[str, ...],
    moves: bool,
    windows: bool,
    tmp_path: Path,
) -> None:
    """All bytes are right if the copies move them, and wrong if they only say so."""
    parser = Parser(prog="replay")
    add_rows(parser, rows(ReplayOptions))
    words = [turns if known else trace, *SMALL, *engine]
    if windows:
        kv, path = TINY.pools[0], tmp_path / "windows.json"
        window = replace(kv, name="swa", component="swa", layers=(0, 1, 2), window=128)
        described = replace(TINY, name="windows", pools=(replace(kv, layers=(3,)), window))
        path.write_text(json.dumps(as_document(described)))
        words += ["--model", str(path)]
    options, read = opened(ReplayOptions.read(parser.parse_args([*words, "--check", "off"])))
    settings, paged = resolve(options, read)
    core, model = settings.core, settings.model
    pages = [
        dict(zip(core.components, counts, strict=True))
        for counts in (core.device_pages, core.host_pages)
    ]
    with CpuDevice(model, 64, pages[0], pages[1], DeviceOptions()) as device:
        key = paged.key if engine or paged.knows_output else lambda job, _: paged.prompt_key(job)
        content = Content(
            device,
            model,
            core,
            Rank(),
            Accesses(core, load_components(core)),
            lambda request: key(paged.jobs[request], final_length(paged.jobs[request])),
        )

        def mover(direction: Direction, copy: Copy) -> None:
            here, there = direction.ends
            places = (here, copy.source), (there, copy.target)
            device.arena.copy(copy.component, *places, (0, model.layers))

        moving = Moving(ImmediateExecutor(mover if moves else None), (content,))
        if moves:
            found = modes.run(read, paged, settings, None, 0.0, moving=moving)
            assert found.account.whole().hit_tokens.host > 0
            assert content.compared > 0
        else:
            with pytest.raises(WrongBytesError, match="prefill of request"):
                modes.run(read, paged, settings, None, 0.0, moving=moving)
