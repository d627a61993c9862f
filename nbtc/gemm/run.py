"""`matmul` and `gemm`: drive an engine over batches, splits of K, repairs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbtc.compiler.jit import in_default_float_mode
from nbtc.compiler.machine_code.prepared_calls import UNLIKE
from nbtc.compiler.pools import output_pool
from nbtc.compiler.threads import ThreadTeam, thread_count
from nbtc.errors import FormatError, OptionError, shown
from nbtc.formats.arrays import as_array, as_given, from_bits
from nbtc.formats.table import Format
from nbtc.gemm import repeated
from nbtc.gemm.engines.engines import ALONE, ENGINES, named
from nbtc.gemm.fused_lanes import fused_lanes
from nbtc.gemm.orders import Chain
from nbtc.gemm.orders import order as order_row
from nbtc.gemm.out import blocks, check_out, destination
from nbtc.gemm.parts import block_of, rearranged, tile_of
from nbtc.gemm.planning import ProductOptions, prepare
from nbtc.gemm.problem import Plan, Problem
from nbtc.gemm.scales import apply_scales, are_of_blocks
from nbtc.gemm.shares import copy
from nbtc.numerics.fused import check_readable
from nbtc.numerics.models import SATURATE

if TYPE_CHECKING:
    from nbtc.gemm.engines.scaled_engines import ScaledProblem


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
    order: object = None,
    scale_a: ArrayLike | None = None,
    scale_b: ArrayLike | None = None,
    kind: str | None = None,
    out: Any = None,
    threads: int | None = None,
    progress: bool | Callable[[int, int], object] = False,
) -> NDArray[Any]:
    """D = A @ B + C, with every bit as the tensor cores of `arch` compute it.

    a (..., M, K), b (..., K, N), c (..., M, N) or None for zero; any M, N, K >= 0, any strides; batch axes broadcast.
    d[i, j] is the chain of instruction steps in ascending k that starts from c[i, j].  Packed uint32 words (s4, u4, b1)
    run along K.

    arch: "sm_70" ... "sm_120" or a GPU's name (default "sm_90").  acc: the accumulator's format (default: the widest).
    instruction: a PTX mnemonic or "mma", "wgmma", "wmma", "tcgen05".  a_format, b_format: formats that the arrays'
    dtypes do not tell.  saturate: .satfinite (integers).  op: "xor" or "and" (b1).  k_split: start a new chain every so
    many elements of K and add the parts in ascending order, then c.  order: sum in the order of a library's kernel, see
    `nbtc.order` and `nbtc.library`.  scale_a, scale_b: scales of the finished float32 result, which is multiplied by
    scale_a (a float32 number or (M, 1) rows), then by scale_b (a number or (1, N) columns), and rounded to nearest even
    each time; or block scales, scale_a (..., M, K / block) and scale_b (..., K / block, N), both float8_e8m0fnu in
    blocks of 32 or 16, or both float8_e4m3fn (read as ue4m3) in blocks of 16.  kind: the instruction's kind, such as
    "f8f6f4" or "mxf4nvf4" (default: what the formats and scales need).  out: where to write, block by block if it is
    large: an array, a memory map, or anything of the same shape and dtype whose items can be set.  threads: how many to
    use; the bits do not depend on it.  progress: True for a bar, or a callable of (done, total) multiply-adds.

    Returns an array of the accumulator's dtype, or a torch tensor if an operand is one (tensors that require a gradient
    are refused while PyTorch records them: see `nbtc.torch.emulated`).  Raises subclasses of TypeError and ValueError
    from `nbtc.errors` before any work.  PTX ISA: "Warp Level Matrix Multiply-Accumulate Instructions", "Asynchronous
    Warpgroup Level Matrix Multiply-Accumulate Instructions".

    >>> import numpy as np, nbtc
    >>> a = np.full((2, 32), 0.1, np.float16)
    >>> nbtc.matmul(a, a.T)[0, 0], nbtc.matmul(a, a.T, acc="f16")[0, 0]
    (np.float32(0.31984377), np.float16(0.3198))
    """
    signature, count = None, thread_count(None) if threads is None else threads
    for known in repeated.LATEST:
        d = known.product(
            a, b, ENGINES, count, arch, acc, instruction, a_format, b_format, op, kind, c, k_split, order, scale_a,
            scale_b, out, saturate, progress,
        )  # fmt: skip
        if type(d) is np.ndarray:
            return d
        if d != UNLIKE:
            repeated.refuse(known.of, known.call, d)
            break
    bare = c is None and k_split is None and order is None and scale_a is None and scale_b is None and out is None
    if bare and saturate is False and progress is False:
        names = arch, acc, instruction, a_format, b_format, op, kind
        signature = repeated.signature(a, b, names, threads, ENGINES)
        remembered = None if signature is None else repeated.product(signature, a, b)
        if remembered is not None:
            return remembered
    options = ProductOptions(
        arch, acc, instruction, a_format, b_format, saturate, op, k_split, order, scale_a, scale_b, kind, out, threads,
        progress,
    )  # fmt: skip
    if are_of_blocks(scale_a, scale_b):
        result = _run_scaled(_scaled_problem(a, b, c, options), destination(out), progress)
    else:
        problem = prepare(a, b, c, options)
        result = _execute(problem, destination(out), progress)
        if signature is not None and problem.plan.simple:
            repeated.remember(signature, a, b, threads, problem, ENGINES)
    given: NDArray[Any] = as_given(result, a, b, c) if out is None else out
    return given


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
    order: object = None,
    scale_a: ArrayLike | None = None,
    scale_b: ArrayLike | None = None,
    kind: str | None = None,
    out: Any = None,
    threads: int | None = None,
    progress: bool | Callable[[int, int], object] = False,
) -> Plan:
    """What `matmul` would do with the same arguments, without doing it: print it, or `.explain()` it in more words.

    Shapes, dtypes and errors are those of `matmul`.

    >>> import numpy as np, nbtc
    >>> p = nbtc.plan(np.zeros((64, 64), np.float16), np.zeros((64, 64), np.float16), arch="sm_80")
    >>> p.instruction, p.steps
    ('mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32', 4)
    """
    options = ProductOptions(
        arch, acc, instruction, a_format, b_format, saturate, op, k_split, order, scale_a, scale_b, kind, out, threads,
        progress,
    )  # fmt: skip
    problem = _scaled_problem(a, b, c, options) if are_of_blocks(scale_a, scale_b) else prepare(a, b, c, options)
    return problem.plan


def _scaled_problem(a: ArrayLike, b: ArrayLike, c: ArrayLike | None, options: ProductOptions) -> ScaledProblem:
    """A checked product with block scales; what computes it is imported when there is one."""
    from nbtc.gemm.block_scaled import prepare, refuse

    refuse(saturate=options.saturate, op=options.op, order=options.order)
    return prepare(a, b, c, options)


def _run_scaled(problem: ScaledProblem, out: Any, progress: Any) -> Any:
    from nbtc.gemm.block_scaled import run

    return run(problem, out, progress)


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
    order: object = None,
    out: Any = None,
    threads: int | None = None,
    progress: bool | Callable[[int, int], object] = False,
) -> NDArray[Any]:
    """alpha * (A @ B) + beta * C, as the epilogue of a library's kernel computes it: the chain starts from zero.

    alpha * acc, beta * c and their sum are each rounded to C's type, never fused (for a float16 C they are computed in
    float32 and rounded once at the end); alpha and beta are rounded to that type first.  Integer products take integer
    alpha and beta and wrap.  c None counts as zeros.  Other arguments, shapes and errors are those of `matmul`.

    >>> import numpy as np, nbtc
    >>> one = np.eye(16, dtype=np.float16)
    >>> float(nbtc.gemm(2, one, one, 1, np.ones((16, 16), np.float32))[0, 0])
    3.0
    """
    options = ProductOptions(
        arch, acc, instruction, a_format, b_format, saturate, op, k_split, order, threads=threads, progress=progress
    )
    probe = prepare(a, b, None, options)
    shape, acc = (*probe.plan.shape[:-1],), probe.acc
    dtype = acc.dtype if c is None else as_array(c).dtype
    if dtype not in (acc.dtype, np.dtype(np.float16)) or (dtype == np.float16 and acc.name not in ("f16", "f32")):
        raise FormatError(
            f"c is {dtype}, but the accumulator is {acc.name}: pass c as {acc.dtype}"
            f"{' or float16' if acc.name == 'f32' else ''}"
        )
    full = np.zeros(shape, dtype) if c is None else as_array(c)
    prepare(a, b, full, options)  # c's shape, before any work
    if out is not None:
        check_out(destination(out), np.broadcast_shapes(shape, full.shape), _format_of(dtype, acc))
    scale = [_scalar(x, dtype, name) for x, name in ((alpha, "alpha"), (beta, "beta"))]
    product = _execute(probe, None, progress)
    result = _epilogue(product, full, scale[0], scale[1], dtype)
    if out is not None:
        destination(out)[...] = result
    given: NDArray[Any] = as_given(result, a, b, c) if out is None else out
    return given


def _format_of(dtype: np.dtype[Any], acc: Format) -> Format:
    from nbtc.formats.arrays import as_format

    return acc if dtype == acc.dtype else as_format(dtype)


@in_default_float_mode
def _scalar(x: Any, dtype: np.dtype[Any], name: str) -> Any:
    value = as_array(x)
    if value.ndim or value.dtype.kind not in "iuf":
        raise OptionError(f"{name}={shown(x)} must be one real number, such as {name}=1.0")
    if dtype.kind == "i":
        if value.dtype.kind == "f" and not float(value).is_integer():
            raise OptionError(f"{name}={shown(x)} must be a whole number for an integer product, such as {name}=2")
        if not -(1 << 31) <= int(value) < 1 << 31:
            raise OptionError(
                f"{name}={shown(x)} does not fit int32, the type of the accumulator: pass -2**31 .. 2**31 - 1"
            )
        return np.int32(int(value))
    with np.errstate(over="ignore"):
        return value.astype(dtype)[()]


@in_default_float_mode
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


@in_default_float_mode
def _execute(problem: Problem, out: Any, progress: Any) -> Any:
    plan = problem.plan
    check_readable(problem.a_format, problem.b_format)
    bare = problem.c is None and all(scale is None for scale in problem.scales)
    if plan.simple and bare and out is None and progress is False:
        # small ones wait for every line of Python: what follows takes as long as an int8 product of 64^3
        return _chain(problem, None, plan.chains[0], ALONE)
    macs = prod(plan.shape)
    team = ThreadTeam(plan.threads if macs > named(plan.engine, ENGINES).worth else 1, progress, macs)
    try:
        if plan.block == plan.shape[:-1]:
            result = _scaled(problem, team)
            if isinstance(out, np.ndarray) and out.ndim > 1:
                copy(np.asarray(out), result, team)
            elif out is not None:
                out[...] = result
        else:
            result = out
            for at in blocks(plan.shape[:-1], plan.block):
                index = at[1:] if len(plan.shape) == 3 else (at[0], ..., at[1], slice(None))
                out[index] = _scaled(block_of(problem, at), team)
        team.finish()
    finally:
        team.close()
    return result if out is None else out


def _scaled(problem: Problem, team: ThreadTeam) -> NDArray[Any]:
    """The whole product with its scales."""
    result = _summed(problem, team)
    if problem.scales[0] is not None or problem.scales[1] is not None:
        apply_scales(result, problem.scales)
        _canonical(result)
    return result


def _summed(problem: Problem, team: ThreadTeam) -> NDArray[Any]:
    """Chains in the plan's order, and the sum of their results."""
    plan, c = problem.plan, problem.c
    k, tail = plan.shape[-1], plan.order.tail
    if tail is not None:
        whole = replace(problem, scales=(None, None), plan=replace(plan, order=order_row("seq")))
        result: NDArray[Any] = _summed(whole, team)
        for at in tail.blocks(*plan.shape[-3:-1]):
            result[..., at[0], at[1]] = _summed(tile_of(problem, at, replace(plan.order, tail=None)), team)
        return result
    if plan.order.fused:
        result = fused_lanes(problem, team)
        _canonical(result)
        return _with_c(result, problem)
    if plan.order.one_chain or k == 0:
        return _chain(problem, c, plan.chains[0], team)
    saturate = bool(plan.params[SATURATE])
    results = (_chain(problem, None, chain, team) for chain in plan.chains)
    return _with_c(plan.order.added(results, partial(add, saturate=saturate)), problem)


def _with_c(result: NDArray[Any], problem: Problem) -> NDArray[Any]:
    """A sum that started from zero, and c."""
    if problem.c is None:
        return result
    c = np.broadcast_to(from_bits(problem.c, problem.acc), result.shape)
    return add(result, c, bool(problem.plan.params[SATURATE]))


def _chain(problem: Problem, c: NDArray[Any] | None, chain: Chain, team: ThreadTeam) -> NDArray[Any]:
    """One chain an output over the segments of K, from c or zero."""
    if len(chain) > 1:  # the same chain over operands whose K is the segments, each of whole steps
        problem = rearranged(problem, chain)
        chain = ((0, problem.plan.shape[-1]),)
    plan, acc, (start, stop) = problem.plan, problem.acc, chain[0]
    if not prod(plan.shape[:-1]) or stop <= start:
        d = np.zeros(plan.shape[:-1], acc.bits_dtype)
        d[...] = 0 if c is None else c
        return d.view(acc.dtype)
    engine = named(plan.engine, ENGINES)
    blank = output_pool.empty if getattr(engine, "fills", False) else np.zeros
    d = blank(plan.shape[:-1], acc.bits_dtype)
    engine.run(problem, c, d, (start, stop), team)
    return d.view(acc.dtype)
