"""The duration of a pass, computed a second time: for the pure roofline and for the roofline.

Lives here: the formulas of docs/times.md, told as loops over layers, ranks and queries; those of
the pure roofline in exact fractions. Only for small batches. Does not use sim/physics or the time
models, with which they are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from math import ceil
from typing import NamedTuple

from hicache.models import Matrix, ModelDescription
from sim.engine_profiles.base import EngineProfile
from sim.hardware.profile import HardwareProfile
from sim.times.base import Chunks, Parallelism

_NS = 10**9
_BITS = {"bf16": 16, "fp8": 8, "fp8-block": 8, "nvfp4": 4, "mxfp4": 4, "int4": 4}
_SCALED = {"fp8-block": (32, 128 * 128), "nvfp4": (8, 16), "mxfp4": (8, 32), "int4": (16, 128)}
_ROWS = ("kv", "latent", "indexer")
Constants = Mapping[str, float]  # KIND.FIELD


class Launch(NamedTuple):
    """One kernel: its kind, its operations and their peak, its bytes and their peak."""

    kind: str
    flops: float = 0.0
    flops_per_s: float = 1.0
    moved: float = 0.0
    bytes_per_s: float = 1.0
    starts: float = 1.0


class PlainKernels:
    """Durations of one model. The methods are those of a time model, in unrounded nanoseconds."""

    def __init__(
        self,
        model: ModelDescription,
        hardware: HardwareProfile,
        parallelism: Parallelism,
        engine: EngineProfile,
        constants: Constants,
    ) -> None:
        self.model, self.hardware, self.parallelism = model, hardware, parallelism
        self.engine, self.constants = engine, constants

    def step_ns(self, chunks: Chunks, decoding: int, context: int) -> float:
        """Nanoseconds of a pass."""
        real = [chunk for chunk in chunks if chunk[0] < chunk[1]]
        if not real and not decoding:
            return 0.0
        inside = [*self.inside(real, decoding, context)]
        total = sum(map(self._ns, inside)) * self.engine.device_permille / 1000
        stage = self._most_tokens(real, decoding, 1)
        held = self.engine.graph_tokens
        if not real:
            held = max(held, self.engine.graph_batch)
        if self.engine.launch_ns and stage > held:
            launches = sum(one.starts for one in inside) + 5 * self.model.layers
            total = max(total, launches * self.engine.launch_ns)
        outside = sum(map(self._ns, self.outside(len(real) + decoding)))
        return total + outside * self.engine.device_permille / 1000

    def inside(self, chunks: Chunks, decoding: int, context: int) -> Iterator[Launch]:
        """The kernels of all layers, one by one."""
        dp = self.parallelism.attention_dp
        own = self._most_tokens(chunks, decoding, dp)
        stage = self._most_tokens(chunks, decoding, 1)
        for matrix in self.model.matrices:
            if matrix.part == "experts":
                continue
            tokens = stage if matrix.part == "mlp" else own
            if matrix.expands:
                ends = [end for _, end in chunks] or [0]
                tokens = self._most(ends, dp) - -decoding // dp
            for _ in range(matrix.layers):
                yield self._product(matrix, tokens, self._ranks_of(matrix))
        yield from self._experts(stage)
        yield from self._small(own, stage)
        yield from self._attention(chunks, decoding, context, own)
        yield from self._exchanges(own, stage)
        if self.parallelism.dcp > 1:
            yield from self._in_context_groups(chunks, decoding)

    def send_ns(self, tokens: int) -> float:
        """Nanoseconds in which a pipeline stage hands these tokens on."""
        one = self._exchange("send", 2, tokens * self.model.hidden_size * 2, 1)
        return self._ns(one) * self.engine.device_permille / 1000

    def first_ns(self) -> float:
        """Of what is outside the layers, what the first pipeline stage does."""
        return self._ns(Launch("pass")) * self.engine.device_permille / 1000

    def outside(self, each: int) -> Iterator[Launch]:
        """The kernels after the layers, of so many sequences that sample."""
        model, tp = self.model, self.parallelism.tp
        yield self._product(Matrix("head", model.hidden_size, model.vocabulary, 1), each, tp)
        if tp > 1:
            sent = each * (tp - 1) / tp * model.vocabulary * 2
            yield self._exchange("all_gather", tp, sent, 1)
        passes = self.engine.logit_passes or 4
        read = each * model.vocabulary * 4 * passes
        yield Launch("sampling", moved=read, bytes_per_s=self.hardware.hbm_bytes_per_s)
        yield Launch("pass")

    def _ns(self, one: Launch) -> float:
        fixed, compute, memory, power = (
            self.constants[f"{one.kind}.{field}"]
            for field in ("fixed_us", "compute", "memory", "power")
        )
        terms = (
            one.flops / (one.flops_per_s * compute) * 1e9,
            one.moved / (one.bytes_per_s * memory) * 1e9,
        )
        longest = max(terms)
        if not longest:
            return one.starts * fixed * 1000
        rest = sum((term / longest) ** power for term in terms)
        return float(one.starts * fixed * 1000 + longest * rest ** (1 / power))

    def _most_tokens(self, chunks: Chunks, decoding: int, parts: int) -> int:
        return self._most([end - start for start, end in chunks] or [0], parts) - -decoding // parts

    @staticmethod
    def _most(sizes: list[int], parts: int) -> int:
        return max(-(-sum(sizes) // parts), max(sizes))

    def _ranks_of(self, matrix: Matrix) -> int:
        return self.parallelism.tp if matrix.part == "mlp" else self.parallelism.attention_tp

    def _peak(self, dtype: str) -> int:
        """Widened to bf16 without units for it; mxfp4 meets inputs of fp8."""
        hardware = self.hardware
        found = {
            "fp8": hardware.fp8_flops_per_s,
            "fp8-block": hardware.fp8_flops_per_s,
            "nvfp4": hardware.fp4_flops_per_s,
            "mxfp4": hardware.fp8_flops_per_s if hardware.fp4_flops_per_s else 0,
        }.get(dtype, 0)
        return found or hardware.flops_per_s

    def _input_bytes(self, dtype: str) -> float:
        if self._peak(dtype) == self.hardware.flops_per_s:
            return 2.0
        return self._weight_bytes(dtype) if dtype == "nvfp4" else 1.0

    @staticmethod
    def _weight_bytes(dtype: str) -> float:
        scale, group = _SCALED.get(dtype, (0, 1))
        return (_BITS[dtype] + scale / group) / 8

    @staticmethod
    def _shape(matrix: Matrix, ranks: int) -> tuple[float, float]:
        inputs, outputs = float(matrix.inputs), float(matrix.outputs * matrix.count)
        if matrix.split == "inputs":
            inputs /= ranks
        if matrix.split == "outputs":
            outputs /= ranks
        return inputs, outputs

    def _product(self, matrix: Matrix, tokens: int, ranks: int) -> Launch:
        inputs, outputs = self._shape(matrix, ranks)
        moved = inputs * outputs * self._weight_bytes(matrix.dtype)
        moved += tokens * (inputs * self._input_bytes(matrix.dtype) + outputs * 2)
        return Launch(
            f"product.{matrix.dtype}",
            2 * tokens * inputs * outputs,
            self._peak(matrix.dtype),
            moved,
            self.hardware.hbm_bytes_per_s,
        )

    def _experts(self, tokens: int) -> Iterator[Launch]:
        routed = [matrix for matrix in self.model.matrices if matrix.part == "experts"]
        if not routed:
            return
        model, tp, ep = self.model, self.parallelism.tp, self.parallelism.ep
        missed = 1 - model.experts_per_token / model.experts
        alike = self.constants["experts_choice"]
        touched = model.experts * (1 - missed ** (tokens * alike))
        touched = max(touched, model.experts_per_token)
        busy = self.constants["ranks_imbalance"] if ep > 1 else 1.0
        drawn = tokens * model.experts_per_token
        dtype = routed[0].dtype
        for _ in range(routed[0].layers):
            flops = moved = 0.0
            for matrix in routed:
                size = matrix.inputs * matrix.outputs
                flops += busy * 2 * drawn * size / tp
                moved += busy * touched * size * self._weight_bytes(dtype) / tp
                row = matrix.inputs * self._input_bytes(dtype) + matrix.outputs * 2
                moved += busy * drawn * row / ep
            yield Launch(
                f"experts.{dtype}", flops, self._peak(dtype), moved, self.hardware.hbm_bytes_per_s
            )

    def _small(self, own: int, stage: int) -> Iterator[Launch]:
        """One start in each layer; output read and written, residual beside what is summed."""
        shared = self.parallelism.attention_tp
        moved = own * float(sum(pool.token_bytes(shared) for pool in self.model.pools))
        moved /= self.parallelism.dcp
        for matrix in self.model.matrices:
            if matrix.part == "experts":
                continue
            tokens = stage if matrix.part == "mlp" else own
            inputs, outputs = self._shape(matrix, self._ranks_of(matrix))
            row = 2 * 2 * outputs
            if matrix.split == "inputs":
                row += 2 * 2 * 2 * outputs
            if self._input_bytes(matrix.dtype) < 2:
                row += 2 * inputs + inputs
            moved += tokens * matrix.layers * row
        rate = self.hardware.hbm_bytes_per_s
        yield Launch("elements", moved=moved, bytes_per_s=rate, starts=self.model.layers)

    def _attention(self, chunks: Chunks, decoding: int, context: int, own: int) -> Iterator[Launch]:
        parts = self.parallelism.attention_dp
        each, attended = -(-decoding // parts), -(-context // parts)
        model, ranks = self.model, self.parallelism.attention_tp
        rates = self.hardware.flops_per_s, self.hardware.hbm_bytes_per_s
        for pool in model.pools:
            if pool.kind == "state" and not pool.anchor and pool == self._states()[0]:
                yield self._state(own, each - -len(chunks) // parts)
            if pool.kind not in _ROWS:
                continue
            index = pool.kind == "indexer"
            window = 0 if index else pool.window
            if model.selected_tokens and not window and not index:
                window = model.selected_tokens * pool.compression
            most = window or 1 << 60
            heads = 0 if index else len(pool.layers) * model.attention_heads / ranks
            row = float(pool.token_bytes(ranks))
            elements = model.score_elements + model.value_elements
            small = "_fp8" if pool.dtype in ("fp8", "fp4") else ""
            query = heads * elements * 2
            if chunks:
                flops, moved = [], []
                for start, end in chunks:
                    pairs = sum(min(one + 1, most) for one in range(start, end))
                    flops.append(2 * heads * pairs / pool.compression * elements)
                    rows = min(end, end - start + most)
                    moved.append(rows * row + (end - start) * query)
                width = 64 if model.value_elements <= 64 else 128
                kind = f"prefill.{width if model.value_elements <= 128 else 256}"
                busiest = [max(sum(sizes) / parts, max(sizes)) for sizes in (flops, moved)]
                yield Launch(
                    "indexer" if index else kind,
                    busiest[0], rates[0], busiest[1], rates[1], len(pool.layers),
                )  # fmt: skip
            if decoding:
                rows = min(attended, each * most)
                elements = model.decode_score_elements + model.decode_value_elements
                kind = f"decode.{'latent' if pool.kind == 'latent' else 'kv'}{small}"
                yield Launch(
                    "indexer" if index else kind,
                    2 * heads * rows / pool.compression * elements, rates[0],
                    rows / self.parallelism.dcp * row + each * query * self.parallelism.dcp,
                    rates[1], len(pool.layers),
                )  # fmt: skip

    def _states(self) -> list[object]:
        return [pool for pool in self.model.pools if pool.kind == "state" and not pool.anchor]

    def _state(self, tokens: int, sequences: int) -> Launch:
        ranks, moved, elements, layers = self.parallelism.attention_tp, 0.0, 0.0, 0
        for pool in self.model.pools:
            if pool.kind == "state" and not pool.anchor:
                moved += 2 * sequences * pool.page_bytes(1, ranks)
                each = len(pool.parts) * pool.heads * pool.head_elements
                elements += len(pool.layers) * each / ranks
                layers = max(layers, len(pool.layers))
        hardware = self.hardware
        flops = 6 * tokens * elements
        return Launch("state", flops, hardware.flops_per_s, moved, hardware.hbm_bytes_per_s, layers)

    def _exchanges(self, own: int, stage: int) -> Iterator[Launch]:
        model, kind = self.model, self.engine.all_reduce
        tp, ep, shared = self.parallelism.tp, self.parallelism.ep, self.parallelism.attention_tp
        row = model.hidden_size * 2
        for matrix in model.matrices:
            if matrix.part == "attention" and matrix.split == "inputs" and shared > 1:
                sent = 2 * (shared - 1) / shared * own * row
                for _ in range(matrix.layers):
                    yield self._exchange(kind, shared, sent, 1)
        sparse = max((one.layers for one in model.matrices if one.part == "experts"), default=0)
        for layer in range(model.layers if tp > 1 else 0):
            if shared == tp:
                yield self._exchange(kind, tp, 2 * (tp - 1) / tp * stage * row, 1)
            elif ep > 1 and layer < sparse:
                copies = ep * (1 - (1 - 1 / ep) ** model.experts_per_token)
                sent = (tp - 1) / tp * stage / tp * row * copies * 1.5
                yield self._exchange("all_to_all", ep, sent, 2)
            else:
                yield self._exchange("all_gather", tp, 2 * (tp - 1) / tp * stage * row, 2)

    def _in_context_groups(self, chunks: Chunks, decoding: int) -> Iterator[Launch]:
        """Each rank sends to each other one of its group: its queries, the partial outputs and
        log-sums of that one's heads, and its part of the cached rows."""
        model, ranks, dcp = self.model, self.parallelism.attention_tp, self.parallelism.dcp
        parts, others, heads = self.parallelism.attention_dp, dcp - 1, model.attention_heads / ranks
        each, starts = -(-decoding // parts), [start for start, _ in chunks]
        for layer in range(model.layers):
            row = 0.0
            for pool in model.pools:
                if layer in pool.layers:
                    row += float(pool.token_bytes(ranks)) / len(pool.layers)
            if decoding:
                asked = heads * each * model.decode_score_elements * 2
                found = heads * each * (model.decode_value_elements * 2 + 4)
                yield self._exchange("all_gather", dcp, others * asked, 1)
                yield self._exchange("all_to_all", dcp, others * found, 1)
            if any(starts):
                rows = self._most(starts, parts)
                yield self._exchange("all_gather", dcp, others * rows * row / dcp, 1)

    def _exchange(self, kind: str, ranks: int, sent: float, times: int) -> Launch:
        """sent: bytes of a rank, all times together."""
        known = next(count for count in (2, 4, 8) if count >= min(ranks, 8))
        name = "pcie" if self.hardware.ranks_link == "pcie" else kind
        starts = times * max(1.0, ranks / 8)
        if kind in ("custom", "nccl", "fused"):
            starts *= 1 + sent / (sent + times * max(1.0, ranks / 8) * 2**20) if sent else 1
        link = self.hardware.ranks_link_bytes_per_s or self.hardware.link_bytes_per_s
        return Launch(f"{name}.{known}", moved=sent, bytes_per_s=link, starts=starts)


class PlainCosts:
    """Durations of one model on `tp` ranks. The methods are those of sim/times."""

    def __init__(self, model: ModelDescription, profile: HardwareProfile, tp: int = 1) -> None:
        self.layers = model.layers
        self._model = model
        self._profile = profile
        self._tp = tp
        self._flops_per_s = profile.flops_per_s * profile.compute_permille // 1000 * tp
        self._bytes_per_s = profile.hbm_bytes_per_s * profile.hbm_permille // 1000 * tp

    def layer_ns(self, chunks: Chunks, decoding: int, context: int) -> int:
        """Nanoseconds of one average layer."""
        real = [chunk for chunk in chunks if chunk[1] > chunk[0]]
        tokens = decoding + sum(end - start for start, end in real)
        if not tokens:
            return 0
        flops = 2 * self._model.layer_parameters * tokens + self._attention(real, decoding, context)
        moved = self._weights(tokens) + self._rows(real, decoding, context)
        compute = Fraction(flops * _NS, self._flops_per_s * self.layers)
        memory = Fraction(moved * _NS, self._bytes_per_s * self.layers)
        return ceil(max(compute, memory))

    def _attention(self, chunks: Chunks, decoding: int, context: int) -> int:
        """Operations of attention in all layers: each query meets the tokens up to itself."""
        model, flops = self._model, 0
        heads = 2 * model.attention_heads
        for layer in range(model.layers):
            pools = [pool for pool in model.pools if layer in pool.layers]
            if pools and all(pool.kind == "state" for pool in pools):
                continue  # a recurrence does not attend
            windows = [pool.window for pool in pools if pool.kind != "state"]
            window = 0 if not windows or 0 in windows else max(windows)
            most = window or 1 << 60
            pairs = sum(
                min(query + 1, most) for start, end in chunks for query in range(start, end)
            )
            met = min(context, decoding * most)
            flops += heads * pairs * (model.score_elements + model.value_elements)
            flops += heads * met * (model.decode_score_elements + model.decode_value_elements)
        return flops

    def _weights(self, tokens: int) -> int:
        """Bytes of weights that all ranks read, with the experts that the tokens choose."""
        model = self._model
        chosen = min(model.experts, model.experts_per_token * tokens)
        return model.layer_bytes + chosen * model.expert_bytes

    def _rows(self, chunks: Chunks, decoding: int, context: int) -> int:
        """Bytes of cached rows and states that all ranks read and write."""
        moved, tp = 0, self._tp
        by_window: dict[int, Fraction] = {}
        for pool in self._model.pools:
            if pool.kind == "state" and not pool.anchor:
                moved += 2 * tp * pool.page_bytes(1, tp) * (decoding + len(chunks))
            size = by_window.get(pool.window, Fraction(0))
            by_window[pool.window] = size + pool.token_bytes(tp)
        for window, size in by_window.items():
            most = window or 1 << 60
            rows = min(context, decoding * most)
            rows += sum(min(end, end - start + most) for start, end in chunks)
            moved += ceil(size) * tp * rows
        return moved

    def overhead_ns(self, chunks: Chunks, decoding: int) -> int:
        """Nanoseconds of a pass outside its layers: the output head of all that sample, once."""
        sampled = decoding + sum(end > start for start, end in chunks)
        if not sampled:
            return 0
        model = self._model
        compute = Fraction(2 * model.head_parameters * sampled * _NS, self._flops_per_s)
        memory = Fraction(model.head_bytes * _NS, self._bytes_per_s)
        return self._profile.step_overhead_ns + ceil(max(compute, memory))
