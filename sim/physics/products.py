"""The matrix products of a pass, its routed experts, and the small kernels between them, as work.

A product of m tokens with a matrix of k inputs and n outputs on a rank has 2 m k n operations,
reads the matrix once and moves m (k + n) elements. Its operations run at the peak of the units that
its type has; a type without units is widened and multiplied in bf16. A type of 8 bits or less with
units needs its inputs quantized, which the small kernels do.

Small kernels (norms, residuals, rotary embedding, activations, quantization) read and write each
product's output once, and the residual stream beside every output that ranks sum.

Tokens choose k of E experts each. If t tokens choose independently, they touch E (1 - (1 - k/E)^t)
different experts on average, whose weights are read once. Ranks share every expert, or hold some
whole; either way a rank reads its part of all touched weights. Where experts are whole, the rank
with the most work is `ranks_imbalance` times as busy as the average.

Does not contain attention itself (see attention) or the exchange of tokens between ranks (see
exchanges). The router is a product.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hicache.models import ModelDescription
from hicache.models.base import Matrix

from ..hardware.profile import HardwareProfile
from .constants import RooflineConstants
from .kernels import PerToken, Work

NS = 1e9
# Bytes of a weight with its scales: one for 16, 32 or 128 elements, or for a block of 128 x 128.
WEIGHT_BYTES = {
    "bf16": 2.0,
    "fp8": 1.0,
    "fp8-block": 1.0 + 4 / 128**2,
    "nvfp4": 0.5 + 1 / 16,
    "mxfp4": 0.5 + 1 / 32,
    "int4": 0.5 + 2 / 128,
}
_KERNELS_OF_SMALL_ONES = 5  # of a layer, if none are fused: two norms, two of attention, activation


def peak(hardware: HardwareProfile, dtype: str) -> int:
    """Operations per second of the units that multiply weights of this type."""
    if dtype in ("nvfp4", "mxfp4") and hardware.fp4_flops_per_s:
        # weights of mxfp4 are multiplied with inputs of fp8
        return hardware.fp4_flops_per_s if dtype == "nvfp4" else hardware.fp8_flops_per_s
    if dtype in ("fp8", "fp8-block") and hardware.fp8_flops_per_s:
        return hardware.fp8_flops_per_s
    return hardware.flops_per_s


def input_bytes(hardware: HardwareProfile, dtype: str) -> float:
    """Bytes of an element that is multiplied with a weight of this type."""
    if peak(hardware, dtype) == hardware.flops_per_s:
        return 2.0
    return WEIGHT_BYTES["nvfp4"] if dtype == "nvfp4" else 1.0


def matrices_of(model: ModelDescription) -> tuple[Matrix, ...]:
    """The matrices of a model, or stand-ins of the same parameters for one that lists none."""
    if model.matrices:
        return model.matrices
    found = []
    hidden, layers = model.hidden_size, model.layers
    for name, parameters, size, part in (
        ("all", model.layer_parameters - _chosen(model), model.layer_bytes, "mlp"),
        ("expert", model.expert_parameters, model.expert_bytes, "experts"),
    ):
        outputs = parameters // (2 * hidden * layers)
        if outputs > 0:
            dtype = _stored_as(size / parameters)
            for split in ("outputs", "inputs"):
                shape = (hidden, outputs) if split == "outputs" else (outputs, hidden)
                found.append(Matrix(f"{name}_{split}", *shape, layers, split, part, dtype))
    return tuple(found)


def _chosen(model: ModelDescription) -> int:
    """Parameters of the routed experts that one token uses."""
    return model.experts_per_token * model.expert_parameters


def _stored_as(weight_bytes: float) -> str:
    """The type whose weights take about so many bytes."""
    return min(WEIGHT_BYTES, key=lambda dtype: abs(WEIGHT_BYTES[dtype] - weight_bytes))


def shape(matrix: Matrix, ranks: int) -> tuple[float, float]:
    """Inputs and outputs of the products of one layer on a rank, all `count` of them together."""
    ways = 1 if matrix.split == "whole" else ranks
    outputs, inputs = matrix.outputs * matrix.count, matrix.inputs
    return (inputs / ways, outputs) if matrix.split == "inputs" else (inputs, outputs / ways)


def product(matrix: Matrix, hardware: HardwareProfile, ranks: int) -> PerToken:
    """The work of one matrix in all its layers."""
    inputs, outputs = shape(matrix, ranks)
    moved = inputs * input_bytes(hardware, matrix.dtype) + outputs * 2
    weights = inputs * outputs * WEIGHT_BYTES[matrix.dtype]
    bandwidth = hardware.hbm_bytes_per_s
    return PerToken(
        f"product.{matrix.dtype}",
        matrix.layers,
        matrix.layers * 2 * inputs * outputs * NS / peak(hardware, matrix.dtype),
        matrix.layers * weights * NS / bandwidth,
        matrix.layers * moved * NS / bandwidth,
    )


def small_kernels(
    matrices: Iterable[Matrix], hardware: HardwareProfile, ranks: int, layers: int, kept: float
) -> PerToken:
    """The work of the kernels between products. layers: of the model; kept: bytes of a token that
    the cache takes."""
    moved = kept
    for matrix in matrices:
        inputs, outputs = shape(matrix, ranks)
        each = 4 * outputs + (8 * outputs if matrix.split == "inputs" else 0)
        if input_bytes(hardware, matrix.dtype) < 2:
            each += 3 * inputs
        moved += matrix.layers * each
    return PerToken("elements", layers, 0.0, 0.0, moved * NS / hardware.hbm_bytes_per_s)


def launches_of_small(layers: int) -> int:
    """Launches of the small kernels of a pass where no graph holds them."""
    return layers * _KERNELS_OF_SMALL_ONES


def head(model: ModelDescription, hardware: HardwareProfile, ranks: int) -> PerToken:
    """The output head, for each token that is sampled."""
    matrix = Matrix("head", model.hidden_size, model.vocabulary, 1)
    return product(matrix, hardware, ranks)


@dataclass(frozen=True, slots=True)
class Experts:
    """The routed experts of all layers on the busiest of `ranks`.

    weights_ns: of one expert in all layers, at the peak bandwidth. compute_ns, moved_ns: of one
    token and one expert.
    """

    kind: str
    layers: int
    count: int
    chosen: int
    weights_ns: float
    compute_ns: float
    moved_ns: float

    def of(self, tokens: int, constants: RooflineConstants) -> Work:
        drawn = tokens * self.chosen
        touched = self.touched(tokens, constants.experts_choice)
        return Work(
            self.kind,
            self.layers,
            drawn * self.compute_ns,
            touched * self.weights_ns + drawn * self.moved_ns,
        )

    def touched(self, tokens: int, choice: float = 1.0) -> float:
        """Different experts of a layer that the tokens choose, on average."""
        missed: float = (1 - self.chosen / self.count) ** (tokens * choice)
        # one token chooses all its experts, however alike tokens choose
        return max(self.count * (1 - missed), float(min(tokens, 1) * self.chosen))


def experts(
    model: ModelDescription,
    matrices: list[Matrix],
    hardware: HardwareProfile,
    ranks: int,
    whole_on: int,
    constants: RooflineConstants,
) -> Experts | None:
    """None for a model without routed experts. whole_on: ranks over which whole experts are
    spread."""
    if not matrices:
        return None
    dtype, layers = matrices[0].dtype, matrices[0].layers
    parameters = sum(matrix.layers * matrix.parameters for matrix in matrices)
    width = input_bytes(hardware, dtype)
    elements = sum(
        matrix.layers * (matrix.inputs * width + matrix.outputs * 2) for matrix in matrices
    )
    imbalance = constants.ranks_imbalance if whole_on > 1 else 1.0
    share = imbalance / ranks
    bandwidth = hardware.hbm_bytes_per_s
    return Experts(
        f"experts.{dtype}",
        layers,
        model.experts,
        model.experts_per_token,
        parameters * WEIGHT_BYTES[dtype] * share * NS / bandwidth,
        2 * parameters * share * NS / peak(hardware, dtype),
        elements * (imbalance / whole_on) * NS / bandwidth,
    )
