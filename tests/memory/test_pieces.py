"""The shape of copies, against the views of real buffers."""

import hicache.models as models
from hicache.memory.pools import CopyShape, copy_shapes, unmeasured_shapes


def test_equal_shapes_are_measured_whatever_the_pool_is_called() -> None:
    model = models.get("llama-3.1-8b")
    (kv,) = copy_shapes(model, "full", 64, "page_first_direct")
    assert kv == CopyShape("kv", 32, 2, 131_072)
    assert str(kv) == "kv with 32 layers of 2 x 131,072 bytes a page"
    measured = kv._replace(pool="draft")._asdict()
    for known, missing in (([measured], ()), ([{**measured, "layers": 4}], (kv,)), ([], (kv,))):
        assert unmeasured_shapes(model, 64, "page_first_direct", known) == missing
    (half,) = copy_shapes(model, "full", 64, "page_first_direct", tp=2)
    assert half.piece_bytes == kv.piece_bytes // 2
