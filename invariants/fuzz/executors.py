"""Executors of a tape: how the core's actions are carried out, as named in the tape's head.

    replies                                  nothing is carried out; replies come when they are due
    device:LAYERS:PAGE_NS:LATENCY_NS:DEPTH   the transfer controller on a simulated device
    cpu:..., cuda:...                        the same, and a real device carries out every call, too
    model:FAMILY:DTYPE:ATTENTION             real passes of a model; see invariants/prove

A load is divided into LAYERS groups. The link takes PAGE_NS per page of a group, and LATENCY_NS
before each copy. At most DEPTH batches of backups are in flight. With a fifth number, 1, the passes
that wait when the host polls are one batch; otherwise each is a pass of its own. Does not implement
the executors (see hand, device/hand, device/real and invariants/prove/hand).
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from hicache.core.errors import CallerError
from hicache.files import show

from .draws import Draws

REPLIES, DEVICE, MODEL = "replies", "device", "model"
REAL = ("cpu", "cuda")  # devices with real bytes
MOST_LAYERS = 8
_MODEL_HAND = "invariants.prove.model"  # which needs a library


class DeviceSettings(NamedTuple):
    """Settings of a device; see the module."""

    layers: int
    page_ns: int
    latency_ns: int
    depth: int
    batched: int = 0


class ModelSettings(NamedTuple):
    """The model of a tape: its family, the type of its elements, and its kind of attention."""

    family: str
    dtype: str = "fp32"
    attention: str = "eager"

    @property
    def executor(self) -> str:
        return ":".join((MODEL, *self))


PLAIN = DeviceSettings(1, 1, 0, 8)
USUAL = DeviceSettings(2, 1, 0, 8)  # of a tape that had no device


def settings_of(executor: str) -> DeviceSettings | None:
    """Returns the settings of a device; None for "replies" and a model. Raises CallerError."""
    if executor == REPLIES or model_of(executor) is not None:
        return None
    name, *rest = executor.split(":")
    plain = all(one.isascii() and one.isdigit() and len(one) < 10 for one in rest)
    if name in (DEVICE, *REAL) and plain and len(rest) in (0, 4, 5):
        found = DeviceSettings(*map(int, rest)) if rest else PLAIN
        if (
            1 <= found.layers <= MOST_LAYERS
            and found.page_ns
            and found.depth
            and found.batched <= 1
        ):
            return found
    raise CallerError(
        f"executor: expected {REPLIES}, or {DEVICE}, {', '.join(REAL)} with "
        "LAYERS:PAGE_NS:LATENCY_NS:DEPTH after a "
        f"colon (1 to {MOST_LAYERS} layers, a page time and a depth of at least 1), or "
        f"{MODEL}:FAMILY:DTYPE:ATTENTION, found {show(executor)}"
    )


def model_of(executor: str) -> ModelSettings | None:
    """Returns the model that carries out the passes, or None."""
    name, *rest = executor.split(":")
    return ModelSettings(*rest) if name == MODEL and len(rest) == 3 and all(rest) else None


def device_of(executor: str) -> str:
    """Returns the name of the device with real bytes; empty if there is none."""
    name = executor.partition(":")[0]
    return name if name in REAL else ""


def spelled(settings: DeviceSettings, name: str = DEVICE) -> str:
    """Returns the executor with these settings, the inverse of `settings_of`."""
    numbers = settings if settings.batched else settings[:-1]
    return ":".join((name or DEVICE, *map(str, numbers)))


def on_device(executor: str, name: str) -> str:
    """Returns the executor with the same settings on the device of this name."""
    return spelled(settings_of(executor) or USUAL, name)


def draw_device(draws: Draws) -> str:
    """Draws a device: slow or fast, with a deep or a shallow queue."""
    layers, depth = draws.one((1, 2, 2, 3)), draws.one((1, 2, 8))
    return spelled(DeviceSettings(layers, draws.one((1, 1, 4, 20)), draws.one((0, 2, 20)), depth))


def models() -> Any:
    """What plays tapes with a model (see invariants/prove/model). Raises CallerError if a
    library that it needs is not installed."""
    try:
        return import_module(_MODEL_HAND)
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        if missing in ("hicache", "invariants"):
            raise
        raise CallerError(
            f"executor {MODEL}: expected {missing} to be installed, and it is not; install it (in "
            "a clone: .venv/bin/pip install -e '.[transformers]')"
        ) from None
