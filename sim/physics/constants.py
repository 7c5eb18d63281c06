"""What each kind of kernel reaches, by the generation of the accelerator: the defaults.

Sources. [tables] the measured kernel tables of aiconfigurator-core 0.12.0 (Apache-2.0; vLLM 0.24.0,
SGLang 0.5.14 and TensorRT-LLM 1.3.0rc20 on A100, H100, H200 and B200), to which the form of
`kernels` was fitted; its medians are off by 5 to 10 %. [h100] measured by this project on an H100
SXM with torch 2.11, in CUDA graphs (docs/times.md). [estimate] of this project. The constants
that were fitted to whole passes replace these (see sim/times).

A constant is named KIND.FIELD, such as product.bf16.compute; `named` lists all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType

from hicache.core.errors import CallerError

from ..hardware.profile import HardwareProfile
from .kernels import Kernel

_RANKS = ("2", "4", "8")  # exchanges over so many ranks, and over their link
_SCALARS = ("experts_choice", "ranks_imbalance")
_HBM_BYTES_PER_S = 1_900_000_000_000  # HBM of Hopper and later reaches more, graphics memory less


@dataclass(frozen=True)
class RooflineConstants:
    """kernels: by kind. The two scalars have no kernel of their own:

    experts_choice   tokens choose their experts as if so many of them chose independently: below 1,
                     because tokens of one text choose alike.
    ranks_imbalance  work of the rank with the most, where experts are spread over ranks, in parts
                     of the average.
    """

    kernels: Mapping[str, Kernel]
    experts_choice: float = 0.8
    ranks_imbalance: float = 1.15

    def __post_init__(self) -> None:
        for name, least, most in (("experts_choice", 0.01, 2.0), ("ranks_imbalance", 1.0, 10.0)):
            if not least <= getattr(self, name) <= most:
                raise CallerError(
                    f"{name}: expected {least:g} to {most:g}, found {getattr(self, name)!r}"
                )

    def named(self) -> dict[str, float]:
        """Every constant under its name."""
        values = {name: getattr(self, name) for name in _SCALARS}
        for kind, kernel in self.kernels.items():
            values |= {f"{kind}.{field.name}": getattr(kernel, field.name) for field in _FIELDS}
        return values

    def replaced(self, values: Mapping[str, float]) -> RooflineConstants:
        """With some constants changed. Raises CallerError for a name that is unknown, and for a
        value out of its range."""
        kernels = dict(self.kernels)
        scalars = {name: getattr(self, name) for name in _SCALARS}
        for name, value in values.items():
            kind, _, field = name.rpartition(".")
            if name in scalars:
                scalars[name] = value
            elif kind in kernels and field in _NAMES:
                try:
                    kernels[kind] = replace(kernels[kind], **{field: value})
                except CallerError as error:
                    raise CallerError(f"{kind}.{error}") from None
            else:
                raise CallerError(
                    f"constant: expected a kind and one of {', '.join(_NAMES)}, such as "
                    f"product.bf16.compute, or one of {', '.join(_SCALARS)}, found {name!r}"
                )
        return RooflineConstants(MappingProxyType(kernels), **scalars)


_FIELDS = fields(Kernel)
_NAMES = tuple(field.name for field in _FIELDS)


def family(hardware: HardwareProfile) -> str:
    """The generation of an accelerator, by its units: blackwell (fp4), hopper (fp8 and HBM), ada
    (fp8 and graphics memory) or ampere."""
    if hardware.fp4_flops_per_s and hardware.hbm_bytes_per_s >= _HBM_BYTES_PER_S:
        return "blackwell"
    if hardware.fp8_flops_per_s:
        return "hopper" if hardware.hbm_bytes_per_s >= _HBM_BYTES_PER_S else "ada"
    return "ampere"


def defaults(name: str) -> RooflineConstants:
    """The constants of a generation."""
    kernels = {kind: Kernel(*values) for kind, values in (_ALL | _OF[name]).items()}
    return RooflineConstants(MappingProxyType(kernels))


def of_reached(constants: RooflineConstants) -> RooflineConstants:
    """For an accelerator whose rates are not peaks, but what products in bf16 were measured to
    reach: the others in proportion."""
    base, kernels = constants.kernels["product.bf16"], dict[str, Kernel]()
    for kind, kernel in constants.kernels.items():
        compute, memory = kernel.compute / base.compute, kernel.memory
        if kind.rpartition(".")[2] not in _RANKS:
            memory /= base.memory
        kernels[kind] = replace(kernel, compute=compute, memory=memory)
    return replace(constants, kernels=MappingProxyType(kernels))


Values = tuple[float, ...]  # fixed_us, compute, memory, power


def _exchanges(kind: str, memory: float, *fixed_us: float) -> dict[str, Values]:
    """By ranks: 2, 4 and 8."""
    return {
        f"{kind}.{ranks}": (fixed, 1.0, memory, 1.0)
        for ranks, fixed in zip((2, 4, 8), fixed_us, strict=True)
    }


# What no generation below changes.
_ALL: dict[str, Values] = {
    # weights in fewer bits than the units multiply are widened first [estimate]
    "product.fp8": (6.0, 0.60, 0.75, 3.3),
    "product.fp8-block": (6.5, 0.60, 0.75, 3.3),
    "product.nvfp4": (6.0, 0.60, 0.70, 3.3),
    "product.mxfp4": (6.0, 0.60, 0.70, 3.3),
    "product.int4": (6.0, 0.60, 0.70, 3.3),
    "experts.bf16": (50.0, 0.50, 0.90, 2.0),  # [tables] H100, H200
    "experts.fp8": (40.0, 0.40, 0.75, 2.0),
    "experts.fp8-block": (45.0, 0.30, 0.95, 2.0),  # [tables] H100, H200
    "experts.nvfp4": (40.0, 0.38, 0.55, 2.0),
    "experts.mxfp4": (45.0, 0.40, 0.75, 1.2),  # [tables] H100, H200
    "experts.int4": (40.0, 0.38, 0.55, 2.0),
    "prefill.64": (16.0, 0.47, 0.80, 3.0),  # [h100]
    "prefill.128": (16.0, 0.65, 0.80, 3.0),  # [tables], [h100] 0.62
    "prefill.256": (16.0, 0.60, 0.80, 3.0),
    "decode.kv": (7.0, 0.30, 0.92, 2.0),  # [tables], of which half the fixed time is launch
    "decode.kv_fp8": (8.0, 0.30, 0.85, 2.0),
    "decode.latent": (10.0, 0.60, 0.85, 2.0),
    "decode.latent_fp8": (10.0, 0.60, 0.75, 2.0),
    "indexer": (8.0, 0.50, 0.70, 2.0),  # [estimate]
    "state": (10.0, 0.20, 0.60, 2.0),  # [estimate]
    "elements": (8.0, 1.0, 0.70, 1.0),  # all small kernels of a layer [estimate]
    "sampling": (30.0, 1.0, 0.60, 1.0),  # [estimate]
    "pass": (40.0, 1.0, 1.0, 1.0),  # embedding, final norm, inputs [estimate]
    **_exchanges("send", 0.70, 10.0, 10.0, 10.0),
    **_exchanges("pcie", 0.40, 20.0, 30.0, 50.0),  # a sum over ranks without NVLink [estimate]
}
_OF: dict[str, dict[str, Values]] = {
    "ampere": {
        "product.bf16": (5.5, 0.83, 0.75, 3.3),  # [tables] A100
        "prefill.64": (16.0, 0.50, 0.80, 3.0),
        "prefill.128": (16.0, 0.60, 0.80, 3.0),
        **_exchanges("custom", 0.56, 5.3, 6.0, 7.0),
        **_exchanges("fused", 0.56, 5.3, 6.0, 7.0),
        **_exchanges("nccl", 0.56, 8.0, 12.0, 20.0),
        **_exchanges("all_gather", 0.56, 6.0, 9.0, 14.0),
        **_exchanges("all_to_all", 0.60, 8.0, 10.0, 15.0),
    },
    "ada": {
        "product.bf16": (4.0, 0.75, 0.85, 3.3),  # [estimate]
        "product.fp8": (6.0, 0.60, 0.85, 3.3),
        **_exchanges("custom", 0.70, 10.0, 14.0, 24.0),
        **_exchanges("fused", 0.70, 10.0, 14.0, 24.0),
        **_exchanges("nccl", 0.70, 12.0, 20.0, 40.0),
        **_exchanges("all_gather", 0.70, 10.0, 16.0, 30.0),
        **_exchanges("all_to_all", 0.60, 12.0, 18.0, 32.0),
    },
    "hopper": {  # [tables] H100 and H200
        "product.bf16": (3.5, 0.77, 0.86, 3.3),  # [tables] 0.82, [h100] 0.73
        "product.fp8": (3.5, 0.70, 0.84, 3.3),  # [h100]; quantizing is a small kernel
        "product.fp8-block": (6.5, 0.68, 0.80, 3.3),
        **_exchanges("custom", 0.62, 4.5, 5.0, 6.0),
        **_exchanges("fused", 0.62, 3.0, 3.3, 4.5),
        **_exchanges("nccl", 0.62, 6.0, 10.0, 16.0),
        **_exchanges("all_gather", 0.62, 5.0, 7.0, 11.0),
        **_exchanges("all_to_all", 0.60, 6.0, 7.0, 9.0),
    },
    "blackwell": {  # [tables] B200
        "product.bf16": (3.5, 0.71, 0.77, 3.3),
        "product.fp8": (4.0, 0.58, 0.72, 3.3),
        "product.fp8-block": (6.5, 0.60, 0.80, 3.3),
        "product.nvfp4": (6.0, 0.42, 0.70, 3.3),
        "product.mxfp4": (6.0, 0.42, 0.70, 3.3),
        "experts.bf16": (24.0, 0.40, 0.90, 2.0),
        "experts.fp8": (20.0, 0.46, 0.88, 2.0),
        "experts.nvfp4": (23.0, 0.30, 0.80, 2.0),
        "experts.mxfp4": (22.0, 0.43, 0.60, 2.0),
        "experts.fp8-block": (35.0, 0.18, 0.80, 2.0),
        "prefill.64": (16.0, 0.42, 0.80, 3.0),
        "prefill.128": (16.0, 0.55, 0.80, 3.0),
        "prefill.256": (16.0, 0.50, 0.80, 3.0),
        **_exchanges("custom", 0.55, 7.0, 7.5, 8.5),
        **_exchanges("fused", 0.55, 4.8, 5.0, 6.0),
        **_exchanges("nccl", 0.55, 9.0, 14.0, 26.0),
        **_exchanges("all_gather", 0.55, 8.0, 11.0, 17.0),
        **_exchanges("all_to_all", 0.60, 6.0, 7.0, 9.0),
    },
}
