"""The processes of a replay by ranks, from outside: they start, are waited for, and end.

Every wait is bounded. A rank that ends too early or hangs is named by the others within the wait
(hicache/runtime/gloo_group); then all are ended, and one line says who is missing and where each
rank was. Processes and the folder that they share are gone whatever happens. Does not replay
anything (see child), or show its figures (see traces/reporting).
"""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from hicache.core.errors import CallerError, HicacheError
from hicache.memory.host import check_room
from hicache.models.base import heads_per_rank
from hicache.runtime.group import Diverged, of_ranks
from hicache.storage.address import backend, parse

from ..outside import entries
from ..replaying import pools
from ..replaying.defaults import HOST_COPIES
from ..replaying.options import ReplayOptions
from ..replaying.settings import Settings
from ..replaying.unread import SIMULATED
from ..results.record import RankFigures, Ranks
from ..terminal.options import UNBOUNDED
from ..terminal.progress import counting
from ..terminal.workers import module_command
from .folder import REFUSED, Folder, Orders, Said

MOST_RANKS = 64
WAIT_S = 60.0
_LOOK_S = 0.02
_START_S = 60.0  # more, before the first exchange
_GRACE_S = 5.0  # to write down the end
_END_S = 2.0  # at most, of the wait: to end the others and remove the folder
_TIMES = ("moving_s", "agreeing_s", "moving_cpu_s", "agreeing_cpu_s")
_LOOPBACK = "lo0" if sys.platform == "darwin" else "lo"


class RankFailed(HicacheError):
    """A rank ended with an error. exit_code: its own."""

    def __init__(self, text: str, exit_code: int) -> None:
        super().__init__(text)
        self.exit_code = exit_code


def checked(options: ReplayOptions) -> ReplayOptions:
    """The options of a replay by processes, for one that is not: with as many ranks, and a store.
    Raises CallerError for what such a replay cannot do."""
    ranks = options.tp if options.ranks is None else options.ranks
    if options.ranks is not None and options.tp not in (1, ranks):
        raise CallerError(
            f"--ranks: expected {options.tp} as --tp says, found {ranks}; leave --tp out"
        )
    if not 2 <= (processes := ranks * options.pp) <= MOST_RANKS:
        by = f" with --pp {options.pp}" if options.pp > 1 else ""
        raise CallerError(f"--ranks: expected 2 to {MOST_RANKS} processes, found {processes}{by}")
    model, store = pools.model_of(options), store_of(options)
    for pool in model.pools:
        try:
            heads_per_rank(pool.heads, ranks)
        except CallerError as error:
            raise CallerError(f"--ranks{str(error).removeprefix('tp')}") from None
    for wrong, expected, found, do in (
        (options.mode != "hits", "--mode hits", f"--mode {options.mode}", "use that mode"),
        (options.trace == "-", "a file that each rank reads", "standard input", "name a file"),
        (
            store is None and options.storage not in (None, f"{SIMULATED}:"),
            f"a real store, or {SIMULATED}: or none for a new folder of each rank",
            str(options.storage),
            "name one with --storage",
        ),
        (
            store is not None and any(pool.replicated for pool in model.pools),
            f"a new folder of each rank, since the ranks of {model.name} have rows alike",
            str(options.storage),
            "leave --storage out",
        ),
        (options.storage_size is not None, "stores without a limit", "--storage-size", "omit it"),
        (
            options.attention_dp not in (None, 1),
            "ranks that share each request",
            f"--attention-dp {options.attention_dp}",
            "omit it",
        ),
        (options.dcp not in (None, 1), "ranks with all tokens", f"--dcp {options.dcp}", "omit it"),
        (
            options.host_copies not in (None, HOST_COPIES[0]),
            "host memory of each rank",
            f"--host-copies {options.host_copies}",
            "omit it",
        ),
        (
            options.device_pages == UNBOUNDED,
            "a device of real memory",
            "--device-pages unbounded",
            "give a number",
        ),
        (
            importlib.util.find_spec("torch") is None,
            "torch, over whose gloo the ranks agree",
            "none",
            "install hicache[torch]",
        ),
    ):
        if wrong:
            raise CallerError(f"--processes: expected {expected}, found {found}; {do}")
    return replace(options, tp=ranks, storage=f"{SIMULATED}:")


def store_of(options: ReplayOptions) -> str | None:
    """The address of one store for all ranks; None for a new folder of each. Raises CallerError for
    one that cannot be used."""
    if options.storage is None or options.storage.partition(":")[0] == SIMULATED:
        return None
    backend(parse(options.storage).scheme)
    return options.storage


def check_pools(settings: Settings) -> None:
    """Raises CallerError if the pools of all ranks together have no room on this machine."""
    core, ranks = settings.core, settings.tp * settings.parallelism.pp
    check_room(
        {
            f"{tier} pools of {name} on {ranks} ranks": settings.tp * size * pages
            for tier, counts in (("device", core.device_pages), ("host", core.host_pages))
            for name, size, pages in zip(core.components, settings.page_bytes, counts, strict=True)
        }
    )


def replayed(
    options: ReplayOptions, settings: Settings, digest: str, store: str | None = None
) -> Ranks:
    """Replay with one process for each rank. options: from `checked`. digest: of a single process.
    store: from `store_of`. Raises CallerError for a rank that was ended or hangs, Diverged if the
    ranks decided otherwise than that process, and RankFailed."""
    wait_s = between_ranks(WAIT_S if options.wait is None else options.wait / 1e9)
    with tempfile.TemporaryDirectory(prefix="hicache-ranks-") as path:
        folder = Folder(path)
        orders = Orders(
            options, entries.given(), settings.tp * settings.parallelism.pp, wait_s, store
        )
        folder.order(orders)
        shown = counting("ranks", "exchanges")
        with shown as show, _started(folder, orders.ranks) as processes:
            _wait(folder, processes, wait_s, show)
            codes = [one.poll() for one in processes]
        ended = [folder.ended(rank) for rank in range(orders.ranks)]
        _judge(folder, codes, ended)
    found = [one for one in ended if one is not None]
    _compare(digest, [one["digest"] for one in found])
    return figures(found)


def between_ranks(wait_s: float) -> float:
    """How long a rank waits for another, so that the command ends within `wait_s`."""
    return wait_s - min(_END_S, wait_s / 4)


@contextmanager
def _started(folder: Folder, ranks: int) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes of all ranks. They have ended at the end of the block."""
    made = {"GLOO_SOCKET_IFNAME": _LOOPBACK, "OMP_NUM_THREADS": "1"}
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(ranks):
            with (folder.path / f"errors-{rank}").open("wb") as errors:
                processes.append(
                    subprocess.Popen(
                        [*module_command("traces.ranks.child"), str(folder.path), str(rank)],
                        env=os.environ | made,
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=errors,
                        start_new_session=True,  # Ctrl-C is for the command alone
                    )
                )
        yield processes
    finally:
        for one in processes:
            one.kill()
        for one in processes:
            one.wait()


def _wait(
    folder: Folder,
    processes: Sequence[subprocess.Popen[bytes]],
    wait_s: float,
    show: Callable[[int], None],
) -> None:
    """Wait until all have left their figures or an error, or until those that have not are late."""
    ranks = range(len(processes))
    said: list[Said] = []
    due = time.monotonic() + _START_S + 2 * wait_s
    failed = False
    while True:
        ended = [folder.ended(rank) for rank in ranks]
        left = {rank for rank in ranks if ended[rank] is None and processes[rank].poll() is None}
        missing = {rank for one in ended if one for rank in one.get("missing") or ()}
        if left <= missing or time.monotonic() > due:
            return  # all others have said how they ended
        if not failed and any(one.returncode for one in processes):
            failed, due = True, time.monotonic() + wait_s
        now = [folder.said(rank) for rank in ranks]
        show(min(one.exchange for one in now))
        if now != said and not failed:
            said, due = now, max(due, time.monotonic() + 2 * wait_s + _GRACE_S)
        time.sleep(_LOOK_S)


def _judge(
    folder: Folder, codes: Sequence[int | None], ended: Sequence[dict[str, Any] | None]
) -> None:
    """Raises the error that the ranks ended with, if any."""
    for rank, one in enumerate(ended):
        if one is not None and "error" in one and one["missing"] is None:
            text = str(one["error"])
            if one["code"] == REFUSED:
                raise CallerError(text)
            raise RankFailed(f"rank {rank}: {text}", one["code"])
    silent = [rank for rank, one in enumerate(ended) if one is None]
    waited = [rank for rank, one in enumerate(ended) if one is not None and "error" in one]
    if not silent and not waited:
        return
    told = [f"{of_ranks([rank])} {_how(folder, rank, codes[rank])}" for rank in silent]
    told += [str(ended[rank]["error"]) for rank in waited[:1] if not silent]  # type: ignore[index]
    where: dict[str, list[int]] = {}
    for rank in (*silent, *waited):
        where.setdefault(str(folder.said(rank)), []).append(rank)
    stood = "; ".join(f"{of_ranks(some)} {text}" for text, some in where.items())
    raise CallerError(f"--processes: {'; '.join(told)}; last, {stood}; start the replay again")


def _how(folder: Folder, rank: int, code: int | None) -> str:
    """How a rank ended that left nothing."""
    if code is None:
        return "hangs, and was ended"
    if code < 0:
        return f"was ended by signal {-code} ({signal.Signals(-code).name})"
    errors = (folder.path / f"errors-{rank}").read_text(encoding="utf-8", errors="replace")
    last = (errors.strip().splitlines() or ["it said nothing"])[-1]
    return f"ended with code {code} ({last[:200]})"


def _compare(single: str, digests: Sequence[str]) -> None:
    """Raises Diverged if not all decided as a single process does."""
    others = [rank for rank, digest in enumerate(digests) if digest != single]
    if others:
        raise Diverged(
            "decisions",
            f"a single process has digest {single}, {of_ranks(others)} {digests[others[0]]}",
        )


def figures(ended: Sequence[dict[str, Any]]) -> Ranks:
    """Those of all ranks together. Each took the same exchanges."""
    each = [
        RankFigures(
            rank=rank,
            digest=one["digest"],
            d2h_bytes=one["moved"].get("d2h", 0),
            h2d_bytes=one["moved"].get("h2d", 0),
            read_bytes=one["moved"].get("read", 0),
            written_bytes=one["moved"].get("written", 0),
            compared_pages=one["compared"],
            **{name: sum(part[name] for part in one["exchanges"]) for name in _TIMES},
            wall_s=one["wall_s"],
        )
        for rank, one in enumerate(ended)
    ]
    exchanges = list(zip(*(one["exchanges"] for one in ended), strict=True))
    collectives = [ranks[0]["collectives"] for ranks in exchanges]
    return Ranks(
        ranks=each,
        exchanges=len(exchanges),
        collectives=sum(collectives),
        most_collectives=max(collectives, default=0),
        last_agreeing_s=sum(min(one["agreeing_s"] for one in ranks) for ranks in exchanges),
    )
