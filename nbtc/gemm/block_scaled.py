"""Products with block scales: which instruction they are chains of, checked operands, and the engines that run them.

A has a scale for every row and block of 32 or 16 elements of K, B one for every block and column.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.jit import in_default_float_mode
from nbtc.compiler.processors import host_processor
from nbtc.compiler.threads import ThreadTeam, thread_count
from nbtc.errors import FormatError, OptionError, ShapeError, UnsupportedInstructionError
from nbtc.formats.arrays import as_array, as_format, to_bits
from nbtc.formats.table import FORMATS, Format, ue4m3
from nbtc.gemm import block_engine, lifted_engine, scaled_engine
from nbtc.gemm.cost import OVERHEAD, Size, packed_bytes
from nbtc.gemm.orders import every
from nbtc.gemm.orders import order as order_row
from nbtc.gemm.out import check_out
from nbtc.gemm.plan import SMALL, accumulator_bits, batch_axes, depth, operand_format
from nbtc.gemm.problem import Plan, matrix
from nbtc.isa import parse
from nbtc.isa.archs import Arch
from nbtc.isa.archs import arch as arch_row
from nbtc.isa.spec import Row
from nbtc.isa.tcgen05 import KINDS, product
from nbtc.numerics.models import Kind, model, params
from nbtc.numerics.scaled import Operands, Scales, scaled_outputs
from nbtc.ops.mma.scaled import flattened

E8, E4 = "ue8m0", "ue4m3"
Key = tuple[str, int, str]  # kind, elements of a block, format of the scales
SIZES: dict[Key, str] = {
    ("mxf8f6f4", 32, E8): "1X", ("mxf4", 32, E8): "2X",
    ("mxf4nvf4", 32, E8): "2X", ("mxf4nvf4", 16, E8): "4X", ("mxf4nvf4", 16, E4): "4X",
}  # fmt: skip
_ALL = np.zeros(0, np.int64)
CHAIN_COST = 3  # nanoseconds of a multiply-add in the chain of one output


class BlockScales(NamedTuple):
    """Codes of the scales of A (..., M, S) and B (..., S, N), their format, and the elements of a block."""

    a: NDArray[np.uint8]
    b: NDArray[np.uint8]
    format: Format
    block: int


@dataclass
class ScaledProblem:
    """Validated operands: element codes a (..., M, K), b (..., K, N), accumulator bits c or None, scales."""

    a: NDArray[np.uint8]
    b: NDArray[np.uint8]
    c: NDArray[np.uint32] | None
    formats: tuple[Format, Format]
    scales: BlockScales
    chunks: int
    batch: tuple[int, ...]
    plan: Plan


def given(*scales: Any) -> bool:
    """Whether scales are those of blocks: arrays of a format of 8 bits."""
    names = {FORMATS[E8].dtype, FORMATS[E4].dtype}
    return any(getattr(s, "dtype", None) in names or "float8" in str(getattr(s, "dtype", "")) for s in scales)


def refuse(**options: Any) -> None:
    """Raise OptionError for options that block-scaled products lack."""
    for name, value in options.items():
        if value not in (None, False):
            raise OptionError(
                f"{name}={value!r} with block scales: these products are f32 sums in ascending k; drop {name}= "
                "(k_split= cuts K in parts)"
            )


def prepare(
    a: Any, b: Any, c: Any, *, arch: object, acc: object, instruction: object, kind: str | None, a_format: object,
    b_format: object, scale_a: Any, scale_b: Any, k_split: int | None, out: Any, threads: int | None,
) -> ScaledProblem:  # fmt: skip
    """Check everything and decide everything; computes nothing."""
    target = arch_row(arch)
    x, y = as_array(a), as_array(b)
    fa, pa = operand_format(x.dtype, x.shape, a_format, "a")
    fb, pb = operand_format(y.dtype, y.shape, b_format, "b")
    m, n, k = x.shape[-2], y.shape[-1], depth(x.shape, y.shape, fa, fb, (pa, pb))
    if acc is not None and as_format(acc).name != "f32":
        raise OptionError(f"acc={acc!r} with block scales: these products accumulate in f32; drop acc=")
    scales = _scales(scale_a, scale_b, m, n, k)
    key = _key(kind, fa, fb, scales)
    row = _row(target, instruction, key, fa, fb)
    step, size = KINDS[key[0]].k, int(SIZES[key][0])
    if k_split is not None and k_split % step:
        raise OptionError(f"k_split={k_split} with block scales: parts are whole steps of {step}; pass a multiple")
    cv = None if c is None else accumulator_bits(as_array(c), FORMATS["f32"])
    operands = batch_axes(x.shape, y.shape, None if cv is None else cv.shape, m, n)
    try:
        batch = np.broadcast_shapes(operands, scales.a.shape[:-2], scales.b.shape[:-2])
    except ValueError:
        raise ShapeError(
            f"batch axes {scales.a.shape[:-2]} of scale_a and {scales.b.shape[:-2]} of scale_b do not broadcast with "
            f"{operands}, those of a, b and c: make them equal, or 1"
        ) from None
    plan = _plan(target, row, (fa, fb), (*batch, m, n, k), (step, size), k_split, thread_count(threads))
    if out is not None:
        check_out(out, (*batch, m, n), FORMATS["f32"])
    ax, bx = (
        np.asarray(to_bits(v, f) if not p else matrix(v, f, p, axis, k), np.uint8)
        for v, f, p, axis in ((x, fa, pa, -1), (y, fb, pb, -2))
    )
    return ScaledProblem(ax, bx, cv, (fa, fb), scales, size, batch, plan)


def _scales(scale_a: Any, scale_b: Any, m: int, n: int, k: int) -> BlockScales:
    if scale_a is None or scale_b is None:
        raise OptionError(
            "block scales come in pairs: pass scale_a (..., M, K/block) and scale_b (..., K/block, N), one of them "
            "np.ones of its shape if only the other operand is scaled"
        )
    x, y = as_array(scale_a), as_array(scale_b)
    formats = [as_format(v.dtype) for v in (x, y)]
    formats = [ue4m3 if f.name == "e4m3" else f for f in formats]
    if formats[0] is not formats[1] or formats[0].name not in (E8, E4):
        raise FormatError(
            f"scale_a is {x.dtype} and scale_b {y.dtype}: block scales are both ml_dtypes.float8_e8m0fnu, or both "
            "float8_e4m3fn (read as ue4m3); float32 scales multiply the finished result, one a row or column"
        )
    fits = [block for block in (32, 16) if -(-k // block) == (x.shape[-1] if x.ndim else -1)]
    if formats[0] is ue4m3:
        fits = [block for block in fits if block == 16]
    if x.ndim < 2 or y.ndim < 2 or not fits or x.shape[-2] != m or y.shape[-2:] != (x.shape[-1], n):
        sizes = ", ".join(f"({m}, {-(-k // block)}) and ({-(-k // block)}, {n})" for block in (32, 16))
        raise ShapeError(
            f"scale_a has shape {x.shape} and scale_b {y.shape}; with M, N, K = {m}, {n}, {k} they are (..., M, "
            f"K/block) and (..., K/block, N) for blocks of 32 or 16 (ue4m3: 16): {sizes}"
        )
    codes = [np.asarray(to_bits(v, formats[0]), np.uint8) for v in (x, y)]
    return BlockScales(codes[0], codes[1], formats[0], fits[0])


def _key(kind: str | None, fa: Format, fb: Format, scales: BlockScales) -> Key:
    four = fa.name == fb.name == "e2m1"
    default = "mxf8f6f4" if not four else "mxf4" if scales.block == 32 else "mxf4nvf4"
    key = (kind or default, scales.block, scales.format.name)
    if key not in SIZES or not KINDS[key[0]].takes(fa.name, fb.name, "f32"):
        legal = "; ".join(f"{k}: blocks of {n} with {s} scales" for k, n, s in SIZES)
        raise UnsupportedInstructionError(
            f"no instruction multiplies {fa.name} x {fb.name} in blocks of {scales.block} with {scales.format.name} "
            f"scales{f' as kind {kind}' if kind else ''}: {legal}; mxf4 and mxf4nvf4 take e2m1 alone, mxf8f6f4 formats "
            "of 8, 6 and 4 bits"
        )
    return key


def _row(target: Arch, instruction: object, key: Key, fa: Format, fb: Format) -> Row:
    kind, _, scale = key
    size = SIZES[key]
    way = f"kind::{kind}.block_scale.scale_vec::{size}"
    names = {
        "mma": f"mma.sync.aligned.m16n8k{KINDS[kind].k}.row.col.{way}.f32.{fa}.{fb}.f32.{scale}",
        "tcgen05": f"tcgen05.mma.cta_group::1.{way}",
    }
    if instruction is None:
        rows = [parse.row(name) for name in names.values()]
        found = next((r for r in rows if r.has(target)), rows[0])
    else:
        text = getattr(instruction, "mnemonic", instruction)
        if not isinstance(text, str):
            raise OptionError(
                f'instruction={instruction!r} is neither a mnemonic nor a family: pass "mma" or "tcgen05"'
            )
        found = parse.row(names.get(text, text))
        listed = (found.scale, found.chunks, size) if found.scale else (scale, int(size[0]), found.mnemonic[-2:])
        formats = (fa, fb) if found.a is None or found.b is None else (found.a.format, found.b.format)
        fits = found.executable and found.kind == kind and listed == (scale, int(size[0]), size)
        if not fits or formats != (fa, fb):
            raise OptionError(
                f"instruction={text!r} is not of these operands ({fa.name} x {fb.name}, kind {kind}, {scale} scales): "
                f'pass "mma", "tcgen05" or {names["mma"]!r}'
            )
    found.require(target)
    return found if found.shape else product(found)


def _plan(
    target: Arch, row: Row, formats: tuple[Format, Format], shape: tuple[int, ...], sizes: tuple[int, int],
    k_split: int | None, threads: int,
) -> Plan:  # fmt: skip
    fa, fb = formats
    step, chunks = sizes
    numerics = model(target.numerics, row.unit, fa, label=target.name, validated=target.validated)
    vector = params(numerics, fa, fb, FORMATS["f32"], step)
    *batch, m, n, k = shape
    part = min(k, k_split) if k_split else k
    engine = "chain" if m * n * part <= SMALL else _engine(numerics.kind, fa, fb)
    steps = -(-part // step) * (k // part) + -(-(k % part) // step) if part else 0
    copies = prod(batch) * (m * k + k * n + (m + n) * k * chunks // step)
    peak = prod(batch) * m * n * 4 * (3 if k_split else 2) + copies + OVERHEAD
    rows = scaled_engine.peak_bytes(m, n, k)
    panels = packed_bytes(Size((fa, fb, FORMATS["f32"]), (m, n, k), (m, n), threads, merged=False), 0)
    # which of the two engines runs depends on the exponents
    engine_bytes = {
        block_engine.NAME: block_engine.peak_bytes(m, n, k),
        lifted_engine.NAME: max(rows, panels),
        scaled_engine.NAME: rows,
    }
    peak += engine_bytes.get(engine, 0)
    return Plan(
        row.mnemonic, numerics, steps, shape, (fa.name, fb.name, "f32"), target.name, engine, threads, peak, k_split,
        every(k_split) if k_split else order_row("seq"), (*batch, m, n), row=row, params=vector,
    )  # fmt: skip


def _engine(kind: Kind, a: Format, b: Format) -> str:
    """The fastest engine that has the arithmetic, on this host."""
    if block_engine.serves(kind, a, b):
        return block_engine.NAME
    if kind != Kind.SCALED:
        return "chain"
    return scaled_engine.NAME if host_processor() is None else lifted_engine.NAME


@in_default_float_mode
def run(problem: ScaledProblem, out: Any, progress: Any) -> Any:
    """D of a checked product."""
    plan = problem.plan
    *_, k = plan.shape
    team = ThreadTeam(plan.threads, progress, prod(plan.shape))
    try:
        if not plan.k_split or k == 0:
            result = _chain(problem, problem.c, (0, k), team)
        else:
            cuts = [(s, min(k, s + plan.k_split)) for s in range(0, k, plan.k_split)]
            result = _chain(problem, None, cuts[0], team)
            with np.errstate(all="ignore"):
                for cut in cuts[1:]:
                    result = result + _chain(problem, None, cut, team)
                if problem.c is not None:
                    result = result + problem.c.view(np.float32)
            result.view(np.uint32)[np.isnan(result)] = 0x7FFFFFFF
        team.finish()
    finally:
        team.close()
    if out is None:
        return result
    out[...] = result
    return out


def _chain(
    problem: ScaledProblem, c: NDArray[np.uint32] | None, cut: tuple[int, int], team: ThreadTeam
) -> NDArray[np.float32]:
    """One chain an output between two k."""
    plan, s = problem.plan, problem.scales
    m, n, _ = plan.shape[-3:]
    (start, stop), block = cut, s.block
    blocks = slice(start // block, -(-stop // block))
    a, b = problem.a[..., start:stop], problem.b[..., start:stop, :]
    missing = -(blocks.stop - blocks.start) % problem.chunks  # blocks of the last step
    xs, ys = _padded(s.a[..., blocks], s.format, -1, missing), _padded(s.b[..., blocks, :], s.format, -2, missing)
    d = np.zeros((*problem.batch, m, n), np.uint32)
    if c is not None:
        d[...] = c
    if d.size == 0 or stop == start:
        return d.view(np.float32)
    scales = Scales(problem.chunks, s.format is ue4m3)
    if plan.engine == "chain":
        _outputs([a, b, d, xs, ys], d, _ALL, problem, scales, team)
        return d.view(np.float32)
    parts = [np.broadcast_to(v, (*problem.batch, *v.shape[-2:])) for v in (a, b, xs, ys)]
    for index in np.ndindex(*problem.batch):
        how: dict[str, Any] = {"scales": scales, "params": plan.params, "team": team}
        one = [v[index] for v in parts]
        if plan.engine == block_engine.NAME:
            block_engine.Product(*one, scale=s.format.name, **how).run(d[index])
        elif plan.engine == scaled_engine.NAME or not _lifted(problem, one, d[index], how):
            scaled_engine.Product(*one, formats=problem.formats, **how).run(d[index])
    return d.view(np.float32)


def _lifted(problem: ScaledProblem, one: list[NDArray[Any]], d: NDArray[np.uint32], how: dict[str, Any]) -> bool:
    """d = chain by the engine of fused sums, with its repairs; False where exponents leave its range."""
    product = lifted_engine.Product(*one, formats=problem.formats, params=how["params"], team=how["team"])
    if not product.serves:
        return False
    start = d.copy()
    for marked in product.run(d):
        d.reshape(-1)[marked] = start.reshape(-1)[marked]
        a, b, xs, ys = one
        _outputs([a, b, d, xs, ys], d, marked, problem, how["scales"], how["team"])
    return True


def _padded(codes: NDArray[np.uint8], fmt: Format, axis: int, count: int) -> NDArray[np.uint8]:
    """Scales with ones appended for blocks that only padding fills."""
    if not count:
        return codes
    shape = list(codes.shape)
    shape[axis] = count
    return np.concatenate([codes, np.full(shape, fmt.bias << fmt.mantissa, np.uint8)], axis)


def _outputs(
    arrays: list[NDArray[Any]], d: NDArray[np.uint32], chosen: NDArray[np.int64], problem: ScaledProblem,
    scales: Scales, team: ThreadTeam,
) -> None:  # fmt: skip
    """Outputs one at a time: those of `chosen`, or all."""
    m, n = d.shape[-2:]
    k = arrays[0].shape[-1]
    operands: Operands = flattened(arrays, d.shape[:-2])
    flat = d.reshape(-1)
    sizes = np.array([m, n, k, arrays[3].shape[-1]])
    count = chosen.size or d.size
    per = max(1, min(-(-count // team.threads), 20_000_000 // (CHAIN_COST * max(1, k))))
    shares = [(first, min(count, first + per)) for first in range(0, count, per)]
    fixed = (operands, flat, chosen, sizes, scales, problem.plan.params)
    team.run(scaled_outputs, fixed, shares, per * k if chosen.size == 0 else 0)
