"""What is fitted: factors on the defaults, each for the labels that a run must have.

A run has five labels: the generation of its accelerator (hopper), the accelerator (h200), the
engine (vllm), the engine with its version (vllm@0.10.2) and the model (llama-3.1-70b). A factor
counts where all of its labels are among those of the run, and the factors of a constant multiply.
So what runs share is fitted once, and a version, an accelerator, a model, a model on an
accelerator, an engine's code for a model, or a pair that somebody published (an engine with an
accelerator and a model) only says how it differs. How far a factor may go is its
`spread`: the standard deviation of its logarithm that is expected before any row is seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase


@dataclass(frozen=True, slots=True)
class Labels:
    """Of one run. version: with the engine's name before it."""

    family: str
    hardware: str
    engine: str
    version: str
    model: str

    @property
    def all(self) -> frozenset[str]:
        return frozenset((self.family, self.hardware, self.engine, self.version, self.model))

    def at(self, levels: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(getattr(self, level) for level in levels)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One factor. constant: its name, or a pattern for several that share the factor."""

    constant: str
    where: tuple[str, ...]
    spread: float

    def applies(self, constant: str, labels: frozenset[str]) -> bool:
        return labels.issuperset(self.where) and fnmatchcase(constant, self.constant)


@dataclass(frozen=True, slots=True)
class _Rule:
    """constant: a pattern. each: a factor for every name that matches, not one for all of them."""

    constant: str
    levels: tuple[str, ...]
    spread: float
    each: bool = False


_OF_MODELS = (("model",), ("hardware", "model"), ("engine", "model"))
_PAIR = ("engine", "hardware", "model")
_RULES = (
    _Rule("product.*.power", (), 0.3),
    _Rule("product.*.compute", ("family",), 0.2, each=True),
    _Rule("product.*.compute", ("engine",), 0.1),
    _Rule("product.*.memory", ("hardware",), 0.1),
    _Rule("product.*.fixed_us", ("family",), 0.3, each=True),
    _Rule("elements.fixed_us", ("family", "engine"), 0.25),
    _Rule("elements.memory", ("family",), 0.3),
    _Rule("[cf]us*.fixed_us", ("family",), 0.25),  # sums of ranks: custom and fused
    _Rule("[cf]us*.memory", ("family", "engine"), 0.25),
    _Rule("all_*.fixed_us", ("family",), 0.25),
    _Rule("prefill.*.compute", ("family",), 0.25),
    _Rule("prefill.*.fixed_us", ("engine",), 0.3),
    _Rule("decode.*.memory", ("family",), 0.2, each=True),
    _Rule("decode.*.fixed_us", ("engine",), 0.3),
    _Rule("experts.*.fixed_us", ("family", "engine"), 0.2, each=True),
    _Rule("experts.*.memory", ("family",), 0.15, each=True),
    _Rule("experts.*.compute", ("family",), 0.2, each=True),
    _Rule("sampling.memory", ("engine",), 0.4),
    _Rule("engine.step_host_ns", ("engine",), 0.5),
    _Rule("engine.step_host_ns", ("version",), 0.5),
    _Rule("engine.step_gap_ns", ("engine",), 1.0),
    _Rule("engine.step_gap_ns", ("version",), 0.8),
    _Rule("engine.per_sequence_host_ns", ("engine",), 0.6),
    _Rule("engine.prefill_host_ns", ("engine",), 0.6),
    _Rule("engine.launch_ns", ("engine",), 0.3),
    _Rule("engine.request_host_ns", ("engine",), 1.0),
    _Rule("engine.request_host_ns", ("version",), 0.5),
    _Rule("engine.request_host_ns", ("version", "hardware"), 1.0),
    # of a model, of it on one accelerator, and of an engine's code for it
    *(_Rule("*.fixed_us", levels, 0.2) for levels in _OF_MODELS),
    *(_Rule("product.*.compute", levels, 0.1) for levels in _OF_MODELS),
    *(_Rule("product.*.memory", levels, 0.1) for levels in _OF_MODELS),
    *(_Rule("prefill.*.compute", levels, 0.3) for levels in _OF_MODELS),
    *(_Rule("experts.*.compute", levels, 0.3) for levels in _OF_MODELS),
    *(_Rule("experts.*.memory", levels, 0.2) for levels in _OF_MODELS),
    _Rule("decode.*.memory", ("model",), 0.1),
    _Rule("engine.step_host_ns", ("engine", "model"), 0.3),
    _Rule("engine.step_gap_ns", ("engine", "model"), 0.4),
    _Rule("engine.request_host_ns", ("engine", "model"), 0.7),
    # of a pair that somebody published
    _Rule("*.fixed_us", _PAIR, 0.3),
    _Rule("product.*.compute", _PAIR, 0.2),
    _Rule("product.*.memory", _PAIR, 0.2),
    _Rule("decode.*.memory", _PAIR, 0.2),
    _Rule("prefill.*.compute", _PAIR, 0.4),
    _Rule("experts.*.memory", _PAIR, 0.2),
    _Rule("experts.*.compute", _PAIR, 0.4),
    _Rule("engine.step_host_ns", _PAIR, 0.4),
    _Rule("engine.step_gap_ns", _PAIR, 0.6),
    _Rule("engine.request_host_ns", _PAIR, 1.0),
)


def parameters(seen: Iterable[tuple[Labels, str]]) -> list[Parameter]:
    """The factors on what rows have. seen: labels and name of every constant that counts in one."""
    found: dict[tuple[str, tuple[str, ...]], Parameter] = {}
    for labels, constant in sorted(set(seen), key=repr):
        for parameter in _of(labels, constant):
            found.setdefault((parameter.constant, parameter.where), parameter)
    return sorted(found.values(), key=lambda one: (one.constant, one.where))


def _of(labels: Labels, constant: str) -> Iterator[Parameter]:
    for rule in _RULES:
        if fnmatchcase(constant, rule.constant):
            name = constant if rule.each else rule.constant
            yield Parameter(name, labels.at(rule.levels), rule.spread)
