"""Durations by the shape of each product, of attention, and of what the ranks exchange.

A pass is a list of kernels (see sim/physics): matrix products, routed experts, attention, small
kernels, collectives between ranks, and outside its layers the output head and sampling. Each takes
what its kind reaches of the peaks. Kernels of a rank run one after another. Where no CUDA graph
holds them, a pass takes at least the time of their launches.

The stages of a pipeline divide a pass by their layers. The first one has the rest of a pass
(embedding, inputs), the last one the output head and sampling, and between two stages a pass is
sent (see sim/engine/forward).

The time of the host is not part of it: the simulated engine adds that of its engine profile.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from hicache.models import ModelDescription
from hicache.models.base import ROWS

from .. import fitted, physics
from ..engine_profiles import EngineProfile
from ..hardware import HardwareProfile
from ..physics import (
    Collective,
    Group,
    Kernel,
    PerToken,
    States,
    Work,
    defaults,
    family,
    of_reached,
    real,
    share,
)
from .base import Chunks, Parallelism

SUMMARY = "durations by the shape of each product, with what the ranks exchange"

_MOST_KEPT = 1 << 16
_LOGIT_BYTES = 4
_LOGIT_PASSES = 4  # where the engine does not say it
_PLAIN = EngineProfile("plain")
_REST = Work("pass", 1, 0.0, 0.0)


def times(
    model: ModelDescription,
    hardware: HardwareProfile,
    parallelism: Parallelism,
    engine: EngineProfile | None,
) -> Roofline:
    profile = engine or _PLAIN
    kernels, source = of_reached(defaults(family(hardware))), "measured rates"
    if not hardware.geometry:
        kernels, source = fitted.roofline(hardware, profile, model.name), "fitted"
    return Roofline(model, hardware, parallelism, profile, kernels, source)


class Roofline:
    """See the module. It keeps the durations that depend on the number of tokens alone."""

    def __init__(
        self,
        model: ModelDescription,
        hardware: HardwareProfile,
        parallelism: Parallelism,
        engine: EngineProfile,
        kernels: Mapping[str, Kernel],
        source: str = "defaults",
    ) -> None:
        """kernels: constants. source: where they are from, for the label."""
        self.layers = model.layers
        self.label = f"roofline, constants of {family(hardware)}: {source}"
        self.kernels = kernels
        ranks, shared = parallelism.tp, parallelism.attention_tp
        self._groups = parallelism.attention_dp
        matrices = list(model.matrices)
        plain = [matrix for matrix in matrices if not matrix.routed]
        routed = [matrix for matrix in matrices if matrix.routed]
        own = [matrix for matrix in plain if matrix.part != "mlp"]
        mlp = [matrix for matrix in plain if matrix.part == "mlp"]
        # of each token of an attention group, and of each token of a stage
        self._of_group: list[PerToken | Collective] = [
            physics.product(matrix, hardware, shared) for matrix in own if not matrix.expands
        ]
        self._of_stage: list[PerToken | Collective] = [
            physics.product(matrix, hardware, ranks) for matrix in mlp
        ]
        self._expanding = [
            physics.product(matrix, hardware, shared) for matrix in own if matrix.expands
        ]
        dcp = parallelism.dcp
        kept = float(sum(pool.token_bytes(shared) for pool in model.pools)) / dcp
        self._of_group.append(physics.small_kernels(own, hardware, shared, model.layers, kept))
        self._of_stage.append(physics.small_kernels(mlp, hardware, ranks, 0, 0.0))
        kind = engine.all_reduce
        sums = physics.sums(matrices, model, hardware, kind, ranks, shared, parallelism.ep)
        self._of_group += sums[0]
        self._of_stage += sums[1]
        self._experts = physics.experts(model, routed, hardware, ranks, parallelism.ep)
        self._attention = [
            Group(model, hardware, shared, dcp, pool)
            for pool in model.pools
            if pool.kind in (*ROWS, "indexer")
        ]
        self._decoded, self._cached = list[Collective](), None
        if dcp > 1:
            self._decoded = physics.decoded(model, hardware, shared, dcp)
            self._cached = physics.cached(model, hardware, shared, dcp)
        states = [pool for pool in model.pools if pool.kind == "state" and not pool.anchor]
        self._states = States(states, hardware, shared) if states else None
        # outside the layers, by token that is sampled, and by token
        passes = engine.logit_passes or _LOGIT_PASSES
        read = model.vocabulary * _LOGIT_BYTES * passes * physics.NS / hardware.hbm_bytes_per_s
        self._of_sampled: list[PerToken | Collective] = [
            physics.head(model, hardware, ranks),
            *physics.logits(model, hardware, ranks),
            PerToken("sampling", 1, 0.0, 0.0, read),
        ]
        self._sent = physics.send(model, hardware)
        self._device = engine.device_permille / 1000
        self._launch_ns = engine.launch_ns
        self._in_graph = engine.graph_tokens, max(engine.graph_tokens, engine.graph_batch)
        keep = lru_cache(_MOST_KEPT)
        self._sum_of_tokens = keep(lambda *tokens: self._sum(self._of_tokens(*tokens)))
        self._sum_of_ends = keep(lambda sampled: self._sum(self._of_ends(sampled)))

    def works(self, chunks: Chunks, decoding: int, context: int) -> tuple[list[Work], list[Work]]:
        """The work of a pass: in its layers, and outside. Empty if there is nothing to compute.

        Its duration is the sum of `Kernel.ns` over it, times `device_permille`; see `layer_ns` for
        launches without graphs.
        """
        filled = real(chunks)
        if not filled and not decoding:
            return [], []
        group, stage = self._tokens(filled, decoding)
        inside = self._of_tokens(group, stage) + self._of_context(filled, decoding, context)
        return inside, self._of_ends(len(filled) + decoding)

    def _tokens(self, chunks: Chunks, decoding: int) -> tuple[int, int]:
        """Tokens of the busiest attention group, and of a stage, at once."""
        new = decoding
        for start, end in chunks:
            new += end - start
        if self._groups == 1:
            return new, new
        sizes = [end - start for start, end in chunks] or [0]
        busiest = -int(-share(sum(sizes), max(sizes), self._groups) // 1)
        return busiest + -(-decoding // self._groups), new

    def _of_tokens(self, group: int, stage: int) -> list[Work]:
        result = [each.of(group) for each in self._of_group]
        result += [each.of(stage) for each in self._of_stage]
        if self._experts is not None:
            result.append(self._experts.of(stage))
        return result

    def _of_context(self, chunks: Chunks, decoding: int, context: int) -> list[Work]:
        groups = self._groups
        each, attended = -(-decoding // groups), -(-context // groups)
        result = []
        if chunks:
            result += [group.of_prefill(chunks, groups) for group in self._attention]
        if decoding:
            result += [group.of_decode(each, attended) for group in self._attention]
            result += [collective.of(each) for collective in self._decoded]
        starts = [start for start, _ in chunks] or [0]
        if self._cached is not None and max(starts):
            busiest = -int(-share(sum(starts), max(starts), groups) // 1)
            result.append(self._cached.of(busiest))
        if self._expanding:
            ends = [end for _, end in chunks] or [0]
            rows = each - int(-share(sum(ends), max(ends), groups) // 1)
            result += [per_token.of(rows) for per_token in self._expanding]
        if self._states is not None:
            sequences = each - -len(chunks) // groups
            result.append(self._states.of(self._tokens(chunks, decoding)[0], sequences))
        return result

    def _of_ends(self, sampled: int) -> list[Work]:
        return [*(each.of(sampled) for each in self._of_sampled), _REST]

    def _sum(self, works: list[Work]) -> tuple[float, float]:
        """Nanoseconds and launches of some work."""
        kernels, total, launches = self.kernels, 0.0, 0.0
        for kind, starts, compute, moved in works:
            total += kernels[kind].ns(starts, compute, moved)
            launches += starts
        return total, launches

    def layer_ns(self, chunks: Chunks, decoding: int, context: int) -> int:
        """See `TimeModel`. Of an average layer, rounded."""
        filled = real(chunks)
        if not filled and not decoding:
            return 0
        tokens = self._tokens(filled, decoding)
        of_tokens, launched = self._sum_of_tokens(*tokens)
        total, launches = self._sum(self._of_context(filled, decoding, context))
        total = (total + of_tokens) * self._device
        if self._launch_ns and tokens[1] > self._in_graph[not filled]:
            small = physics.launches_of_small(self.layers)
            total = max(total, (launches + launched + small) * self._launch_ns)
        return int(total / self.layers + 0.5)

    def starts(self, chunks: Chunks, decoding: int, context: int) -> float:
        """Launches of kernels in the layers of a pass that no graph holds; 0 for one in a graph."""
        filled = real(chunks)
        inside = self.works(chunks, decoding, context)[0]
        if not inside or self._tokens(filled, decoding)[1] <= self._in_graph[not filled]:
            return 0.0
        return sum(each.launches for each in inside) + physics.launches_of_small(self.layers)

    def overhead_ns(self, chunks: Chunks, decoding: int) -> int:
        """See `TimeModel`: the output head, sampling, and the rest of a pass."""
        sampled = len(real(chunks)) + decoding
        if not sampled:
            return 0
        return int(self._sum_of_ends(sampled)[0] * self._device + 0.5)

    def first_ns(self, chunks: Chunks, decoding: int) -> int:
        """See `TimeModel`."""
        if not real(chunks) and not decoding:
            return 0
        return int(self._sum([_REST])[0] * self._device + 0.5)

    def send_ns(self, chunks: Chunks, decoding: int) -> int:
        """See `TimeModel`."""
        tokens = self._tokens(real(chunks), decoding)[1]
        return int(self._sum([self._sent.of(tokens)])[0] * self._device + 0.5) if tokens else 0
