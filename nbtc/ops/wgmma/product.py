"""wgmma.mma_async as a function of its operands: checks everything, then runs all warpgroups of a batch.

(PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Operation using wgmma.mma_async".)
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbtc.compiler.jit import call
from nbtc.compiler.pools.output_pool import empty
from nbtc.compiler.threads import parallel_for
from nbtc.fragments.sparse import places
from nbtc.isa.archs import Arch
from nbtc.isa.archs import arch as arch_row
from nbtc.isa.parse import immediate
from nbtc.isa.parse import immediates as immediates_of
from nbtc.isa.spec import Row
from nbtc.kernels.rows.rows import panels
from nbtc.kernels.sparse_indices import DENSE, HALVES, UNITS
from nbtc.numerics.models import BLOCK, FLOOR, FRACTION, KIND, OUT, SATURATE, Kind, changes, model, params
from nbtc.ops.wgmma import fused as warpgroup_fused
from nbtc.ops.wgmma import general as warpgroup
from nbtc.ops.wgmma import operands as op
from nbtc.ops.wgmma import words as warpgroup_words
from nbtc.ops.wgmma.gather import gatherers
from nbtc.ops.wgmma.known import MOST_GROUPS, Known, known, remember, signature

# argument -> its operand in a PTX line, and its default
LINE_NAMES = {
    "scale_d": ("scaleD", 1),
    "scale_a": ("scaleA", 1),
    "scale_b": ("scaleB", 1),
    "trans_a": ("transA", 0),
    "trans_b": ("transB", 0),
    "selector": ("selector", 0),
}
_COST = 0.2  # nanoseconds a multiply-add
_NO_WORDS = op.OperandImages(np.zeros(1, np.uint32))
_NO_INDEX = np.zeros(1, np.int64)


class Immediates(NamedTuple):
    """Immediate operands of an instruction."""

    scale_a: int = 1
    scale_b: int = 1
    trans_a: int = 0
    trans_b: int = 0
    selector: int = 0


def execute(
    row: Row,
    d: ArrayLike,
    a: Any,
    b_desc: Any,
    smem: ArrayLike,
    *,
    scale_d: Any = 1,
    meta: ArrayLike | None = None,
    arch: object = "sm_90",
    threads: int | None = None,
    **given: int,
) -> NDArray[np.uint32]:
    """`nbtc.ptx.wgmma` for a row of the instruction table: everything is checked before anything runs.

    given: `Immediates` that are not their defaults.
    """
    form, of = op.form(row), None if meta is not None else signature(row, d, a, b_desc, smem, scale_d, arch, given)
    found = known(of)
    if found is not None:
        out = empty(found.shape, np.uint32)
        arrays: Any = d, a, smem, out
        _run(form, found.of(*arrays), found.kernel, threads)
        return out
    target, immediates = arch_row(arch), Immediates(**given)
    scale_a, scale_b, trans_a, trans_b, selector = immediates
    row.require(target)
    registers = op.is_registers(a)
    op.check_immediates(row, {"a": scale_a, "b": scale_b}, {"a": trans_a, "b": trans_b}, registers)
    keep, notes = op.predicate(scale_d), op.metadata(row, meta, selector)
    memory = op.images("smem", smem, np.uint8, (-1,))
    image = op.images("d", d, np.uint32, (op.THREADS, form.d.registers))
    words = op.images("a", a, np.uint32, (op.THREADS, 4)) if registers else _NO_WORDS
    size = memory.values.shape[-1]
    a_table = op.NO_TABLES if registers else op.tables(row, "A", op.descriptor_words("a", a), trans_a, size)
    b_table = op.tables(row, "B", op.descriptor_words("b_desc", b_desc), trans_b, size)
    batch = op.batch_of(
        {"d": image.lead, "a": words.lead or a_table.which.shape, "b_desc": b_table.which.shape, "smem": memory.lead,
         "scale_d": keep.shape, "meta": notes.lead}
    )  # fmt: skip
    out = empty((*batch, op.THREADS, form.d.registers), np.uint32)
    if not out.size:
        return out
    places_of = _places(row, selector) if row.sparse else (_NO_INDEX, _NO_INDEX)
    task = warpgroup.WarpgroupTask(
        _geometry(row, immediates, registers, size), _params(row, target, changes()),
        warpgroup.Sources(
            memory.flat, memory.over(batch), a_table.units, op.spread_index(a_table.which, batch), words.flat,
            words.over(batch), b_table.units, op.spread_index(b_table.which, batch),
        ),
        warpgroup.Metadata(notes.flat, notes.over(batch), *places_of),
        warpgroup.Accumulators(
            image.flat, image.over(batch), op.spread_index(keep, batch).astype(np.uint8), out.reshape(-1)
        ),
    )  # fmt: skip
    kernel = _kernel(form, task)
    _run(form, task, kernel, threads)
    if of is not None and task.accumulators.keep.size <= MOST_GROUPS:
        remember(of, Known.from_first(task, out.shape, kernel))
    return out


def line_operands(mnemonic: object, given: dict[str, Any]) -> dict[str, Any]:
    """The immediate operands of a call: those of a whole PTX line, else the arguments, else their defaults."""
    if not immediates_of(mnemonic):
        return {name: LINE_NAMES[name][1] if x is None else x for name, x in given.items()}
    return {name: immediate(mnemonic, LINE_NAMES[name][0], x, LINE_NAMES[name][1], name) for name, x in given.items()}


def _run(
    form: op.WgmmaForm, task: warpgroup.WarpgroupTask, kernel: tuple[Any, Any] | None, threads: int | None
) -> None:
    """All warpgroups: the fused kernel where it serves, then what it left, then what Inf and NaN left of that."""
    columns, floor, count = form.b.cols, int(task.params[FLOOR]), task.accumulators.keep.size
    cost = int(_COST * form.a.rows * form.stored * columns)
    needed = (np.ones if kernel is None else np.empty)(count, np.uint8)
    if kernel is not None:
        run, steps = kernel
        parallel_for(
            count, cost // 3, threads, lambda i, j: call(run, warpgroup.WarpgroupTask, i, j, task, steps, floor, needed)
        )
    if not np.count_nonzero(needed):
        return
    groups = np.flatnonzero(needed)
    marks = np.empty(count * warpgroup.M * warpgroup.padded(columns), np.uint8)  # touched only where needed
    left, types = warpgroup.Left(marks, np.zeros(count, np.uint8)), _panel(form)
    parallel_for(groups.size, cost, threads, lambda i, j: warpgroup.run(groups[i:j], task, *types, left))
    groups = np.flatnonzero(left.again)
    if groups.size:
        parallel_for(groups.size, 10 * cost, threads, lambda i, j: warpgroup.repair(groups[i:j], task, left))


def _kernel(form: op.WgmmaForm, task: warpgroup.WarpgroupTask) -> tuple[Any, Any] | None:
    """The loop over warpgroups and what it does with each, of the vector code for this form on this machine, if any."""
    p = task.params
    a, b, f16_acc = form.a.format, form.b.format, int(form.d.format.bits == 16)
    if task.geometry.sparse != DENSE:
        return None
    if warpgroup_fused.serves(p, form.stored):
        numbers = (int(p[i]) for i in (BLOCK, FRACTION, OUT))
        return warpgroup_fused.run, warpgroup_fused.steps(a, b, f16_acc, *numbers, gatherers(task.geometry, a.bits))
    if warpgroup_words.serves(p):
        signs = (warpgroup_words.BITS,) * 2 if p[KIND] == Kind.BITS else (int(a.signed), int(b.signed))
        return warpgroup_words.run, warpgroup_words.steps(*signs, int(p[SATURATE]), gatherers(task.geometry, 32))
    return None


@lru_cache(maxsize=256)
def _params(row: Row, target: Arch, changed: int) -> NDArray[np.int64]:
    """The numerics of a form; changed: the state of their table."""
    form = op.form(row)
    a, b = form.a.format, form.b.format
    numerics = model(target.numerics, "wgmma", a, label=target.name, validated=target.validated)
    return params(numerics, a, b, form.d.format, form.stored, saturate=row.saturate, op=row.op or "and")


def _panel(form: op.WgmmaForm) -> tuple[NDArray[Any], NDArray[Any]]:
    """Empty arrays of the types in which operands are decoded."""
    storage = panels(form.a.format, form.b.format)
    return np.empty(0, storage.value), np.empty(0, storage.exponent)


@lru_cache(maxsize=256)
def _geometry(row: Row, how: Immediates, registers: bool, size: int) -> warpgroup.WarpgroupGeometry:
    form = op.form(row)
    _, n, k = form.shape
    fmt = form.a.format
    bits, k = (32, k // 32) if fmt.kind == "bit" else (fmt.bits, k)  # bits go 32 at a time
    flip_a, flip_b = (1 << (bits - 1) if s == -1 else 0 for s in signs(row, (how.scale_a, how.scale_b)))
    sparse = (HALVES if bits == 32 else UNITS) if row.sparse else DENSE
    return warpgroup.WarpgroupGeometry(
        n, k, k // 2 if row.sparse else k, bits, int(how.trans_a), int(how.trans_b), int(form.d.format.bits == 16),
        flip_a, flip_b, sparse, int(registers), size, panels(fmt, form.b.format).zero,
    )  # fmt: skip


def signs(row: Row, scales: tuple[int, int]) -> tuple[int, int]:
    """The signs that the elements of A and B are given.

    An H200 negates what the metadata selected.  Metadata of sparse tf32 can join halves of two elements of B to one, so
    there the sign of B goes to A: a product knows but one.

    >>> from nbtc.isa.parse import row
    >>> signs(row("wgmma.mma_async.sp.sync.aligned.m64n8k16.f32.tf32.tf32"), (-1, -1))
    (1, 1)
    """
    a, b = scales
    joins = row.sparse and op.form(row).b.format.bits == 32
    return (a * b, 1) if joins else (a, b)


def _places(row: Row, selector: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Thread and lowest bit of the metadata nibble of (row, chunk), both flat."""
    lane, shift = places(row, selector)
    return np.array(lane).reshape(-1), np.array(shift).reshape(-1)
