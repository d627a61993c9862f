"""Two worker processes that could not hold one operand, and one that is killed halfway."""

import os
import signal
import time

import dask.array as da
import numpy as np
import pytest

import nbtc
from nbtc.testing import assert_bits_equal

distributed = pytest.importorskip("distributed")
pytestmark = pytest.mark.filterwarnings("ignore")  # of a cluster's processes, about what happens here on purpose

LIMIT = 600 << 20  # bytes a worker: Numba and dask alone take some 300 MiB
SHAPE, CHUNKS = (8192, 40_960), (1024, 4096)  # 640 MiB of float16


@pytest.fixture(scope="module")
def client():
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, memory_limit=LIMIT, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


def operand():
    """An array whose chunks are made where they are needed."""

    def chunk(block_info=None):
        where = block_info[None]["chunk-location"]
        return np.random.default_rng(where).standard_normal(CHUNKS, np.float32).astype(np.float16)

    rows, columns = (n // size for n, size in zip(SHAPE, CHUNKS, strict=True))
    sizes = ((CHUNKS[0],) * rows, (CHUNKS[1],) * columns)
    return da.map_blocks(chunk, chunks=sizes, dtype=np.float16, meta=np.empty((0, 0), np.float16))


def test_an_operand_larger_than_a_worker_and_a_worker_killed_halfway(client):
    a = operand()
    b = np.random.default_rng(9).standard_normal((SHAPE[1], 16), np.float32).astype(np.float16)
    assert a.nbytes > LIMIT
    product = nbtc.dask.matmul(a, b)
    assert nbtc.dask.plan(a, b).task_bytes < LIMIT
    future = client.compute(product)
    victim = client.run(os.getpid)
    started = time.monotonic()
    while time.monotonic() - started < 120 and not future.done():  # until some chains are under way
        if sum(client.run(lambda dask_worker: len(dask_worker.data)).values()) > 10:
            break
        time.sleep(0.05)
    halfway = not future.done()
    os.kill(next(iter(victim.values())), signal.SIGKILL)
    result = future.result(timeout=300)
    assert halfway
    for i in range(0, SHAPE[0], 4 * CHUNKS[0]):
        rows = np.hstack([a.blocks[i // CHUNKS[0], j].compute(scheduler="synchronous") for j in range(a.numblocks[1])])
        assert_bits_equal(result[i : i + CHUNKS[0]], nbtc.matmul(rows, b))
