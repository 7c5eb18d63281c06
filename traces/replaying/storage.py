"""The storage of a replay: from its address and options to what the run reads and writes.

`sim:` is a store in virtual time, with what can go wrong. Every other address is a real store: the
replay reads and writes it, and takes the time of the simulated link for it. Does not parse the
command line or run anything.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass, replace
from hashlib import sha256

from hicache import registry
from hicache.core.errors import CallerError
from hicache.models import ModelDescription
from hicache.storage.address import open_store, parse, schemes, shown, without_size
from hicache.storage.base import StorageOptions
from hicache.storage.keys import Context
from sim.engine.prefetching import PrefetchLimit
from sim.storage.contents import Contents, Faulty, Medium
from sim.storage.options import MILLION, StoreOptions
from sim.storage.stored import StoredContents, context_of, scaled_size

from ..formats import content_digest
from ..formats.base import Trace
from ..terminal import options as read
from ..terminal.streams import print_error
from .builtin import builtin_digest
from .defaults import LIMITS_NS, PREFETCH
from .options import ReplayOptions

SIMULATED = "sim"


@dataclass(frozen=True, slots=True)
class StorageSettings:
    """See the module. address: without a size. is_simulated: whether it is `sim:`. options: of the
    store or of the simulated link. size_bytes: as for real pages, 0 for no limit. workload: what
    the numbers of its pages stand for, as a digest; empty for `sim:`, which a run has for itself.
    """

    address: str
    is_simulated: bool
    options: StoreOptions
    policy: str
    limit: PrefetchLimit | None
    workload: str = ""

    def as_options(self) -> dict[str, object]:
        """By name of the option; durations in seconds."""
        options, limit = self.options, self.limit
        return {
            "storage": self.address,
            "storage_size": options.size_bytes or None,
            "storage_bandwidth_read": options.read_bytes_per_s,
            "storage_bandwidth_write": options.write_bytes_per_s,
            "storage_latency_s": options.latency_ns / 1e9,
            "prefetch": self.policy,
            "prefetch_limit_base_s": None if limit is None else limit.base_ns / 1e9,
            "prefetch_limit_per_token_s": None if limit is None else limit.token_ns / 1e9,
        }

    def open(
        self, model: ModelDescription, page_size: int, value_bytes: Mapping[str, int], tp: int
    ) -> Contents:
        """What the store has. Raises CallerError for what a person can mend."""
        size = self.options.size_bytes
        limit = _limit_of(size, value_bytes)
        if self.is_simulated:
            medium = Medium(value_bytes, size)
            faulty = self.options.loss or self.options.lying or self.options.corrupt
            return Faulty(medium, self.options) if faulty else medium
        limits = StorageOptions(size_bytes=limit)
        address = parse(self.address)
        try:
            store = open_store(address, limits, time.monotonic, print_error)
        except CallerError as error:
            if not str(error).startswith("storage_size:"):
                raise
            stand = f"{limit:,} bytes there stand for {size:,} bytes of pages"
            raise CallerError(f"{error} ({stand})") from error
        context = self.context(model, page_size, tp)
        contents = StoredContents(store, context, model, value_bytes, tp)
        try:
            contents.check_key(shown(address))
        except CallerError:
            contents.close()
            raise
        return contents

    def context(self, model: ModelDescription, page_size: int, tp: int) -> Context:
        """What the keys of a real store begin with."""
        return context_of(model, page_size, "ids", self.workload, tp)


def _limit_of(size_bytes: int, value_bytes: Mapping[str, int]) -> int:
    """The limit of a real store; 0 for none. Raises CallerError for one without room for a page."""
    most = max(value_bytes.values())
    if 0 < size_bytes < most:
        raise CallerError(
            f"--storage-size: expected room for a page or state, {most} bytes, found {size_bytes}; "
            "enlarge it"
        )
    return scaled_size(size_bytes, value_bytes)


def resolve(options: ReplayOptions, trace: Trace) -> StorageSettings | None:
    """The storage that was asked for; None without one. Raises CallerError."""
    if options.storage is None:
        return None
    place, size = options.storage, options.storage_size or 0
    scheme, _, rest = place.partition(":")
    is_simulated = scheme == SIMULATED
    if is_simulated:
        store = simulated(rest, options.seed or 0)
    else:
        address = parse(place)
        if address.scheme not in schemes():
            raise registry.unknown("storage", scheme, [SIMULATED, *schemes()])
        address, size = without_size(address, size)
        place = address.text
        store = StoreOptions()
    store = replace(store, size_bytes=size)
    policy = (options.prefetch or PREFETCH).replace("-", "_")
    workload = "" if is_simulated else _workload(options, trace)
    limit = PrefetchLimit(*LIMITS_NS[policy]) if policy in LIMITS_NS else None
    return StorageSettings(place, is_simulated, store, policy, limit, workload)


def _workload(options: ReplayOptions, trace: Trace) -> str:
    """A digest of everything that says which tokens the number of a block stands for: what the
    trace says (not its path, and all of it, so that --limit does not count), and how it is read."""
    if options.trace == "-":
        raise CallerError(
            "-: expected a file, whose content names its pages in a store, found standard input; "
            "write it to a file"
        )
    parts = [
        trace.format,
        str(trace.block_size),
        builtin_digest() if options.trace is None else content_digest(options.trace),
        content_digest(options.tokenizer) if options.tokenizer else "",
    ]
    parts += [str(one) for one in astuple(options.log) if one is not None]
    return sha256("\n".join(parts).encode()).hexdigest()


def simulated(text: str, seed: int) -> StoreOptions:
    """The settings in an address such as `read=6GB/s,write=3GB/s,latency=200us,loss=0.01`."""
    found: dict[str, int] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        if name not in _READERS:
            hint = registry.closest(name, [*_READERS])
            raise CallerError(
                f"--storage sim: expected some of {', '.join(_READERS)}, each with =VALUE, found "
                f"{part[:40]!a}{hint}"
            )
        field, parse_value = _READERS[name]
        if field in found:
            raise CallerError(f"--storage sim: expected {name} once, found it twice; leave one out")
        try:
            found[field] = parse_value(value)
        except ValueError as error:
            raise CallerError(f"--storage sim:{name}: {error}") from None
    return StoreOptions(seed=seed, **found)


def _bytes_per_s(text: str) -> int:
    return read.at_least(1, read.byte_size)(text.removesuffix("/s"))


def _share(text: str) -> int:
    share = read.ratio(text)
    if share > 1:
        raise ValueError(f"expected a share from 0 to 1, found {text!r}")
    return int(share * MILLION)


_READERS: dict[str, tuple[str, Callable[[str], int]]] = {
    "read": ("read_bytes_per_s", _bytes_per_s),
    "write": ("write_bytes_per_s", _bytes_per_s),
    "latency": ("latency_ns", read.duration_ns),
    "loss": ("loss", _share),
    "lying": ("lying", _share),
    "corrupt": ("corrupt", _share),
    "slow": ("slow", _share),
    "dead_at": ("dead_at_ns", read.duration_ns),
    "hangs_at": ("hangs_at_ns", read.duration_ns),
    "back_at": ("back_at_ns", read.duration_ns),
}
