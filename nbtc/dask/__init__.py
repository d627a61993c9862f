"""Matrix products of dask arrays with the bits of a GPU's tensor cores (extra `nbtc[dask]`).

Blocks of the result are computed independently; along K one chain passes from chunk to chunk in order, so the bits are
those of one `nbtc.matmul` call, on threads, processes or `dask.distributed`, however often a task is repeated.
"""

from __future__ import annotations

from typing import Any

from nbtc.interop.extras import need

need("dask", "dask")

from nbtc.dask.products import DaskPlan, describe, graph, prepare  # noqa: E402

__all__ = ["DaskPlan", "matmul", "plan"]


def matmul(
    a: Any,
    b: Any,
    c: Any = None,
    *,
    arch: object = "sm_90",
    acc: object = None,
    instruction: object = None,
    a_format: object = None,
    b_format: object = None,
    saturate: bool = False,
    op: str | None = None,
    k_split: int | None = None,
    order: object = None,
    scale_a: Any = None,
    scale_b: Any = None,
    threads: int | None = 1,
) -> Any:
    """D = A @ B + C of dask arrays, as `nbtc.matmul` defines it, bit for bit; nothing is computed yet.

    a (..., M, K), b (..., K, N), c (..., M, N) or None: dask arrays, or what `dask.array.asarray` takes; scales are
    NumPy arrays or numbers.  The result has a's chunks of M and b's chunks of N.  Chunks of K must be multiples of the
    instruction's K (of the parts of `k_split` or `order`); others are rechunked, with a RechunkWarning.  threads: how
    many one task uses; dask runs several.  Other arguments and errors are those of `nbtc.matmul`; errors are raised
    here, before any work.

    >>> import dask.array as da, numpy as np, nbtc
    >>> x = da.ones((64, 96), chunks=(32, 48), dtype=np.float16)
    >>> d = nbtc.dask.matmul(x, x.T)
    >>> d.chunks, d[0, 0].compute()
    (((32, 32), (32, 32)), np.float32(96.0))
    """
    options = {
        "arch": arch, "acc": acc, "instruction": instruction, "a_format": a_format, "b_format": b_format,
        "saturate": saturate, "op": op, "k_split": k_split, "order": order, "threads": threads,
    }  # fmt: skip
    return graph(prepare(a, b, c, scale_a, scale_b, options))


def plan(a: Any, b: Any, c: Any = None, **options: Any) -> DaskPlan:
    """What `matmul` would do with the same arguments: tasks, chunks, and the memory that one task needs at most.

    >>> import dask.array as da, numpy as np, nbtc
    >>> x = da.zeros((4096, 4096), chunks=1024, dtype=np.int8)
    >>> p = nbtc.dask.plan(x, x)
    >>> p.tasks, p.steps_of_k, p.task_bytes < 100 << 20
    (64, 4, True)
    """
    scales = options.pop("scale_a", None), options.pop("scale_b", None)
    return describe(prepare(a, b, c, *scales, {"threads": 1} | options))
