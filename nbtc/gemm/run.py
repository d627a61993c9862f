"""`matmul` and `gemm`: drive an engine over batches, splits of K, repairs."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbtc.compiler.threads import ThreadTeam
from nbtc.errors import FormatError, OptionError
from nbtc.formats.arrays import as_array, from_bits
from nbtc.formats.table import Format
from nbtc.gemm.engines import by_chain, by_item
from nbtc.gemm.plan import Plan, Problem, check_out, prepare
from nbtc.numerics.models import SATURATE


def matmul(
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike | None = None,
    *,
    arch: object = "sm_90",
    acc: object = None,
    instruction: object = None,
    a_format: object = None,
    b_format: object = None,
    saturate: bool = False,
    op: str | None = None,
    k_split: int | None = None,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
    progress: bool | Callable[[int, int], object] = False,
) -> NDArray[Any]:
    """D = A @ B + C, every output bit as the tensor cores of `arch` give it.

    a (..., M, K), b (..., K, N), c (..., M, N) or None for zero; any M, N, K >= 0, any strides; batch axes broadcast.
    d[i, j] is the chain of instruction steps in ascending k that starts from c[i, j].  Packed uint32 words (s4, u4, b1)
    run along K.

    arch: "sm_70" ... "sm_120" (default "sm_90").  acc: accumulator format, default the widest.  instruction: a PTX
    mnemonic or "mma", "wgmma", "wmma".  a_format, b_format: what an array's dtype does not say.  saturate: .satfinite
    (integers).  op: "xor" or "and" (b1).  k_split: a new chain every so many elements of K; parts are added in
    ascending order, then c.  out: where to write.  threads: how many; the bits do not depend on it.  progress: True for
    a bar, or a callable of (done, total) multiply-adds.

    Returns an array of the accumulator's dtype.  Raises subclasses of TypeError and ValueError from `nbtc.errors`
    before any work.  PTX ISA: "Warp Level Matrix Multiply-Accumulate Instructions", "Asynchronous Warpgroup Level
    Matrix Multiply-Accumulate Instructions".

    >>> import numpy as np, nbtc
    >>> a = np.full((2, 32), 0.1, np.float16)
    >>> nbtc.matmul(a, a.T)[0, 0], nbtc.matmul(a, a.T, acc="f16")[0, 0]
    (np.float32(0.31984377), np.float16(0.3198))
    """
    problem = prepare(
        a, b, c, arch=arch, acc=acc, instruction=instruction, a_format=a_format, b_format=b_format, saturate=saturate,
        op=op, k_split=k_split, out=out, threads=threads, progress=progress,
    )  # fmt: skip
    return _execute(problem, out, progress)


def plan(
    a: ArrayLike,
    b: ArrayLike,
    c: ArrayLike | None = None,
    *,
    arch: object = "sm_90",
    acc: object = None,
    instruction: object = None,
    a_format: object = None,
    b_format: object = None,
    saturate: bool = False,
    op: str | None = None,
    k_split: int | None = None,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
    progress: bool | Callable[[int, int], object] = False,
) -> Plan:
    """What `matmul` would do with the same arguments, without doing it; prints, and `.explain()` says more.

    >>> import numpy as np, nbtc
    >>> p = nbtc.plan(np.zeros((64, 64), np.float16), np.zeros((64, 64), np.float16), arch="sm_80")
    >>> p.instruction, p.steps
    ('mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32', 4)
    """
    return prepare(
        a, b, c, arch=arch, acc=acc, instruction=instruction, a_format=a_format, b_format=b_format, saturate=saturate,
        op=op, k_split=k_split, out=out, threads=threads, progress=progress,
    ).plan  # fmt: skip


def gemm(
    alpha: float,
    a: ArrayLike,
    b: ArrayLike,
    beta: float,
    c: ArrayLike | None,
    *,
    arch: object = "sm_90",
    acc: object = None,
    instruction: object = None,
    a_format: object = None,
    b_format: object = None,
    saturate: bool = False,
    op: str | None = None,
    k_split: int | None = None,
    out: NDArray[Any] | None = None,
    threads: int | None = None,
    progress: bool | Callable[[int, int], object] = False,
) -> NDArray[Any]:
    """alpha * (A @ B) + beta * C, as a library kernel's epilogue: the chain starts from zero.

    alpha * acc, beta * c and their sum are each rounded in C's type, never fused (float16 C: computed in float32, one
    rounding at the end); alpha and beta are rounded to that type first.  Integer products take whole alpha and beta and
    wrap.  c None counts as zeros.  Other arguments, shapes and errors as `matmul`.

    >>> import numpy as np, nbtc
    >>> one = np.eye(16, dtype=np.float16)
    >>> float(nbtc.gemm(2, one, one, 1, np.ones((16, 16), np.float32))[0, 0])
    3.0
    """
    options: dict[str, Any] = {
        "arch": arch, "acc": acc, "instruction": instruction, "a_format": a_format, "b_format": b_format,
        "saturate": saturate, "op": op, "k_split": k_split, "threads": threads, "progress": progress,
    }  # fmt: skip
    probe = prepare(a, b, None, **options)
    shape, acc = (*probe.plan.shape[:-1],), probe.acc
    dtype = acc.dtype if c is None else as_array(c).dtype
    if dtype not in (acc.dtype, np.dtype(np.float16)) or (dtype == np.float16 and acc.name not in ("f16", "f32")):
        raise FormatError(
            f"c is {dtype}, but the accumulator is {acc.name}: pass c as {acc.dtype}"
            f"{' or float16' if acc.name == 'f32' else ''}"
        )
    full = np.zeros(shape, dtype) if c is None else as_array(c)
    prepare(a, b, full, **options)  # c's shape, before any work
    if out is not None:
        check_out(out, np.broadcast_shapes(shape, full.shape), _format_of(dtype, acc))
    scale = [_scalar(x, dtype, name) for x, name in ((alpha, "alpha"), (beta, "beta"))]
    product = _execute(probe, None, progress)
    result = _epilogue(product, full, scale[0], scale[1], dtype)
    if out is None:
        return result
    out[...] = result
    return out


def _format_of(dtype: np.dtype[Any], acc: Format) -> Format:
    from nbtc.formats.arrays import as_format

    return acc if dtype == acc.dtype else as_format(dtype)


def _scalar(x: Any, dtype: np.dtype[Any], name: str) -> Any:
    value = np.asarray(x)
    if value.ndim or value.dtype.kind not in "iuf":
        raise OptionError(f"{name}={x!r} must be one real number, such as {name}=1.0")
    if dtype.kind == "i":
        if value.dtype.kind == "f" and not float(value).is_integer():
            raise OptionError(f"{name}={x!r} must be a whole number for an integer product, such as {name}=2")
        if not -(1 << 31) <= int(value) < 1 << 31:
            raise OptionError(f"{name}={x!r} does not fit int32, the type of the accumulator: pass -2**31 .. 2**31 - 1")
        return np.int32(int(value))
    with np.errstate(over="ignore"):
        return value.astype(dtype)[()]


def _epilogue(product: NDArray[Any], c: NDArray[Any], alpha: Any, beta: Any, dtype: np.dtype[Any]) -> NDArray[Any]:
    with np.errstate(all="ignore"):
        if dtype == np.float16:
            x: NDArray[Any] = np.float32(alpha) * product.astype(np.float32) + np.float32(beta) * c.astype(np.float32)
            return _canonical(x.astype(np.float16))
        x = alpha * product + beta * c
    return _canonical(x) if dtype.kind == "f" else x


def _canonical(x: NDArray[Any]) -> NDArray[Any]:
    """NaNs as the hardware writes them."""
    nan = {2: 0x7FFF, 4: 0x7FFFFFFF, 8: 0xFFF8 << 48}[x.dtype.itemsize]
    x.view(f"u{x.dtype.itemsize}")[np.isnan(x)] = nan
    return x


def add(x: NDArray[Any], y: NDArray[Any], saturate: bool) -> NDArray[Any]:
    """x + y in their type: floats to nearest even, NaN canonical; s32 wraps, or saturates."""
    with np.errstate(all="ignore"):
        total: NDArray[Any] = x + y
        if x.dtype != np.int32:
            return _canonical(total)
        if not saturate:
            return total
        total = x.astype(np.int64) + y
        return total.clip(-(1 << 31), (1 << 31) - 1).astype(np.int32)


# multiply-adds that take some 0.3 ms on one thread: below, waking another costs more than it saves
_WORTH = {"avx512": 6_000_000, "portable": 1_000_000, "words": 10_000_000, "chain": 30_000}


def _execute(problem: Problem, out: NDArray[Any] | None, progress: Any) -> NDArray[Any]:
    plan = problem.plan
    *batch, m, n, k = plan.shape
    macs = prod(batch) * m * n * k
    team = ThreadTeam(plan.threads if macs > _WORTH[plan.engine] else 1, progress, macs)
    try:
        if not plan.k_split or k == 0:
            result = _chain(problem, problem.c, 0, k, team)
        else:
            result = _chain(problem, None, 0, min(k, plan.k_split), team)
            saturate = bool(plan.params[SATURATE])
            for start in range(plan.k_split, k, plan.k_split):
                part = _chain(problem, None, start, min(k, start + plan.k_split), team)
                result = add(result, part, saturate)
            if problem.c is not None:
                result = add(result, np.broadcast_to(from_bits(problem.c, problem.acc), result.shape), saturate)
        team.finish()
    finally:
        team.close()
    if out is None:
        return result
    out[...] = result
    return out


def _chain(problem: Problem, c: NDArray[Any] | None, start: int, stop: int, team: ThreadTeam) -> NDArray[Any]:
    """One chain an output over K elements start..stop, from c or zero."""
    plan, acc = problem.plan, problem.acc
    *batch, m, n, _ = plan.shape
    d = np.zeros((*batch, m, n), acc.bits_dtype)
    if c is not None and (stop == start or plan.engine != "chain"):
        d[...] = c
    if d.size and stop > start:
        if plan.engine == "chain":
            by_chain(problem, c, d, start, stop, team)
        else:
            by_item(problem, c, d, start, stop, team)
    return d.view(acc.dtype)
