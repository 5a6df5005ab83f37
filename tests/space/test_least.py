import numpy as np
import pytest
import warp as wp

from warpdrive.sim.store import start_warp
from warpdrive.space.least import keep_least


@pytest.mark.parametrize("count", [1, 2, 3, 5, 11, 16, 17])
@pytest.mark.parametrize("at_once", [2, 4, 8])
def test_the_least_of_both_are_kept_in_order(count, at_once):
    start_warp()
    Keys, Batch = wp.types.vector(count, wp.uint32), wp.types.vector(at_once, wp.uint32)
    kept = keep_least(Keys, Batch)

    @wp.kernel(module="unique")
    def keep(batches: wp.array2d[wp.uint32], result: wp.array2d[wp.uint32]):
        row = wp.tid()
        keys = Keys(wp.uint32(0xFFFFFFFF))
        for start in range(0, batches.shape[1], at_once):
            batch = Batch()
            for b in range(at_once):
                batch[b] = batches[row, start + b]
            keys = kept(keys, batch)
        for j in range(count):
            result[row, j] = keys[j]

    numbers = np.random.default_rng(count).integers(0, 60, (300, 6 * at_once), dtype=np.uint32)  # many alike
    numbers[:100].sort(axis=1)
    numbers[100:200] = -np.sort(-numbers[100:200].astype(np.int64), axis=1)
    result = wp.zeros((len(numbers), count), dtype=wp.uint32, device="cpu")
    wp.launch(keep, len(numbers), [wp.array(numbers, dtype=wp.uint32, device="cpu")], [result], device="cpu")
    padded = np.concatenate([numbers, np.full((len(numbers), count), 0xFFFFFFFF, np.uint32)], axis=1)
    np.testing.assert_array_equal(result.numpy(), np.sort(padded, axis=1)[:, :count])
