"""Rates of the stores with servers, and of Mooncake's own client beside ours, in one run.

    python -m tests.bench.remote_stores [--pages 32] [--rounds 41]

The servers run on this machine. The two Mooncake clients take turns, so that both see the same
load of the machine; the figure is the median of the ratios of neighbouring rounds.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import numpy as np

from hicache import registry
from hicache.storage.address import BACKENDS, open_storage, parse
from hicache.storage.base import Storage, StorageOptions
from hicache.storage.buffers import address_of
from traces.servers.base import SERVERS

MIB = 1 << 20
TOTAL = 64 * MIB
SIZES = (64 << 10, MIB, 4 * MIB)


def timed(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def rates(name: str, store: Storage, rounds: int) -> None:
    """Prints the median rates of writes of new keys and of reads, in batches of one size each."""
    memory = np.random.default_rng(0).integers(0, 256, 2 * TOTAL, np.uint8)
    store.register([memory.data])
    for size in SIZES:
        values = [(memory.data[at : at + size],) for at in range(0, TOTAL, size)]
        targets = [(memory.data[at : at + size],) for at in range(TOTAL, 2 * TOTAL, size)]
        times: list[tuple[float, float]] = []
        for turn in range(rounds):
            keys = [f"{name}/{size}/{turn}/{one}" for one in range(len(values))]
            write = timed(lambda keys=keys, values=values: store.write(keys, values))
            read = timed(lambda keys=keys, targets=targets: store.read(keys, targets))
            assert (memory[:TOTAL] == memory[TOTAL:]).all()
            memory[TOTAL:] = 0
            store.delete(keys)
            times.append((write, read))
        write, read = (TOTAL / MIB / statistics.median(one) for one in zip(*times, strict=True))
        print(f"{name:9} {size >> 10:5} KiB  write {write:6.0f} read {read:6.0f} MiB/s")


def beside_its_own_client(address: str, reads: str, pages: int, rounds: int) -> None:
    """Mooncake through this project and called directly, in turns."""
    master = address.partition("//")[2].partition("?")[0]
    memory = np.random.default_rng(0).integers(0, 256, pages * MIB, np.uint8)
    target = np.zeros_like(memory)
    values = [(memory.data[at * MIB : (at + 1) * MIB],) for at in range(pages)]
    targets = [(target.data[at * MIB : (at + 1) * MIB],) for at in range(pages)]
    sources, places = ([address_of(one) for (one,) in some] for some in (values, targets))
    sizes = [MIB] * pages
    patient = StorageOptions(timeout_s=30.0)
    with closing(open_storage(parse(f"{address}&reads={reads}"), patient)) as ours:
        direct = registry.load(BACKENDS, "mooncake").MooncakeDistributedStore()
        assert direct.setup("127.0.0.1", "P2PHANDSHAKE", 0, 64 * MIB, "tcp", "", master) == 0
        ours.register([memory.data, target.data])
        for block in (memory, target):
            assert direct.register_buffer(address_of(block.data), block.nbytes) == 0
        seen: dict[str, list[tuple[float, float]]] = {"put": [], "get": []}
        for turn in range(rounds):
            mine, own = ([f"{who}{turn}/{one}" for one in range(pages)] for who in "md")
            pairs: dict[str, tuple[Callable[[], object], Callable[[], object]]] = {
                "put": (
                    partial(direct.batch_put_from, own, sources, sizes),
                    partial(ours.write, mine, values),
                ),
                "get": (
                    partial(direct.batch_get_into, own, places, sizes),
                    partial(ours.read, mine, targets),
                ),
            }
            for what, (theirs, here) in pairs.items():
                if turn % 2:
                    after, before = timed(here), timed(theirs)
                else:
                    before, after = timed(theirs), timed(here)
                seen[what].append((before, after))
            assert (memory == target).all()
            target[:] = 0
            direct.batch_remove(mine + own, True)
        direct.close()
    for what, times in seen.items():
        ratios = [before / after for before, after in times[1:]]
        low, middle, high = statistics.quantiles(ratios, n=4)
        rate = pages / statistics.median(after for _, after in times)
        print(
            f"mooncake {what} ({reads}), {pages} values of 1 MiB: ours {rate:.0f} MiB/s, "
            f"{middle:.0%} of its own client (quartiles {low:.0%} to {high:.0%})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pages", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=41)
    options = parser.parse_args()
    patient = StorageOptions(timeout_s=30.0)
    for name in registry.names(SERVERS):
        with tempfile.TemporaryDirectory() as folder:
            server = registry.load(SERVERS, name).launch(0, Path(folder), 1024 * MIB)
            try:
                if name == "mooncake":
                    for reads in ("staged", "direct"):
                        beside_its_own_client(server.address, reads, options.pages, options.rounds)
                with closing(open_storage(parse(server.address), patient)) as store:
                    rates(name, store, 3 if name == "s3" else 9)
            finally:
                server.stop()
    with tempfile.TemporaryDirectory() as folder:
        given = StorageOptions(size_bytes=512 * MIB, timeout_s=30.0)
        with closing(open_storage(parse(f"hf3fs:{folder}"), given)) as store:
            rates("hf3fs", store, 9)


if __name__ == "__main__":
    main()
