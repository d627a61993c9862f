"""Products of dask arrays on worker processes, relative to one worker: what a cluster's second process gives."""

import importlib.util
import time

import numpy as np
from asv_runner.benchmarks.mark import SkipNotImplemented

SIZE, CHUNK = 8192, 2048  # M = N = K; of 4096 chunks of 1024, one more for one worker than for the other costs 5 %


class TwoWorkers:
    """One f16 product of 8192^3 whose chunks lie in the workers' memory already, one thread a worker."""

    timeout = 600

    def setup(self):
        for name in ("dask", "distributed"):
            if importlib.util.find_spec(name) is None:
                raise SkipNotImplemented(f"{name} is not installed")

    def track_seconds_relative_to_one_worker(self):
        return seconds(2) / seconds(1)

    track_seconds_relative_to_one_worker.unit = "of one worker's"


def seconds(workers: int) -> float:
    """One product's, of arrays that are there, after one of a step or two has compiled what it needs."""
    from dask import array
    from distributed import Client, LocalCluster, wait

    import nbtc.dask

    cluster = LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster) as client:
        for c in ([], [np.ones((64, 64), np.float32)]):  # what a product's first step compiles, and a further one
            client.run(nbtc.matmul, np.ones((64, 64), np.float16), np.ones((64, 64), np.float16), *c)
        draw = array.random.default_rng(0).standard_normal
        a, b = (draw((SIZE, SIZE), chunks=(CHUNK, CHUNK)).astype(np.float16).persist() for _ in range(2))
        wait([a, b])
        start = time.perf_counter()
        wait(nbtc.dask.matmul(a, b).persist())
        return time.perf_counter() - start
