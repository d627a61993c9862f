"""Products with block scales: which instruction they are chains of, checked operands, and what runs them.

A has a scale for every row and block of 32 or 16 elements of K, B one for every block and column.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.jit import in_default_float_mode
from nbtc.compiler.threads import ThreadTeam, thread_count
from nbtc.errors import FormatError, OptionError, ShapeError, UnsupportedInstructionError, shown
from nbtc.formats.arrays import as_array, as_format, to_bits
from nbtc.formats.table import FORMATS, Format, ue4m3
from nbtc.gemm.cost import Size
from nbtc.gemm.engines.engines import engines_for, named
from nbtc.gemm.engines.scaled_engines import CHAIN, ENGINES, BlockScales, ScaledProblem
from nbtc.gemm.item import Cut
from nbtc.gemm.orders import every
from nbtc.gemm.orders import order as order_row
from nbtc.gemm.out import check_out, destination
from nbtc.gemm.planning import SMALL, ProductOptions, accumulator_bits, batch_axes, check_part, depth, operand_format
from nbtc.gemm.problem import Plan, matrix
from nbtc.isa import parse
from nbtc.isa.archs import Arch
from nbtc.isa.archs import arch as arch_row
from nbtc.isa.spec import Row
from nbtc.isa.tcgen05 import KINDS, product
from nbtc.numerics.models import model, params

E8, E4 = "ue8m0", "ue4m3"
Key = tuple[str, int, str]  # kind, elements of a block, format of the scales
SIZES: dict[Key, str] = {
    ("mxf8f6f4", 32, E8): "1X", ("mxf4", 32, E8): "2X",
    ("mxf4nvf4", 32, E8): "2X", ("mxf4nvf4", 16, E8): "4X", ("mxf4nvf4", 16, E4): "4X",
}  # fmt: skip


def refuse(**options: Any) -> None:
    """Raise OptionError for options that block-scaled products lack."""
    for name, value in options.items():
        if value not in (None, False):
            raise OptionError(
                f"{name}={value!r} with block scales: these products are f32 sums in ascending k; drop {name}= "
                "(k_split= cuts K in parts)"
            )


def prepare(a: Any, b: Any, c: Any, options: ProductOptions) -> ScaledProblem:
    """Check everything and decide everything; computes nothing."""
    o = options
    target = arch_row(o.arch)
    x, y = as_array(a), as_array(b)
    fa, pa = operand_format(x.dtype, x.shape, o.a_format, "a")
    fb, pb = operand_format(y.dtype, y.shape, o.b_format, "b")
    m, n, k = x.shape[-2], y.shape[-1], depth(x.shape, y.shape, fa, fb, (pa, pb))
    if o.acc is not None and as_format(o.acc).name != "f32":
        raise OptionError(f"acc={o.acc!r} with block scales: these products accumulate in f32; drop acc=")
    scales = _scales(o.scale_a, o.scale_b, m, n, k)
    key = _key(o.kind, fa, fb, scales)
    row = _row(target, o.instruction, key, fa, fb)
    step, chunks = KINDS[key[0]].k, int(SIZES[key][0])
    check_part(o.k_split)
    if o.k_split is not None and o.k_split % step:
        raise OptionError(f"k_split={o.k_split} with block scales: parts are whole steps of {step}; pass a multiple")
    cv = None if c is None else accumulator_bits(as_array(c), FORMATS["f32"])
    operands = batch_axes(x.shape, y.shape, None if cv is None else cv.shape, m, n)
    try:
        batch = np.broadcast_shapes(operands, scales.a.shape[:-2], scales.b.shape[:-2])
    except ValueError:
        raise ShapeError(
            f"batch axes {scales.a.shape[:-2]} of scale_a and {scales.b.shape[:-2]} of scale_b do not broadcast with "
            f"{operands}, those of a, b and c: make them equal, or 1"
        ) from None
    whole = Size((fa, fb, FORMATS["f32"]), (*batch, m, n, k), (*batch, m, n), thread_count(o.threads), False)
    plan = _plan(target, row, whole, step, o.k_split)
    if o.out is not None:
        check_out(destination(o.out), (*batch, m, n), FORMATS["f32"])
    ax, bx = (
        np.asarray(to_bits(v, f) if not p else matrix(v, f, p, axis, k), np.uint8)
        for v, f, p, axis in ((x, fa, pa, -1), (y, fb, pb, -2))
    )
    return ScaledProblem(ax, bx, cv, (fa, fb), scales, chunks, batch, plan)


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
    key = (default if kind is None else kind, scales.block, scales.format.name)
    if not isinstance(kind, str | None) or key not in SIZES or not KINDS[key[0]].takes(fa.name, fb.name, "f32"):
        legal = "; ".join(f"{k}: blocks of {n} with {s} scales" for k, n, s in SIZES)
        asked = "" if kind is None else f" as kind {shown(kind)}"
        raise UnsupportedInstructionError(
            f"no instruction multiplies {fa.name} x {fb.name} in blocks of {scales.block} with {scales.format.name} "
            f"scales{asked}: {legal}; mxf4 and mxf4nvf4 take e2m1 alone, mxf8f6f4 formats "
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


def _plan(target: Arch, row: Row, size: Size, step: int, k_split: int | None) -> Plan:
    fa, fb, acc = size.formats
    numerics = model(target.numerics, row.unit, fa, label=target.name, validated=target.validated)
    vector = params(numerics, fa, fb, acc, step)
    *_, m, n, k = size.shape
    order = every(k_split) if k_split else order_row("seq")
    small = m * n * (min(k, k_split) if k_split else k) <= SMALL
    engine = CHAIN if small else engines_for(vector, ENGINES)[0]
    parts = prod(size.block) * acc.dtype.itemsize if k_split else 0
    return Plan(
        row.mnemonic, numerics, order.steps(k, step), size.shape, (fa.name, fb.name, acc.name), target.name,
        engine.name, size.threads, engine.peak_bytes(size) + parts, k_split, order, size.block, rate=engine.rate,
        row=row, params=vector,
    )  # fmt: skip


@in_default_float_mode
def run(problem: ScaledProblem, out: Any, progress: Any) -> Any:
    """D of a checked product."""
    plan = problem.plan
    *_, k = plan.shape
    macs = prod(plan.shape)
    team = ThreadTeam(plan.threads if macs > named(plan.engine, ENGINES).worth else 1, progress, macs)
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


def _chain(problem: ScaledProblem, c: NDArray[np.uint32] | None, cut: Cut, team: ThreadTeam) -> NDArray[np.float32]:
    """One chain an output between two k."""
    d = np.zeros(problem.plan.shape[:-1], np.uint32)
    if d.size and cut[1] > cut[0]:
        named(problem.plan.engine, ENGINES).run(problem, c, d, cut, team)
    elif c is not None:
        d[...] = c
    return d.view(np.float32)
