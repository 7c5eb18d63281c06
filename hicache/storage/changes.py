"""Notices that what an engine computes with has changed since it was started: calls that write
weights, and samples of the model for those that nobody calls by a known name."""

import sys
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from functools import wraps
from operator import is_
from types import FrameType
from typing import Any

import torch

_SAMPLES = 16  # numbers of a tensor
_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def after(target: Any, name: str, call: Callable[..., None]) -> None:
    """Call `call` with the arguments of each call of the target's function, after it. Nothing if
    the target, an object or a class, has none of this name."""
    value = getattr(target, name, None)
    if value is None:
        return

    @wraps(value)
    def followed(*args: Any, **named: Any) -> Any:
        try:
            return value(*args, **named)
        finally:
            call(*args, **named)

    setattr(target, name, followed)


def caller(fits: Callable[[Any], bool], method: str = "") -> Any:
    """The nearest object one of whose methods is running, and that fits; None if there is none.
    method: its name; any by default."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        result = frame.f_locals.get("self")
        if result is not None and fits(result) and method in ("", frame.f_code.co_name):
            return result
        frame = frame.f_back
    return None


class Samples:
    """The modules and hooks of models, and numbers out of all that is in their `state_dict`,
    parameters and buffers, as they were when it was made."""

    def __init__(self, models: Iterable[Any]) -> None:
        self._models = list(models)
        self._stream: Any = None
        self.take()

    def take(self) -> None:
        """Those that they have now are the right ones."""
        self._parts = self._made_of()
        self._places = [
            (kept, name)
            for model in self._models
            for module in model.modules()
            for kept in (module._parameters, module._buffers)
            for name, item in kept.items()
            if item is not None and name not in module._non_persistent_buffers_set
        ]
        self._views: dict[tuple[torch.device, torch.dtype], list[torch.Tensor]] = {}
        for holding, name in self._places:
            view = _spread(holding[name])
            if view is not None:
                self._views.setdefault((view.device, view.dtype), []).append(view)
        self._seen = self._now()

    def same(self) -> bool:
        """Whether all of it is what it was. Takes what it is now."""
        result, parts = self._now(), self._made_of()
        alike = (
            len(parts) == len(self._parts)
            and all(map(is_, parts, self._parts))
            and result[0] == self._seen[0]
            and all(torch.equal(*both) for both in zip(result[1], self._seen[1], strict=True))
        )
        if not alike:
            self.take()
        return alike

    def _made_of(self) -> list[Any]:
        """Modules, each with its hooks."""
        return [
            part
            for model in self._models
            for module in model.modules()
            for hooks in (module._forward_pre_hooks, module._forward_hooks)
            for part in (module, *hooks.values())
        ]

    def _now(self) -> tuple[list[int], list[torch.Tensor]]:
        """Where they are, and samples. Beside the passes of an accelerator, not behind them."""
        at = [
            -1 if (item := kept.get(name)) is None else item.data_ptr()
            for kept, name in self._places
        ]
        if self._stream is None and any(item.type == "cuda" for item, _ in self._views):
            self._stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        beside = nullcontext() if self._stream is None else torch.cuda.stream(self._stream)
        with beside, torch.no_grad():
            return at, [torch.cat(views).cpu() for views in self._views.values()]


def _spread(parameter: torch.Tensor) -> torch.Tensor | None:
    """int[at most _SAMPLES] of a parameter's memory; None without any."""
    size = parameter.element_size()
    count = parameter.untyped_storage().nbytes() // size
    if parameter.is_meta or not count or size not in _INTEGERS or parameter.is_complex():
        return None
    taken = min(count, _SAMPLES)
    numbers = parameter.detach().view(_INTEGERS[size])
    return numbers.as_strided((taken,), (count // taken,), 0)
