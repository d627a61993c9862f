"""Products of dask arrays: blocks over batch, M and N, and along K one chain that passes from chunk to chunk."""

from __future__ import annotations

import warnings
from functools import partial
from itertools import product as pairs
from math import lcm, prod
from typing import Any, NamedTuple

import dask.array as da
import numpy as np
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph
from numpy.typing import NDArray

from nbtc.errors import FormatError, RechunkWarning, ShapeError
from nbtc.formats.arrays import as_format
from nbtc.formats.table import Format
from nbtc.gemm.orders import Order
from nbtc.gemm.problem import Plan
from nbtc.gemm.run import add
from nbtc.gemm.run import matmul as one_matmul
from nbtc.gemm.run import plan as one_plan
from nbtc.gemm.scales import apply_scales, float_scales

Chunks = tuple[tuple[int, ...], ...]


class DaskPlan(NamedTuple):
    """What `nbtc.dask.matmul` would do.

    product: the plan of the product as a whole.  chunks: of the result.  steps_of_k: chunks of K that one chain passes
    through.  tasks: products of blocks.  task_bytes: memory of one task at most, its blocks of operands and result
    included; a worker needs that for each of its threads, besides what dask keeps for later.
    """

    product: Plan
    chunks: Chunks
    steps_of_k: int
    tasks: int
    task_bytes: int

    def __str__(self) -> str:
        sizes = "x".join(str(max(c, default=0)) for c in self.chunks)
        return (
            f"{self.product}\nin {self.tasks} tasks, each chain through {self.steps_of_k} chunks of K, result in "
            f"chunks of {sizes}: {self.task_bytes / 2**20:.1f} MiB a thread"
        )


class _Job(NamedTuple):
    """Operands whose chunks fit each other, and how blocks of them are multiplied."""

    a: Any
    b: Any
    c: Any
    options: dict[str, Any]
    scales: tuple[NDArray[np.float32] | None, NDArray[np.float32] | None]
    whole: Plan
    batch: Chunks


def _stand_in(x: Any) -> NDArray[Any]:
    """An array of the same shape and dtype that takes no memory."""
    return np.broadcast_to(np.zeros((), x.dtype), x.shape)


def prepare(a: Any, b: Any, c: Any, scale_a: Any, scale_b: Any, options: dict[str, Any]) -> _Job:
    """Check everything and make chunks of K meet at whole steps of the instruction."""
    a, b = (x if isinstance(x, da.Array) else da.asarray(x) for x in (a, b))
    c = c if c is None or isinstance(c, da.Array) else da.asarray(c)
    for x, name in ((a, "a"), (b, "b"), (c, "c")):
        if x is not None and any(n != n for n in x.shape):
            raise ShapeError(f"{name} has chunks of unknown sizes: call {name}.compute_chunk_sizes() first")
    whole = one_plan(_stand_in(a), _stand_in(b), None if c is None else _stand_in(c), **options)
    acc = as_format(whole.formats[2])
    scales = float_scales(scale_a, scale_b, whole.shape[:-1], acc)
    a, b = _meet(a, b, whole, _unit(a, b, options, whole))
    rank = len(whole.shape) - 3
    batch = _batch_chunks([x for x in (a, b, c) if x is not None], whole.shape[:rank])
    a, b, c = (None if x is None else _cut_batch(x, batch) for x in (a, b, c))
    if c is not None:
        c = c.rechunk({c.ndim - 2: a.chunks[-2], c.ndim - 1: b.chunks[-1]})
    return _Job(a, b, c, options, scales, whole, batch)


def _unit(a: Any, b: Any, options: dict[str, Any], whole: Plan) -> int:
    """Elements that one index of K stands for: more than one in packed words, which both operands must then be."""
    formats: list[Format] = [as_format(name) for name in whole.formats[:2]]
    packed = [f.packed and x.dtype == np.uint32 for f, x in zip(formats, (a, b), strict=True)]
    if packed[0] != packed[1]:
        raise FormatError(
            "one operand holds packed words and the other elements, so their chunks of K cannot meet: pack both, for "
            "example b.map_blocks(nbtc.pack, ...)"
        )
    return formats[0].per_word if packed[0] else 1


def _meet(a: Any, b: Any, whole: Plan, unit: int) -> tuple[Any, Any]:
    """a and b with the same chunks of K, each but the last of whole steps (or parts) of the order."""
    step = (whole.row.shape or (0, 0, 1))[2]
    order: Order = whole.order
    rows = a.chunks[-1]
    if _one_chunk(order):
        want = (a.shape[-1],)
    else:
        whole_steps = lcm(unit, order.part or step) // unit
        largest = max(max(rows, default=1) // whole_steps, 1) * whole_steps
        fits = all(n % whole_steps == 0 for n in rows[:-1])
        count, rest = divmod(a.shape[-1], largest)
        want = rows if fits else (largest,) * count + ((rest,) if rest else ())
    if want != rows:
        warnings.warn(
            f"chunks of K {_few(rows)} are rechunked to {_few(want)}: a chain passes from chunk to chunk at multiples "
            f"of {order.part or step} elements (order {order.name!r}); chunk a and b so to avoid the copies",
            RechunkWarning,
            stacklevel=4,
        )
    return a.rechunk({a.ndim - 1: want}), b.rechunk({b.ndim - 2: want})


def _few(chunks: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, chunks[:4]))
    return f"({shown}{', ...' if len(chunks) > 4 else ''})"


def _batch_chunks(arrays: list[Any], shape: tuple[int, ...]) -> Chunks:
    """Chunks of the batch axes: those of the first array that has the axis in full."""
    chunks = []
    for axis, n in enumerate(shape):
        at = axis - len(shape) - 2
        own = next((x.chunks[at] for x in arrays if x.ndim >= -at and x.shape[at] == n), (n,))
        chunks.append(own)
    return tuple(chunks)


def _cut_batch(x: Any, batch: Chunks) -> Any:
    """x with the batch chunks of the result, where it has the axis in full."""
    first = len(batch) - (x.ndim - 2)
    return x.rechunk({i: batch[first + i] for i in range(x.ndim - 2) if x.shape[i] == sum(batch[first + i])})


def _key(x: Any, index: tuple[int, ...], last: tuple[int, int]) -> tuple[Any, ...]:
    """The key of the block of an operand that broadcasts to a block of the result."""
    own = index[len(index) - (x.ndim - 2) :] if x.ndim > 2 else ()
    return (x.name, *(i if n > 1 else 0 for i, n in zip(own, x.numblocks, strict=False)), *last)


def _step(options: dict[str, Any], a: Any, b: Any, start: Any) -> Any:
    """One chunk of K of one block: the chain goes on from `start`."""
    return one_matmul(a, b, start, **options)


def _parts(options: dict[str, Any], part: int, saturate: bool, a: Any, b: Any, start: Any) -> Any:
    """Parts of K of one block, added to the sum of those before."""
    for first in range(0, a.shape[-1], part):
        piece = one_matmul(a[..., first : first + part], b[..., first : first + part, :], **options)
        start = piece if start is None else add(start, piece, saturate)
    return start


def _finish(saturate: bool, where: Any, scales: Any, total: Any, c: Any) -> Any:
    """What comes after the last chunk: c where parts were added, scales."""
    result = total.copy()
    if c is not None:
        whole = np.broadcast_to(np.asarray(c).astype(result.dtype, copy=False), result.shape)
        result = add(result, whole, saturate)
    apply_scales(result, tuple(_scale_of(x, where, axis) for x, axis in zip(scales, (-2, -1), strict=True)))
    return result


def _scale_of(x: Any, where: Any, axis: int) -> Any:
    """The part of a scale that a block of the result needs; where: its slices."""
    if x is None or x.ndim < 2:
        return x
    own = list(where[-x.ndim :])
    own = [s if n > 1 else slice(None) for s, n in zip(own, x.shape, strict=True)]
    own[-1 if axis == -2 else -2] = slice(None)
    return x[tuple(own)]


def _one_chunk(order: Order) -> bool:
    """Whether the chains take K in no ascending order, or depend on all of K, which then must be at hand."""
    return order.group is not None or order.residue is not None or order.unit is not None


def _block_options(job: _Job) -> dict[str, Any]:
    """Options of a block's product: the instruction that was chosen for the whole, in plain order."""
    plain = {k: v for k, v in job.options.items() if k not in ("order", "k_split")}
    return plain | {"instruction": job.whole.instruction}


def graph(job: _Job) -> Any:
    """The dask array of the result."""
    a, b, c, whole = job.a, job.b, job.c, job.whole
    order, saturate = whole.order, bool(job.options.get("saturate"))
    parts, options = not order.one_chain, _block_options(job)
    if order.part and not _one_chunk(order):
        step: Any = partial(_parts, options, order.part, saturate)
    else:
        step = partial(_step, options if order.sequential else options | {"order": order})
    name = f"nbtc-matmul-{tokenize(a, b, c, job.scales, sorted(map(str, job.options.items())))}"
    chunks = (*job.batch, a.chunks[-2], b.chunks[-1])
    edges = [np.concatenate([[0], np.cumsum(sizes)]).astype(int).tolist() for sizes in chunks]
    scaled = any(x is not None for x in job.scales)
    tasks: dict[tuple[Any, ...], Any] = {}
    for index in pairs(*(range(len(sizes)) for sizes in chunks)):
        *batch, i, j = index
        own_c = None if c is None else _key(c, tuple(batch), (i, j))
        total = None if parts else own_c
        depth = len(a.chunks[-1])
        ends_here = not (scaled or (parts and c is not None))
        for k in range(depth):
            key = (name, *index) if k == depth - 1 and ends_here else (f"{name}-k", *index, k)
            tasks[key] = (step, _key(a, tuple(batch), (i, k)), _key(b, tuple(batch), (k, j)), total)
            total = key
        if not ends_here:
            where = tuple(slice(e[n], e[n + 1]) for e, n in zip(edges, index, strict=True))
            finish = partial(_finish, saturate, where, job.scales)
            tasks[(name, *index)] = (finish, total, own_c if parts else None)
    layers = HighLevelGraph.from_collections(name, tasks, dependencies=[x for x in (a, b, c) if x is not None])
    dtype = as_format(whole.formats[2]).dtype
    return da.Array(layers, name, chunks=chunks, dtype=dtype, shape=whole.shape[:-1])


def describe(job: _Job) -> DaskPlan:
    """The plan of a job."""
    a, b, whole = job.a, job.b, job.whole
    acc = as_format(whole.formats[2])
    one = tuple(max(sizes, default=0) for sizes in (*job.batch, a.chunks[-2], b.chunks[-1]))
    blocks = [np.broadcast_to(np.zeros((), x.dtype), [max(sizes, default=0) for sizes in x.chunks]) for x in (a, b)]
    step = one_plan(*blocks, **_block_options(job))
    operands = sum(x.size * x.itemsize for x in blocks)
    count = prod(len(sizes) for sizes in (*job.batch, a.chunks[-2], b.chunks[-1])) * len(a.chunks[-1])
    own = operands + 2 * prod(one) * acc.dtype.itemsize + step.peak_bytes
    return DaskPlan(whole, (*job.batch, a.chunks[-2], b.chunks[-1]), len(a.chunks[-1]), count, own)
