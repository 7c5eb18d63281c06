"""The options of `hicache replay` for the model, the hardware, the ranks and the engine.

Only names, parsers and help. What is not given is None; see replaying/settings for what it then is.
"""

from __future__ import annotations

import argparse

from hicache import models
from hicache.core import registry
from hicache.core.errors import CallerError
from sim import engine_profiles
from sim.hardware import measured
from sim.hardware import profile as hardware
from sim.options import EngineOptions

from ..outside.entries import entry
from ..replaying.options import HARDWARE, MODEL
from ..terminal import options as read
from ._options import add_times, known_entries


def add_engine(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "model, hardware and engine (sizes in both modes, times in timed)"
    )
    add = group.add_argument
    add(
        "--model",
        type=read.Names(_model, models.names),
        help=f"a name of `hicache models` or its beginning, tiny, or a JSON file with a model "
        f"(default: {MODEL})",
    )
    add(
        "--weight-dtype",
        type=read.choice([*models.WEIGHT_BITS]),
        metavar="TYPE",
        help=f"type of the weights but the embeddings: {', '.join(models.WEIGHT_BITS)} (default: "
        "the model's)",
    )
    add(
        "--kv-dtype",
        type=read.choice(models.KV_DTYPES),
        metavar="TYPE",
        help=f"type of cached keys, values and latents: {', '.join(models.KV_DTYPES)} (default: "
        "the model's)",
    )
    add(
        "--hardware",
        type=read.Names(_hardware, hardware.names),
        help=f"{', '.join(hardware.names())}, or a file that calibrate wrote (default: {HARDWARE})",
    )
    add(
        "--tp",
        type=read.at_least(1),
        default=1,
        metavar="N",
        help="accelerators that share the model",
    )
    add_ranks(group)
    add_times(group)
    add(
        "--host-bandwidth",
        type=read.bandwidth,
        metavar="B",
        help="host link of each rank, in each direction: bytes per second that copies reach "
        "(50GB), or a multiple of what the profile reaches of its peak, 87%% for most (0.5x) "
        "(default: 1x)",
    )
    add(
        "--scheduler",
        type=entry(registry.SCHEDULERS),
        metavar="ORDER",
        help=f"who is admitted next: {known_entries(registry.SCHEDULERS)} (default: "
        f"{EngineOptions().order})",
    )
    add(
        "--token-budget",
        type=read.at_least(1),
        metavar="N",
        help="tokens in one forward pass (default: the engine's)",
    )
    add(
        "--max-running",
        type=read.at_least(1),
        metavar="N",
        help="requests running at once (default: the engine's)",
    )


def add_ranks(group: argparse._ArgumentGroup) -> None:
    """How the ranks share the model, and which engine serves it."""
    add = group.add_argument
    add(
        "--ep",
        type=read.at_least(1),
        metavar="N",
        help="accelerators over which the routed experts are spread whole, a divisor of --tp "
        "(default: 1, all share each expert)",
    )
    add(
        "--attention-dp",
        type=read.at_least(1),
        metavar="N",
        help="groups of accelerators that attend to requests of their own, a divisor of --tp "
        "(default: 1)",
    )
    add(
        "--engine",
        type=read.Names(_engine, engine_profiles.names),
        metavar="NAME[@VERSION]",
        help=f"{', '.join(engine_profiles.names())}, such as vllm@0.12.0, or a JSON file with an "
        f"engine of your own: how passes are composed, and the time of the host (default: "
        f"{engine_profiles.DEFAULT})",
    )


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
        return read.choice(hardware.names())(text)
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
