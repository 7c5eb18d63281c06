"""The `kernel` backend on the CPU, its kernel run by Triton's interpreter. test_gpu starts it.

The interpreter is chosen for a whole process when Triton decorates the kernel, so these tests have
a process of their own: TRITON_INTERPRET=1 pytest tests/devices/interpreted.py
"""

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from triton.runtime.interpreter import InterpretedFunction

from hicache.devices import _kernel as kernel
from hicache.devices._traffic import Move, route
from hicache.memory.layouts import LAYOUTS, Sizes, axes
from hicache.memory.pools import Pool, PoolPlan

from .cases import grouped

_LAYOUT = st.sampled_from(sorted(LAYOUTS))


def test_the_interpreter_is_what_runs() -> None:
    assert isinstance(kernel.move, InterpretedFunction)


def _pool(layout: str, sizes: Sizes, seed: int, shift: int) -> Pool:
    """A pool of random bytes whose memory begins `shift` bytes after an aligned address."""
    plan = PoolPlan("test", grouped().pools[0], layout, sizes)
    made = torch.from_numpy(
        np.random.default_rng(seed).integers(0, 256, plan.total_bytes + shift + 16, dtype=np.uint8)
    )
    start = -made.data_ptr() % 16 + shift
    flat = made[start : start + plan.total_bytes]
    return Pool(plan, flat, flat.view(plan.shape).permute(axes(layout)), 0)


@settings(max_examples=10, deadline=None)
@given(
    st.builds(
        Sizes,
        layer=st.integers(1, 3),
        page=st.integers(1, 5),
        part=st.integers(1, 2),
        token=st.integers(1, 70),
        head=st.integers(1, 4),
        head_bytes=st.sampled_from([1, 2, 3, 4, 6, 8, 12, 16, 24, 48, 128]),
    ),
    _LAYOUT,
    _LAYOUT,
    st.sampled_from([0, 0, 1, 2, 4, 8]),
    st.integers(1, 20),
    st.data(),
)
def test_the_kernel_moves_the_pages_and_nothing_else(
    sizes: Sizes, near: str, far: str, shift: int, blocks: int, data: st.DataObject
) -> None:
    source, target = _pool(near, sizes, 1, 0), _pool(far, sizes, 2, shift)
    count = data.draw(st.integers(0, sizes.page))
    here, there = (
        np.array(data.draw(st.permutations(range(sizes.page)))[:count], dtype=np.int64)
        for _ in range(2)
    )
    first = data.draw(st.integers(0, sizes.layer))
    layers = range(first, data.draw(st.integers(first, sizes.layer)))
    expected = target.view.numpy().copy()
    for layer in layers:
        expected[layer, there] = source.view.numpy()[layer, here]
    numbers = torch.from_numpy(np.stack((here, there)))
    move = Move(route(source, target), (here, there), numbers, layers)
    kernel.Kernel(blocks).copy(move)
    assert np.array_equal(target.view.numpy(), expected)
