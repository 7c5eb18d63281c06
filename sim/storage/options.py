"""Settings of a simulated store: how fast it is, how large, and what goes wrong with it."""

from __future__ import annotations

from dataclasses import dataclass

from hicache.core.errors import CallerError

MILLION = 1_000_000


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """read_bytes_per_s, write_bytes_per_s: shared by everything that moves in that direction.

    latency_ns   of each batch, before its first byte. size_bytes: the most bytes; 0: any number.
    seed         of all draws.

    Faults, in millionths of the operations:

    loss         a value is acknowledged and is not there afterwards.
    lying        a value that is not there is said to be.
    corrupt      a value does not verify when it is read.
    slow         a batch takes ten times as long.
    dead_at_ns, hangs_at_ns, back_at_ns  from this time on every operation fails after its latency,
                 or is not answered unless it is abandoned, until `back_at_ns`; -1: never.
    """

    read_bytes_per_s: int = 6_000_000_000
    write_bytes_per_s: int = 3_000_000_000
    latency_ns: int = 200_000
    size_bytes: int = 0
    seed: int = 0
    loss: int = 0
    lying: int = 0
    corrupt: int = 0
    slow: int = 0
    dead_at_ns: int = -1
    hangs_at_ns: int = -1
    back_at_ns: int = -1

    def __post_init__(self) -> None:
        for name, least, most in (
            ("read_bytes_per_s", 1, 1 << 48),
            ("write_bytes_per_s", 1, 1 << 48),
            ("latency_ns", 0, 1 << 60),
            ("size_bytes", 0, 1 << 60),
            ("loss", 0, MILLION),
            ("lying", 0, MILLION),
            ("corrupt", 0, MILLION),
            ("slow", 0, MILLION),
        ):
            value = getattr(self, name)
            if not least <= value <= most:
                raise CallerError(f"{name}: expected {least} to {most}, found {value}")

    def is_dead(self, now_ns: int) -> bool:
        return _is_between(self.dead_at_ns, now_ns, self.back_at_ns)

    def hangs(self, now_ns: int) -> bool:
        return _is_between(self.hangs_at_ns, now_ns, self.back_at_ns)


def _is_between(first_ns: int, now_ns: int, back_ns: int) -> bool:
    return 0 <= first_ns <= now_ns and (back_ns < first_ns or now_ns < back_ns)
