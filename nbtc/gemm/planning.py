"""What a product is, before any of it is computed: validated operands, instruction, model, engine, memory."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.threads import check_progress, thread_count
from nbtc.errors import FormatError, OptionError, ShapeError, shown
from nbtc.formats.arrays import as_array, as_flag, as_format, significant, to_bits
from nbtc.formats.table import FORMATS, Format
from nbtc.gemm.choose import accumulator, plain_line, row_for
from nbtc.gemm.cost import POSITIONS, Size, copied_bytes
from nbtc.gemm.cublas.orders import Library
from nbtc.gemm.engines.engines import CHAIN, ENGINES, engines_for
from nbtc.gemm.orders import Order, every
from nbtc.gemm.orders import order as order_row
from nbtc.gemm.out import block_shape, check_out, destination, rows_at_once
from nbtc.gemm.problem import Plan, Problem, Shape, merged
from nbtc.gemm.scales import float_scales
from nbtc.isa.archs import Arch
from nbtc.isa.archs import arch as arch_row
from nbtc.isa.spec import Row
from nbtc.numerics.models import changes, model, params

SMALL = 8_000  # multiply-adds below which one chain an output beats packing: of f16 4,000, of f64 and bf16 12,000


def operand_format(dtype: np.dtype[Any], shape: tuple[int, ...], fmt: object, name: str) -> tuple[Format, bool]:
    """The format of an operand, and whether it holds packed words."""
    if not shape:
        raise ShapeError(
            f"{name} is a single {dtype}, of shape (); a product takes matrices: pass an array of shape "
            f"({'..., M, K' if name == 'a' else '..., K, N'})"
        )
    if len(shape) < 2:
        raise ShapeError(
            f"{name} has shape {shape}; a product needs at least two dimensions "
            f"({'..., M, K' if name == 'a' else '..., K, N'}): for a vector, pass "
            f"{name}[{'None, :' if name == 'a' else ':, None'}]"
        )
    if fmt is None:
        if dtype == np.uint32:
            raise FormatError(
                f"{name} is uint32, which carries packed words of several formats: say which with "
                f'{name}_format="s4" (or "u4", "b1"), running along K'
            )
        f = _multiplicand(dtype, name)
    else:
        f = as_format(fmt)
    f = FORMATS["tf32"] if f.name == "f32" else f
    if f.name == "s32":
        raise FormatError(
            f"{name} is int32: no instruction multiplies 32-bit integers; use int8 or uint8 multiplicands"
        )
    packed = f.packed and dtype == np.uint32
    if not packed:
        to_bits(np.empty(0, dtype), f)  # raises where the dtype does not carry the format
    return f, packed


def _bits(x: NDArray[Any], fmt: Format, packed: bool) -> NDArray[Any]:
    """An operand's bits, a view where they fill their words."""
    if packed:
        return x
    return significant(x.view(fmt.bits_dtype), fmt)


def _multiplicand(dtype: np.dtype[Any], name: str) -> Format:
    """The format of an operand's dtype; the message of a dtype that is none names the operand."""
    try:
        return as_format(dtype)
    except FormatError:
        raise FormatError(
            f"{name} is {dtype}, which no instruction multiplies; multiplicands are float64, float32 "
            f"(read as tf32), float16 int8 uint8 bool and bfloat16 float8_e4m3fn float8_e5m2 int4 uint4 of ml_dtypes: "
            f"convert first, for example {name}.astype({'np.int8' if dtype.kind in 'iu' else 'np.float16'})"
        ) from None


def depth(a: Shape, b: Shape, fa: Format, fb: Format, packed: tuple[bool, bool]) -> int:
    ka = a[-1] * (fa.per_word if packed[0] else 1)
    kb = b[-2] * (fb.per_word if packed[1] else 1)
    if packed[0] != packed[1]:  # the unpacked one says how long K is
        words, elements = (ka, kb) if packed[0] else (kb, ka)
        if -(-elements // fa.per_word) * fa.per_word == words:
            return int(elements)
    if ka != kb:
        turned = b[-1] * (fb.per_word if packed[1] else 1) == ka
        raise ShapeError(
            f"a has shape {a} and b {b}: K is {ka} in a (last axis) and {kb} in b (axis -2), and must agree; "
            + ("did you mean b.swapaxes(-1, -2)?" if turned else f"pass b (..., {a[-1]}, N), or a (..., M, {b[-2]})")
        )
    return int(ka)


class ProductOptions(NamedTuple):
    """The keyword arguments of `matmul`, as they were given."""

    arch: object = "sm_90"
    acc: object = None
    instruction: object = None
    a_format: object = None
    b_format: object = None
    saturate: bool = False
    op: str | None = None
    k_split: int | None = None
    order: object = None
    scale_a: object = None
    scale_b: object = None
    kind: str | None = None
    out: Any = None
    threads: int | None = None
    progress: object = False


class _Question(NamedTuple):
    """What a decision rests on: the tables' state, the engines, options, the operands' dtypes and shapes."""

    changed: int
    engines: tuple[Any, ...]
    arch: object
    acc: object
    instruction: object
    kind: str | None
    a_format: object
    b_format: object
    saturate: bool
    op: str | None
    k_split: int | None
    order: object
    layout: str
    rows: int | None
    threads: int
    copied: int
    a_dtype: np.dtype[Any]
    a: Shape
    b_dtype: np.dtype[Any]
    b: Shape
    c_dtype: np.dtype[Any] | None
    c: Shape | None


def prepare(a: Any, b: Any, c: Any = None, options: ProductOptions | None = None) -> Problem:
    """Check everything and decide everything; computes nothing, copies no operand."""
    o = options or ProductOptions()
    check_progress(o.progress)
    out = destination(o.out)
    av, bv, cv = as_array(a), as_array(b), None if c is None else as_array(c)
    question = (
        changes(), tuple(ENGINES), o.arch, o.acc, o.instruction, o.kind, o.a_format, o.b_format, o.saturate, o.op,
        o.k_split, o.order, _layout(o.order, bv), rows_at_once(out, (av, bv), cv), thread_count(o.threads),
        copied_bytes(av), av.dtype, av.shape, bv.dtype, bv.shape,
        *((None, None) if cv is None else (cv.dtype, cv.shape)),
    )  # fmt: skip
    try:
        decided = _decided(*question)
    except TypeError:  # something unhashable, or a type error of our own: the same without a memory
        decided = _decided.__wrapped__(*question)
    (fa, fb, accf), packed, batch, plan = decided
    if cv is not None:
        cv = accumulator_bits(cv, accf)
    if out is not None:
        check_out(out, plan.shape[:-1], accf)
    scales = float_scales(o.scale_a, o.scale_b, plan.shape[:-1], accf)
    return Problem(
        _bits(av, fa, packed[0]), _bits(bv, fb, packed[1]), cv, fa, fb, accf, batch, packed, plan, scales
    )  # fmt: skip


def _layout(order: object, b: NDArray[Any]) -> str:
    """How B lies in memory, where a library's order depends on it."""
    columns = isinstance(order, Library) and b.ndim > 1 and b.strides[-2] < b.strides[-1]
    return "nt" if columns else "nn"


@lru_cache(maxsize=512, typed=True)  # a small product takes less time than deciding how to compute it
def _decided(*question: Any) -> tuple[tuple[Format, Format, Format], tuple[bool, bool], Shape, Plan]:
    """(formats, which operands are packed, batch axes, plan) of a question; `typed` sees its parts: 1 is not True."""
    q = _Question(*question)
    target = arch_row(q.arch)
    fa, pa = operand_format(q.a_dtype, q.a, q.a_format, "a")
    fb, pb = operand_format(q.b_dtype, q.b, q.b_format, "b")
    k = depth(q.a, q.b, fa, fb, (pa, pb))
    acc = accumulator(fa) if q.acc is None else as_format(q.acc)
    _check_options(fa, acc, q.saturate, q.op, q.k_split)
    bit_op = q.op or _default_op(fa, q.instruction)
    m, n = q.a[-2], q.b[-1]
    order = q.order.order(m, n, k, a=fa, b=fb, out=acc, layout=q.layout) if isinstance(q.order, Library) else q.order
    way = _order(order, q.k_split, k)
    if way.fused and (acc.name != "f32" or pa or pb):
        raise OptionError(
            f"order={way.name!r} is of fused multiply-adds in float32, but the accumulator of {fa.name} x {fb.name} is "
            f"{acc.name}{', and the words are packed' * (pa or pb)}: pass float32, float16 or bfloat16 operands"
        )
    form = _instruction(q.instruction)
    row = row_for(target.name, form, fa.name, fb.name, acc.name, bit_op, q.saturate, way.step, q.kind)
    if q.c_dtype is not None:
        accumulator_bits(np.empty(0, q.c_dtype), acc)
    batch = batch_axes(q.a, q.b, q.c, m, n)
    one_b = merged(q.a, q.b, batch)
    block = block_shape((*batch, m, n), acc.dtype.itemsize, None if way.tail else q.rows)
    size = Size((fa, fb, acc), (*batch, m, n, k), block, q.threads, one_b)
    plan = _plan(target, row, size, q.saturate or row.saturate, way)
    plan = replace(
        plan,
        operand_bytes=(prod(q.a) * q.a_dtype.itemsize, prod(q.b) * q.b_dtype.itemsize),
        peak_bytes=plan.peak_bytes + one_b * q.copied,
    )
    return (fa, fb, acc), (pa, pb), batch, plan


def _order(order: object, k_split: int | None, k: int) -> Order:
    """The order of summation that `order` or `k_split` asks for."""
    if order is None:
        return order_row("seq") if k_split is None else every(int(k_split))
    if k_split is not None:
        raise OptionError(f"order={order!r} and k_split={k_split!r} both say how K is cut: pass one of the two")
    found = order_row(order)
    found.check(k)
    return found


def _default_op(fa: Format, instruction: object) -> str | None:
    return "xor" if fa.kind == "bit" and (instruction is None or instruction in ("mma", "wmma")) else (
        "and" if fa.kind == "bit" and instruction == "wgmma" else None
    )  # fmt: skip


def _instruction(instruction: object) -> str | None:
    if instruction is None or isinstance(instruction, str):
        return instruction
    mnemonic = getattr(instruction, "mnemonic", None)
    if isinstance(mnemonic, str):
        plain_line(instruction)
        return mnemonic
    raise OptionError(
        f'instruction={shown(instruction)} is neither a mnemonic nor a family: pass "mma", "wgmma" or "wmma"'
    )


def _check_options(fa: Format, acc: Format, saturate: object, op: object, k_split: object) -> None:
    if as_flag(saturate, "saturate") and fa.kind != "int":
        raise OptionError(
            f"saturate=True with {fa.name} multiplicands: .satfinite exists for integers alone (s8 u8 s4 u4); drop it"
        )
    if op is not None and (not isinstance(op, str) or op not in ("xor", "and")):
        raise OptionError(f'op={shown(op)} is not a bit operation: b1 products take op="xor" (the default) or op="and"')
    if op is not None and fa.kind != "bit":
        raise OptionError(f"op={op!r} with {fa.name} multiplicands: only b1 products choose a bit operation; drop it")
    check_part(k_split)


def check_part(k_split: object) -> None:
    """Raise OptionError unless k_split is None or a length of K."""
    whole = isinstance(k_split, int | np.integer) and not isinstance(k_split, bool)
    if k_split is not None and not (whole and 1 <= int(k_split) < 1 << 62):  # type: ignore[call-overload]
        raise OptionError(
            f"k_split={shown(k_split)} is not a length of K: pass a whole number from 1 up, such as k_split=128"
        )


def accumulator_bits(array: NDArray[Any], acc: Format) -> NDArray[Any]:
    """c's bits in the accumulator format; an f16 c widens to f32."""
    if array.dtype == np.float16 and acc.name == "f32":
        array = array.astype(np.float32)
    if array.dtype != acc.dtype:
        raise FormatError(
            f"c is {array.dtype}, the accumulator is {acc.name}: c must be {acc.dtype}"
            f"{' (or float16)' if acc.name == 'f32' else ''}; try c.astype({str(acc.dtype)!r}), or acc="
        )
    return to_bits(array, acc)


def batch_axes(a: Shape, b: Shape, c: Shape | None, m: int, n: int) -> Shape:
    if c is not None and c[-2:] != (m, n):
        raise ShapeError(f"c has shape {c}; with a {a} and b {b} it must be (..., {m}, {n})")
    shapes = [x[:-2] for x in (a, b, c) if x is not None]
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise ShapeError(
            f"batch axes {', '.join(map(str, shapes))} of a, b and c do not broadcast: make them equal, or 1"
        ) from None


def _plan(target: Arch, row: Row, size: Size, saturate: bool, order: Order) -> Plan:
    fa, fb, acc = size.formats
    step = (row.shape or (0, 0, 1))[2]
    numerics = model(target.numerics, row.unit, fa, label=target.name, validated=target.validated)
    vector = params(numerics, fa, fb, acc, step, saturate=saturate, rounding=row.rounding, op=row.op or "xor")
    *batch, m, n, k = size.shape
    part = min(k, order.part) if order.part else k
    small = m * n * part * (prod(batch) if size.merged else 1) <= SMALL
    engine = CHAIN if small else engines_for(vector, ENGINES)[0]
    peak = engine.peak_bytes(size)
    sums = prod(size.block) * acc.dtype.itemsize
    chains = len(order.chains(k))
    if chains > 1:  # the sum so far (of units all parts), the next, and what adding them takes
        peak += sums * ((5 if saturate else 2) + (chains - 1 if order.unit else 0))
    rearranged = any(len(chain) > 1 for chain in order.chains(k))
    if (saturate and not engine.complete) or rearranged:  # copies for sums that may clamp midway, or of a rearranged K
        peak += (
            8 * min(prod(size.block), POSITIONS)
            + sums * (2 if saturate else 0)
            + prod(batch) * (m * k * fa.dtype.itemsize + k * n * fb.dtype.itemsize)
        )
    one_thread = size.threads == 1 or m * n * k <= engine.worth
    simple = one_thread and order.sequential and size.block == size.shape[:-1] and not batch and m * n * k > 0
    mnemonic, step = ("fma.rn.f32", 1) if order.fused else (row.mnemonic, step)
    return Plan(
        mnemonic, numerics, order.steps(k, step), size.shape, (fa.name, fb.name, acc.name), target.name,
        engine.name, size.threads, peak, order.part if order.name.startswith("every") else None, order, size.block,
        rate=engine.rate, simple=simple, row=row, params=vector,
    )  # fmt: skip
