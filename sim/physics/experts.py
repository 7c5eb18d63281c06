"""The routed experts of a pass.

Tokens choose k of E experts each. If t tokens choose independently, they touch E (1 - (1 - k/E)^t)
different experts on average, whose weights are read once. Ranks share every expert, or hold some
whole; either way a rank reads its part of all touched weights. Where experts are whole, the rank
with the most work is `ranks_imbalance` times as busy as the average.

Does not contain the exchange of tokens between ranks (see exchanges) or the router (a product).
"""

from __future__ import annotations

from dataclasses import dataclass

from hicache.models import ModelDescription
from hicache.models.base import Matrix

from ..hardware.profile import HardwareProfile
from .constants import RooflineConstants
from .kernels import Work
from .products import NS, WEIGHT_BYTES, input_bytes, peak


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
