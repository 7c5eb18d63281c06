"""`kernel`: one gather and scatter kernel per layer group, between device and mapped host memory.

The kernel itself reads and writes pinned memory across the bus. The number of its programs is
fixed, so a concurrent forward pass keeps the other multiprocessors. `hicache/memory/runs`
finds the pieces.

An item of work is `BLOCK` words of one page in one layer, counted over all its pieces in order:

    word in page  ->  (piece, column)  ->  piece's place along up to three dimensions  ->  address
"""

import torch
import triton
import triton.language as tl

from hicache.core.errors import CallerError, CoreBug
from hicache.memory.runs import Side, access_bytes

from ._traffic import Move, Route

DIMENSIONS = 3
BLOCK = 2048
WARPS = 8
# More programs that write to host memory are no faster on an H100 (51 GB/s with 4, 8 and 16) and
# slow a load down that runs beside them: both directions move 1.15 times as much as one with 16
# programs each, 1.39 times with 4 writers.
WRITERS = 4
_WORDS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.uint8}
_ITEMS = 2**31


@triton.jit(do_not_specialize=["first", "pages", "items"])  # type: ignore[untyped-decorator]
def move(  # type: ignore[no-untyped-def]
    source,
    target,
    numbers,
    first,
    pages,
    items,
    source_layer,
    source_page,
    source_0,
    source_1,
    source_2,
    target_layer,
    target_page,
    target_0,
    target_1,
    target_2,
    size_1: tl.constexpr,
    size_2: tl.constexpr,
    piece: tl.constexpr,
    page: tl.constexpr,
    unit: tl.constexpr,
    block: tl.constexpr,
):
    """Copy pages. Steps count accesses of `unit` words; `piece` and `page` count words.

    numbers: the source pages, then the target pages. All products have 64 bits, because a pool may
    be larger than 2^31 words.
    """
    chunks: tl.constexpr = (page + block - 1) // block
    for item in range(tl.program_id(0), items, tl.num_programs(0)):
        slot = (item // chunks) % pages
        layer = (first + item // chunks // pages).to(tl.int64)
        here = tl.load(numbers + slot)
        there = tl.load(numbers + pages + slot)
        word = (item % chunks) * block + tl.arange(0, block)
        column = word % piece
        number = word // piece
        at_0 = (number // (size_1 * size_2)).to(tl.int64)
        at_1 = (number // size_2 % size_1).to(tl.int64)
        at_2 = (number % size_2).to(tl.int64)
        start = layer * source_layer + here * source_page
        goal = layer * target_layer + there * target_page
        start += at_0 * source_0 + at_1 * source_1 + at_2 * source_2
        goal += at_0 * target_0 + at_1 * target_1 + at_2 * target_2
        inside = word < page
        moved = tl.load(source + start * unit + column, mask=inside)
        tl.store(target + goal * unit + column, moved, mask=inside)


class Kernel:
    """See `_traffic.Mover`."""

    needs_numbers = True

    def __init__(self, blocks: int) -> None:
        """blocks: programs of a kernel, which limits how many multiprocessors it uses."""
        self._blocks = blocks

    def copy(self, job: Move) -> None:
        route, numbers, layers = job.route, job.numbers, job.layers
        assert numbers is not None, "a copy backend that needs numbers was given none"
        if not numbers.shape[1] or not layers or not route.pair.page_bytes:
            return
        arguments, constants = plan(route, numbers.shape[1], layers)
        most = self._blocks if route.target.flat.is_cuda else min(self._blocks, WRITERS)
        programs = min(most, arguments[2])
        word = _WORDS[constants.pop("word_bytes")]
        move[(programs,)](
            route.source.flat.view(word),
            route.target.flat.view(word),
            numbers,
            *arguments,
            **constants,
            block=BLOCK,
            num_warps=WARPS,
        )


def plan(route: Route, pages: int, layers: range) -> tuple[list[int], dict[str, int]]:
    """The kernel's arguments (first layer, pages, items, steps...) and its compile-time constants.

    Raises CallerError for a copy that is too large, CoreBug for too many dimensions."""
    pair = route.pair
    if len(pair.sizes) > DIMENSIONS:
        raise CoreBug(f"kernel: expected at most {DIMENSIONS} dimensions, found {pair.sizes}")
    access = access_bytes(pair, (route.source.flat.data_ptr(), route.target.flat.data_ptr()))
    word_bytes = min(access, 8)
    page_words = pair.page_bytes // word_bytes
    items = len(layers) * pages * -(-page_words // BLOCK)
    if items >= _ITEMS or page_words >= _ITEMS:
        raise CallerError(f"copy: expected under {_ITEMS} pieces of work, found {items}; copy less")
    sizes = (1,) * (DIMENSIONS - len(pair.sizes)) + pair.sizes
    arguments = [layers.start, pages, items]
    arguments += [*_steps(pair.source, access), *_steps(pair.target, access)]
    return arguments, {
        "size_1": sizes[1],
        "size_2": sizes[2],
        "piece": pair.length // word_bytes,
        "page": page_words,
        "unit": access // word_bytes,
        "word_bytes": word_bytes,
    }


def _steps(side: Side, access: int) -> list[int]:
    padded = (0,) * (DIMENSIONS - len(side.steps)) + side.steps
    return [step // access for step in (side.layer, side.page, *padded)]
