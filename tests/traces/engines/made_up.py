"""An engine that is made up: a cache without a limit, in place of the process of vLLM."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self

SIZE = 32


class MadeUp:
    """It hits whole blocks that an earlier prompt had. off: what it adds for the last request."""

    off = 0

    def __init__(self, python: str, family: str, **given: Any) -> None:
        self.blocks = given["engine"]["num_gpu_blocks_override"]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        return None

    def open(self) -> dict[str, Any]:
        group = {"kind": "FullAttentionSpec", "block": SIZE, "window": 0, "layers": 2}
        facts = {
            "release": "0.32.0",
            "blocks": self.blocks,
            "page": SIZE,
            "retention": 0,
            "groups": [group],
        }
        limits = {"max_num_batched_tokens": 4096, "max_num_seqs": 256, "async_scheduling": True}
        return facts | limits | {"start_s": 1.0}

    def generate(
        self,
        requests: list[dict[str, Any]],
        logprobs: int | None,
        seconds: float,
        at_once: int,
        *,
        on: Callable[[dict[str, Any]], None],
    ) -> dict[str, Any]:
        on({"ended": 1})
        seen = set[tuple[int, ...]]()
        answers = []
        for asked in requests:
            tokens = asked["tokens"]
            chains = [tuple(tokens[:end]) for end in range(SIZE, len(tokens), SIZE)]
            cached = SIZE * sum(chain in seen for chain in chains)
            seen.update(chains)
            answers.append({"cached": cached, "tokens": [1] * asked["max_tokens"]})
        answers[-1]["cached"] += self.off
        return {"answers": answers, "steps": len(requests), "wall_s": 1.0}

    def ask(self, asked: dict[str, Any], seconds: float) -> dict[str, Any]:
        return {}
