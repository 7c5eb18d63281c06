"""Bugs planted in the formulas of the roofline: each is found by one of its judges."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sim.physics import attention, batches, exchanges, experts, products
from sim.physics.kernels import Kernel, PerToken, Work
from sim.times.roofline import Roofline

from .judged_roofline import JUDGES

Patch = pytest.MonkeyPatch


def _exchange(changed: Callable[[Any, int], Any]) -> Callable[[Patch], None]:
    of = exchanges.Exchange.of

    def plant(patch: Patch) -> None:
        patch.setattr(exchanges.Exchange, "of", lambda self, tokens: changed(of, (self, tokens)))

    return plant


def _sums_are_free(of: Any, given: Any) -> Work:
    work: Work = of(*given)
    return work if work.kind.startswith("all_") else work._replace(launches=0.0, moved_ns=0.0)


def _one_phase(of: Any, given: Any) -> Work:
    exchange, tokens = given
    return Work(*of(replace(exchange, phased=False), tokens))


def _per_token(**changed: Callable[[PerToken, int], float]) -> Callable[[Patch], None]:
    of = PerToken.of

    def plant(patch: Patch) -> None:
        def wrong(self: PerToken, tokens: int) -> Work:
            return of(self, tokens)._replace(
                **{name: change(self, tokens) for name, change in changed.items()}
            )

        patch.setattr(PerToken, "of", wrong)

    return plant


def _no_windows(patch: Patch) -> None:
    patch.setattr(attention, "twice_pairs", lambda a, b, window: batches.twice_pairs(a, b, 0))


def _no_mask(patch: Patch) -> None:
    patch.setattr(attention, "twice_pairs", lambda start, end, window: 2 * (end - start) * end)


def _prefix_is_not_read(patch: Patch) -> None:
    of = attention.Group.of_prefill

    def wrong(self: attention.Group, chunks: Any, parts: int = 1) -> Work:
        rows = sum(start for start, _ in chunks) * self.row_ns
        work = of(self, chunks, parts)
        return work._replace(moved_ns=max(0.0, work.moved_ns - rows))

    patch.setattr(attention.Group, "of_prefill", wrong)


def _every_group_has_all(patch: Patch) -> None:
    patch.setattr(attention, "share", lambda total, largest, parts: total)


def _independent_experts(patch: Patch) -> None:
    """As if no two tokens chose the same expert."""

    def touched(self: experts.Experts, tokens: int, choice: float = 1.0) -> float:
        return min(float(self.count), float(tokens * self.chosen))

    patch.setattr(experts.Experts, "touched", touched)


def _experts_are_not_spread(patch: Patch) -> None:
    made = experts.experts

    def wrong(model: Any, matrices: Any, profile: Any, ranks: int, *rest: Any) -> Any:
        return made(model, matrices, profile, 1, *rest)

    patch.setattr("sim.times.roofline.experts", wrong)


def _all_in_bf16(patch: Patch) -> None:
    for module in (products, experts):
        patch.setattr(module, "peak", lambda profile, dtype: profile.flops_per_s)


def _scales_are_free(patch: Patch) -> None:
    patch.setitem(products.WEIGHT_BYTES, "mxfp4", 0.5)


def _row_split_as_columns(patch: Patch) -> None:
    shape = products.shape

    def wrong(matrix: Any, ranks: int) -> tuple[float, float]:
        split = {"inputs": "outputs", "outputs": "inputs"}.get(matrix.split, "whole")
        return shape(replace(matrix, split=split), ranks)

    patch.setattr(products, "shape", wrong)


def _whole_is_split(patch: Patch) -> None:
    shape = products.shape

    def wrong(matrix: Any, ranks: int) -> tuple[float, float]:
        return shape(replace(matrix, split="outputs"), ranks)

    patch.setattr(products, "shape", wrong)


def _kernel(time: Callable[[Kernel, float, float, float], float]) -> Callable[[Patch], None]:
    return lambda patch: patch.setattr(Kernel, "ns", time)


def _method(name: str, changed: Callable[..., Any]) -> Callable[[Patch], None]:
    """A method of the roofline that is called with the true one and its arguments."""
    true = getattr(Roofline, name)
    return lambda patch: patch.setattr(Roofline, name, lambda *given: changed(true, *given))


def _without(*kinds: str) -> Callable[..., list[Work]]:
    def wrong(true: Any, *given: Any) -> list[Work]:
        return [work for work in true(*given) if work.kind not in kinds]

    return wrong


def _head_of_every_token(true: Any, self: Roofline, sampled: int, tokens: int) -> list[Work]:
    found: list[Work] = true(self, max(sampled, tokens), tokens)
    return found


def _kept_by_one_count(patch: Patch) -> None:
    """The tokens of a group alone choose the durations that are kept."""

    class OneCount(dict[Any, Any]):
        def get(self, key: Any, default: Any = None) -> Any:
            return super().get(key[0], default)

        def __setitem__(self, key: Any, value: Any) -> None:
            super().__setitem__(key[0], value)

    made = Roofline.__init__

    def wrong(self: Roofline, *given: Any) -> None:
        made(self, *given)
        self._ended = OneCount()

    patch.setattr(Roofline, "__init__", wrong)


def _prompt_expands_new_rows_only(patch: Patch) -> None:
    true = Roofline._of_context

    def wrong(self: Roofline, chunks: Any, decoding: int, context: int) -> list[Work]:
        kept, self._expanding = self._expanding, []
        works = true(self, chunks, decoding, context)
        self._expanding = kept
        new = self._tokens(chunks, decoding)[0]
        return works + [each.of(new) for each in kept]

    patch.setattr(Roofline, "_of_context", wrong)


def _states_are_only_read(patch: Patch) -> None:
    of = attention.States.of
    patch.setattr(
        attention.States,
        "of",
        lambda self, tokens, rows: of(
            replace(self, sequence_ns=self.sequence_ns / 2), tokens, rows
        ),
    )


def _always_in_a_graph(patch: Patch) -> None:
    made = Roofline.__init__

    def wrong(self: Roofline, *given: Any) -> None:
        made(self, *given)
        self._launch_ns = 0

    patch.setattr(Roofline, "__init__", wrong)


BUGS: dict[str, Callable[[Patch], None]] = {
    "sums over ranks are free": _exchange(_sums_are_free),
    "large sums have one phase": _exchange(_one_phase),
    "weights are read for each token": _per_token(
        moved_ns=lambda one, tokens: (one.weights_ns + one.moved_ns) * tokens
    ),
    "weights are not read": _per_token(moved_ns=lambda one, tokens: one.moved_ns * tokens),
    "inputs and outputs are not moved": _per_token(moved_ns=lambda one, _: one.weights_ns),
    "a kernel starts once in all layers": _per_token(launches=lambda one, _: 1.0),
    "windows do not limit prefill": _no_windows,
    "prefill attends to later tokens": _no_mask,
    "cached prefixes are not read": _prefix_is_not_read,
    "each attention group has all chunks": _every_group_has_all,
    "no two tokens choose the same expert": _independent_experts,
    "every rank has all experts": _experts_are_not_spread,
    "quantized weights are multiplied in bf16": _all_in_bf16,
    "scales take no bytes": _scales_are_free,
    "row parallel products are split by columns": _row_split_as_columns,
    "what each rank computes whole is split": _whole_is_split,
    "bytes and operations are added": _kernel(
        lambda one, launches, compute, moved: (
            launches * one.fixed_us * 1000 + compute / one.compute + moved / one.memory
        )
    ),
    "the longer of bytes and operations alone counts": _kernel(
        lambda one, launches, compute, moved: (
            launches * one.fixed_us * 1000 + max(compute / one.compute, moved / one.memory)
        )
    ),
    "the head is computed for every token": _method("_of_ends", _head_of_every_token),
    "sampling is free": _method("_of_ends", _without("sampling")),
    "logits are not gathered": _method(
        "_of_ends", _without("all_gather.2", "all_gather.4", "all_gather.8")
    ),
    "small kernels are free": _method("_of_tokens", _without("elements")),
    "experts are not gathered for": _method("_of_tokens", _without("all_to_all.8")),
    "the indexer is free": _method("_of_context", _without("indexer")),
    "latents are not read in decode": _method("_of_context", _without("decode.latent")),
    "kept times ignore what else they depend on": _kept_by_one_count,
    "prompts expand new latents only": _prompt_expands_new_rows_only,
    "states are read and not written": _states_are_only_read,
    "every pass runs as a graph": _always_in_a_graph,
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_judge_finds(bug: str, monkeypatch: pytest.MonkeyPatch) -> None:
    BUGS[bug](monkeypatch)
    with pytest.raises(AssertionError):
        _judge()


def _judge() -> None:
    for judge in JUDGES:
        judge()
