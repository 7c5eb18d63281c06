"""What the ranks of a stage send each other.

    after attention   sum of the outputs over the ranks that share the heads (all-reduce)
    after the MLP     sum over all ranks of the stage; with attention groups of their own, tokens
                      are gathered before it and sums are scattered after it instead
    experts           with attention groups and whole experts, each token goes to the ranks of its
                      experts and back (all-to-all)
    context groups    in decode, queries are gathered before attention, and partial outputs with
                      their log-sums go to the ranks of their heads after it (all-to-all); in
                      prefill, the cached rows before a chunk are gathered
    output head       the logits of all ranks are gathered

A sum of b bytes over n ranks moves 2 (n - 1) / n b bytes over a rank's link, a gathering or a
scattering half of that. The fixed time of an exchange depends on the ranks: constants know 2, 4
and 8; in between the next larger counts, and above 8 it grows in proportion to the ranks. A small
sum has one phase (each rank reads all), a large one two (each rank sums a part, then all gather),
with the fixed time of both. The second comes in as s / (s + 1 MiB), where s are the bytes that a
rank sends.
"""

from __future__ import annotations

from dataclasses import dataclass

from hicache.models import ModelDescription
from hicache.models.base import Matrix

from ..hardware.profile import HardwareProfile
from .kernels import Work
from .products import NS

_MOST = 8
_SUMS = ("custom", "fused", "nccl")
_OTHERS = ("all_gather", "all_to_all", "send", "pcie")
_PHASE_BYTES = 1 << 20
_ELEMENT_BYTES = 2  # of what is exchanged
_LOG_SUM_BYTES = 4  # of a head's partial output


def is_one(kind: str) -> bool:
    """Whether kernels of this kind are exchanges."""
    return kind.partition(".")[0] in (*_SUMS, *_OTHERS)


@dataclass(frozen=True, slots=True)
class Exchange:
    """An exchange that is done some times a pass. token_bytes: what each token adds to what a rank
    sends, all times together. bytes_per_ns: of its link. phased: whether large ones have two
    phases."""

    kind: str
    times: float
    token_bytes: float
    bytes_per_ns: float
    phased: bool

    def of(self, tokens: int) -> Work:
        sent = tokens * self.token_bytes
        launches = self.times
        if self.phased and sent:
            launches += launches * sent / (sent + _PHASE_BYTES * self.times)
        return Work(self.kind, launches, 0.0, sent / self.bytes_per_ns)


def exchange(
    kind: str, ranks: int, times: float, token_bytes: float, hardware: HardwareProfile
) -> Exchange:
    """An exchange over these ranks; see `Exchange`."""
    known = 2
    while known < min(ranks, _MOST):
        known *= 2
    name = "pcie" if hardware.ranks_link == "pcie" else kind
    launches = times * max(1.0, ranks / _MOST)
    link = hardware.ranks_link_bytes_per_s or hardware.link_bytes_per_s
    return Exchange(f"{name}.{known}", launches, token_bytes, link / NS, kind in _SUMS)


def sums(
    matrices: list[Matrix],
    model: ModelDescription,
    hardware: HardwareProfile,
    kind: str,
    ranks: int,
    attention_ranks: int,
    whole_on: int,
) -> tuple[list[Exchange], list[Exchange]]:
    """The exchanges of all layers for each token of an attention group, and for each token of the
    stage. kind: of the engine's sums: custom, nccl or fused. whole_on: ranks over which whole
    experts are spread."""
    summed = [matrix for matrix in matrices if matrix.split == "inputs"]
    attention = sum(matrix.layers for matrix in summed if matrix.part == "attention")
    sparse = max((matrix.layers for matrix in summed if matrix.routed), default=0)
    dense = max(0, model.layers - sparse)
    row = model.hidden_size * _ELEMENT_BYTES
    of_group, of_stage = [], []
    if attention_ranks > 1:
        moved = 2 * (attention_ranks - 1) / attention_ranks * row * attention
        of_group.append(exchange(kind, attention_ranks, attention, moved, hardware))
    if ranks > 1 and attention_ranks == ranks:
        times = dense + sparse
        moved = 2 * (ranks - 1) / ranks * row * times
        of_stage.append(exchange(kind, ranks, times, moved, hardware))
    elif ranks > 1:
        far = (ranks - 1) / ranks
        spread = sparse if whole_on > 1 else 0
        gathered = dense + sparse - spread
        if gathered:
            moved = 2 * far * row * gathered
            of_stage.append(exchange("all_gather", ranks, 2 * gathered, moved, hardware))
        if spread:
            # a token is sent once to each rank that has one of its experts, in half the bytes, and
            # comes back; each rank sends those of its share of the tokens
            copies = whole_on * (1 - (1 - 1 / whole_on) ** model.experts_per_token)
            moved = 1.5 * far * row * copies / ranks * spread
            of_stage.append(exchange("all_to_all", whole_on, 2 * spread, moved, hardware))
    return of_group, of_stage


def decoded(
    model: ModelDescription, hardware: HardwareProfile, ranks: int, dcp: int
) -> list[Exchange]:
    """What `dcp` of `ranks` ranks that divide the context exchange for each decoding sequence."""
    layers = len({layer for pool in model.pools for layer in pool.layers})
    heads = (dcp - 1) * layers * model.attention_heads / ranks
    asked = heads * model.decode_score_elements * _ELEMENT_BYTES
    found = heads * (model.decode_value_elements * _ELEMENT_BYTES + _LOG_SUM_BYTES)
    return [
        exchange("all_gather", dcp, layers, asked, hardware),
        exchange("all_to_all", dcp, layers, found, hardware),
    ]


def cached(model: ModelDescription, hardware: HardwareProfile, ranks: int, dcp: int) -> Exchange:
    """The gathering of the cached rows before a chunk, for each token of these."""
    layers = len({layer for pool in model.pools for layer in pool.layers})
    row = float(sum(pool.token_bytes(ranks) for pool in model.pools))
    return exchange("all_gather", dcp, layers, (dcp - 1) / dcp * row, hardware)


def logits(model: ModelDescription, hardware: HardwareProfile, ranks: int) -> Exchange | None:
    """The gathering of logits, for each token that is sampled; None on one rank."""
    if ranks == 1:
        return None
    moved = (ranks - 1) / ranks * model.vocabulary * _ELEMENT_BYTES
    return exchange("all_gather", ranks, 1, moved, hardware)


def send(model: ModelDescription, hardware: HardwareProfile) -> Exchange:
    """What a stage of a pipeline hands on to the next, for each token."""
    return exchange("send", 2, 1, model.hidden_size * _ELEMENT_BYTES, hardware)
