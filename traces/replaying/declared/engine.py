"""The options of a replay for the model, the hardware, the ranks and the engine."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from hicache import models, registry
from hicache.core.errors import CallerError
from sim import engine_profiles
from sim.hardware import measured
from sim.hardware import profile as hardware
from sim.options import EngineOptions as Plain
from sim.times.base import DEFAULT as DEFAULT_TIMES
from sim.times.base import Parallelism

from ...outside.entries import entry, spelled_out
from ...terminal.options import COUNT, Bandwidth, Names, OptionRecord, bandwidth, choice
from ...terminal.rows import option
from ..defaults import HARDWARE, HOST_COPIES, MODEL
from .needs import Need


def _engine(text: str) -> str:
    """The name of an engine, with its version or without, or the path of a file."""
    try:
        engine_profiles.get(text)
    except CallerError as error:
        said = str(error).removeprefix("engine: ")
        raise argparse.ArgumentTypeError(said) from None
    return text


def _hardware(text: str) -> str:
    """The name of a profile, or the path of a measured one."""
    if measured.is_path(text):
        return text
    try:
        return choice(hardware.names())(text)
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(
            f"{error}; or give the path of a file that calibrate wrote, with a / or .json"
        ) from None


def _model(text: str) -> str:
    """The name of a model, completed if its beginning is unique, or the path of a JSON file."""
    if models.is_path(text):
        return text
    try:
        return models.get(text.replace("_", "-")).name
    except CallerError as error:
        said = str(error).removeprefix("model: ")
        raise argparse.ArgumentTypeError(
            f"{said}; or give the path of a file with a model, with a / or .json"
        ) from None


@dataclass(frozen=True)
class TimesOptions(OptionRecord):
    HEADING = "model, hardware and engine (sizes in both modes, times in timed)"

    times: str | None = option(
        lambda: (
            f"time model of forward passes: {spelled_out(registry.TIMES)} (default: "
            f"{DEFAULT_TIMES})"
        ),
        entry(registry.TIMES),
        "NAME",
        needs=(Need.TIMED,),
        tried="pure-roofline",
    )


@dataclass(frozen=True)
class EngineOptions(TimesOptions):
    HEADING = TimesOptions.HEADING

    model: str | None = option(
        f"a name of `hicache models` or its beginning, tiny, or a JSON file with a model (default: "
        f"{MODEL})",
        Names(_model, models.names),
        common=True,
        file=lambda text: text if models.is_path(text) else None,
        keys=True,
        tried="tiny",
    )
    weight_dtype: str | None = option(
        f"type of the weights but the embeddings: {', '.join(models.WEIGHT_BITS)} (default: the "
        "model's)",
        choice([*models.WEIGHT_BITS]),
        "TYPE",
        keys=True,
    )
    kv_dtype: str | None = option(
        f"type of cached keys, values and latents: {', '.join(models.KV_DTYPES)} (default: the "
        "model's)",
        choice(models.KV_DTYPES),
        "TYPE",
        keys=True,
    )
    hardware: str | None = option(
        lambda: (
            f"{', '.join(hardware.names())}, or a file that calibrate wrote (default: {HARDWARE})"
        ),
        Names(_hardware, hardware.names),
        common=True,
        needs=(Need.SIZED,),
        file=lambda text: text if measured.is_path(text) else None,
    )
    tp: int = option(
        "accelerators that share the model",
        *COUNT,
        default=1,
        common=True,
        in_head=True,
        keys=True,
        tried="2",
    )
    pp: int = option(
        "pipeline stages that share the layers, each on --tp accelerators",
        *COUNT,
        default=1,
        in_head=True,
        tried="2",
    )
    ep: int | None = option(
        "accelerators over which the routed experts are spread whole, a divisor of --tp (default: "
        "1, all share each expert)",
        *COUNT,
        needs=(Need.TIMED,),
    )
    attention_dp: int | None = option(
        "groups of accelerators that attend to requests of their own, a divisor of --tp (default: "
        "1)",
        *COUNT,
    )
    dcp: int | None = option(
        "ranks that have the same rows and divide their tokens, as vLLM's decode context parallel "
        "groups, a divisor of these ranks (default: 1)",
        *COUNT,
    )
    host_copies: str | None = option(
        f"in host memory each {HOST_COPIES[0]} keeps its pages, or ranks that have the same rows "
        f"keep them once on their {HOST_COPIES[1]} (default: {HOST_COPIES[0]})",
        choice([*HOST_COPIES]),
        "WHOSE",
        needs=(Need.HOST,),
        tried="node",
    )
    engine: str | None = option(
        lambda: (
            f"{', '.join(engine_profiles.names())}, such as vllm@0.12.0, or a JSON file with "
            "an engine of your own: how passes are composed, and the time of the host (default: "
            f"{engine_profiles.DEFAULT})"
        ),
        Names(_engine, engine_profiles.names),
        "NAME[@VERSION]",
        common=True,
        needs=(Need.TIMED,),
        file=lambda text: text if engine_profiles.is_path(text) else None,
        tried="sglang",
    )
    host_bandwidth: Bandwidth | None = option(
        "host link of each rank, in each direction: bytes per second that copies reach (50GB), or "
        "a multiple of what the profile reaches of its peak, 87% for most (0.5x) (default: 1x)",
        bandwidth,
        "B",
        needs=(Need.TIMED, Need.HOST),
    )
    scheduler: str | None = option(
        lambda: (
            f"who is admitted next: {spelled_out(registry.SCHEDULERS)} (default: {Plain().order})"
        ),
        entry(registry.SCHEDULERS),
        "ORDER",
        needs=(Need.TIMED,),
    )
    token_budget: int | None = option(
        "tokens in one forward pass (default: the engine's)", *COUNT, needs=(Need.PASSES,)
    )
    max_running: int | None = option(
        "requests running at once (default: the engine's)", *COUNT, needs=(Need.TIMED,)
    )

    @property
    def parallelism(self) -> Parallelism:
        """How the ranks share the model. Raises CallerError for numbers that contradict."""
        shared = self.host_copies == HOST_COPIES[1]
        groups = self.attention_dp or 1, self.dcp or 1
        return Parallelism(self.tp, self.pp, self.ep or 1, *groups, shared_host=shared)
