"""What the mistakes of `plants` do: each changes a function of the connector, or of vLLM, for as
long as this process lives. Needs vLLM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from vllm.v1.core import kv_cache_utils

from hicache.core.actions import Backup, Copy, Load
from hicache.storage import verified
from hicache.vllm import moving
from hicache.vllm.moving import Mover
from hicache.vllm.orders import Message, Orders


def plant(name: str) -> None:
    """Plant the mistake of this name."""
    _PLANTED[name]()


def _loads(change: Callable[[Mover, Copy], Copy]) -> None:
    """Change every copy of a load."""
    begin = Mover._begin

    def changed(self: Mover, transfers: Sequence[Load | Backup], message: Message) -> None:
        begin(
            self,
            [
                one._replace(copies=tuple(change(self, copy) for copy in one.copies))
                if isinstance(one, Load)
                else one
                for one in transfers
            ],
            message,
        )

    Mover._begin = changed  # type: ignore[method-assign]


def _page_of_another() -> None:
    def change(mover: Mover, copy: Copy) -> Copy:
        [slot] = [one for one in mover.lent.slots if one.name == copy.component]
        source = copy.source.copy()
        source[0] = (source[0] + 5) % mover.lent.buffers[slot.host].pages
        return copy._replace(source=source)

    _loads(change)


def _load_is_a_block_late() -> None:
    def change(mover: Mover, copy: Copy) -> Copy:
        return copy._replace(source=np.concatenate((copy.source[:1], copy.source[:-1])))

    _loads(change)


def _layer_is_not_loaded() -> None:
    slots_of = moving.slots_of

    def changed(*given: Any) -> list[Any]:
        found = []
        for slot in slots_of(*given):
            last = slot.tensors[-1]
            elsewhere = last._replace(blocks=last.blocks.clone())
            found.append(slot._replace(tensors=(*slot.tensors[:-1], elsewhere)))
        return found

    moving.slots_of = changed  # type: ignore[assignment]


def _digests_are_not_checked() -> None:
    class Equal:
        """Equal to everything."""

        def __eq__(self, other: object) -> bool:
            return True

        __hash__ = object.__hash__

    read, header_of = verified.Verified.read, verified.header_of

    def changed(self: verified.Verified, *given: Any) -> Any:
        verified.header_of = lambda *_: Equal()  # type: ignore[assignment]
        try:
            return read(self, *given)
        finally:
            verified.header_of = header_of

    verified.Verified.read = changed  # type: ignore[method-assign,assignment]


def _blocks_are_not_given_back() -> None:
    send = Orders.send

    def changed(self: Orders, action: Any, blocks: Any, request: str = "") -> None:
        send(self, action, blocks, request)
        if isinstance(action, Load):
            self._pool.touch(blocks[:1])

    Orders.send = changed  # type: ignore[method-assign]


def _vllm_hash_is_short() -> None:
    made = kv_cache_utils.hash_block_tokens

    def changed(function: Any, parent: Any, tokens: Any, extra: Any = None) -> Any:
        return made(function, parent, tokens[2:], extra)

    kv_cache_utils.hash_block_tokens = changed


_PLANTED = {
    "page-of-another": _page_of_another,
    "layer-is-not-loaded": _layer_is_not_loaded,
    "load-is-a-block-late": _load_is_a_block_late,
    "digests-are-not-checked": _digests_are_not_checked,
    "blocks-are-not-given-back": _blocks_are_not_given_back,
    "vllm-hash-is-short": _vllm_hash_is_short,
}
