"""mma.sync, mma.sp and wmma.mma on register images: checks first, then one compiled kernel over all warps.

(PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions".)  `prepare` joins an instruction row, an architecture
and its numerics model into a `Plan`, once; `execute` only checks the operands and runs it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.pools import output_pool
from nbtc.compiler.threads import parallel_for, shares, thread_count
from nbtc.errors import MetadataError, OptionError, UnsupportedInstructionError, shown, whole_number
from nbtc.formats.arrays import as_flag
from nbtc.fragments import sparse
from nbtc.fragments.pack import image
from nbtc.fragments.placed import check_layout, placed
from nbtc.isa.archs import Arch
from nbtc.isa.archs import arch as arch_row
from nbtc.isa.spec import Operand, Row
from nbtc.kernels.sparse_indices import DENSE, HALVES, PAIRS, UNITS
from nbtc.kernels.warps.warp import WarpLoop, loop
from nbtc.numerics.fused import check_readable
from nbtc.numerics.models import FLOOR, FRACTION, changes, model, params
from nbtc.ops.images import Words, batch, flat
from nbtc.ops.mma import general as kernel
from nbtc.ops.mma.one_warp import OneWarp
from nbtc.ops.mma.scaled import refuse_unscaled
from nbtc.ops.mma.vector_code import accumulator, present, tiles, vector_code

FAMILIES = ("mma", "mma.sp", "wmma.mma")
VECTOR_COST = 200  # nanoseconds of a warp in vector code
CHUNK = 512  # warps whose fragments are copied at a time: more leave the cache, fewer are mostly calls
_NO_WORDS = np.zeros(1, np.uint32)


@dataclass(frozen=True, eq=False)
class Prepared:
    """An instruction on an architecture, ready to run.

    places, geometry: the tables of `general.run`.  params: of the numerics model.  word: dtype of the multiplicands'
    scratch.  cost: nanoseconds of a warp, roughly.  shape: its vector code, or None.  skipped: words of metadata before
    those of the selector.
    """

    row: Row
    registers: tuple[int, int, int, int]
    places: NDArray[np.int32]
    geometry: NDArray[np.int64]
    params: NDArray[np.int64]
    word: np.dtype[Any]
    scratch: tuple[int, int, int]
    cost: int
    shape: Any
    skipped: int = 0

    @cached_property
    def operands(self) -> tuple[Operand, Operand, Operand]:
        """A, B and C."""
        row = self.row
        return present(row.a), present(row.b), present(row.c)

    @cached_property
    def one(self) -> OneWarp | None:
        """How a single warp is done in vector code, for dense mma forms."""
        if self.row.family != "mma" or self.vector is None:
            return None
        return OneWarp(self.registers, self.vector, self.numbers)

    @cached_property
    def tiles(self) -> tuple[tuple[slice, slice, slice], ...]:
        """The m16n8 products of a wmma form with vector code: registers of A, B and C."""
        return tiles(self.row, self.shape.registers) if self.shape is not None else ()

    @cached_property
    def numbers(self) -> tuple[int, int]:
        """F and the floor of the vector code's alignment."""
        return int(self.params[FRACTION]), int(self.params[FLOOR])

    @cached_property
    def vector(self) -> WarpLoop | None:
        """The compiled loop over warps, or None."""
        return None if self.shape is None else loop(self.shape)


def operand_places(operand: Operand, by_column: bool = False) -> NDArray[np.int32]:
    """32 * word + shift of every matrix element in a warp's image, row by row (or column by column), products apart.

    Where a fragment holds copies of an element, the first one counts, as in the hardware's own loads.
    """
    if operand.layout is None:
        raise UnsupportedInstructionError(
            f"a {operand.rows}x{operand.cols} operand of {operand.format.name} without a place in registers cannot be "
            "read; "
            "see nbtc.wgmma for operands in shared memory"
        )
    coords = operand.coords()
    register, shift = operand.slots()
    row, col = coords[..., 0], coords[..., 1]
    position = col * operand.rows + row if by_column else row * operand.cols + col
    position = position + (operand.layout.products() * operand.rows * operand.cols)[:, None]
    word = np.arange(operand.lanes)[:, None] * operand.registers + register[None, :]
    place = 32 * word + shift[None, :]
    out = np.zeros(operand.products * operand.rows * operand.cols, np.int32)
    out[position.T.ravel()[::-1]] = place.T.ravel()[::-1]
    return out


def executable(row: Row, arch: object, common: bool = False) -> tuple[Row, Arch]:
    """The row as an architecture has it, or an error that says why it can't be run."""
    target = arch_row(arch)
    if row.family not in FAMILIES:
        raise UnsupportedInstructionError(
            f"{row.mnemonic} is not a register-to-register matrix product; call a form of {', '.join(FAMILIES)} "
            "such as mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
        )
    if not row.executable:
        raise UnsupportedInstructionError(
            f"{row.mnemonic}: no recorded arithmetic; the form parses and lists, but nobody has published what it "
            "computes. "
            "Nearest: mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32"
        )
    if row.scale:
        raise refuse_unscaled(row)
    row.require(target)
    return row if common else row.on(target), target


def prepare(row: Row, arch: object, selector: int = 0, common: bool = False) -> Prepared:
    """The plan of a row on an architecture (cached).

    common: operands are laid out as on sm_80 and later, whatever the architecture (fragments of the C++ functions).
    """
    question = row, arch, selector, common, changes()
    try:
        return _prepared(*question)
    except TypeError:  # something unhashable, or a type error of our own: the same without a memory
        return _prepared.__wrapped__(*question)


@lru_cache(maxsize=1024, typed=True)
def _prepared(row: Row, arch: object, selector: int, common: bool, changed: int) -> Prepared:
    here, target = executable(row, arch, common)
    if row.sparse:
        sparse.check_selector(row, selector)
    elif whole_number(selector) != 0:
        raise OptionError(
            f"selector={shown(selector)} given, but {row.mnemonic} is dense; only mma.sp forms take one: leave it out"
        )
    return _build(here, target, selector)


def _build(row: Row, target: Arch, selector: int) -> Prepared:
    a, b, c, d = (present(o) for o in (row.a, row.b, row.c, row.d))
    check_readable(a.format, b.format)
    (m, n), k, stored = (d.rows, d.cols), b.rows, a.cols
    numerics = model(
        target.numerics, row.unit, a.format, label=target.name, validated=target.validated, sparse=row.sparse
    )
    acc = accumulator(row)
    how: dict[str, Any] = {"saturate": row.saturate, "rounding": row.rounding, "op": row.op or "xor", "c": c.format}
    vector = params(numerics, a.format, b.format, acc, stored, **how)
    parts = [operand_places(a), operand_places(b, by_column=True), operand_places(c), operand_places(d)]
    if row.sparse:
        lane, shift = sparse.places(row, selector)
        parts.append((32 * lane + shift).astype(np.int32).ravel())
    starts = np.cumsum([0] + [len(p) for p in parts])
    geometry = np.zeros(kernel.GEOMETRY, np.int64)
    geometry[[kernel.GROUPS, kernel.M, kernel.N, kernel.K, kernel.STORED]] = a.products, m, n, k, stored
    geometry[[kernel.WIDEN_C, kernel.NARROW_D]] = acc != c.format, acc != d.format
    geometry[kernel.SPARSE] = _sparsity(a.format.bits) if row.sparse else DENSE
    geometry[[kernel.A_BITS, kernel.B_BITS, kernel.C_BITS, kernel.D_BITS]] = [o.format.bits for o in (a, b, c, d)]
    geometry[kernel.D_WORDS] = d.registers * d.lanes
    geometry[[kernel.AT_B, kernel.AT_C, kernel.AT_D]] = starts[1:4]
    geometry[kernel.AT_E] = starts[4]
    word = np.dtype(np.uint64 if a.format.bits == 64 else np.uint32)
    sizes = (a.products * m * stored, a.products * n * k, n * stored if row.sparse else 1)
    cost = a.products * m * n * stored * 8
    registers = (a.registers, b.registers, c.registers, d.registers)
    shape = vector_code(row, numerics, vector)
    skipped = selector * (present(row.meta).cols // 4) if row.sparse else 0
    return Prepared(row, registers, np.concatenate(parts), geometry, vector, word, sizes, cost, shape, skipped)


def _sparsity(bits: int) -> int:
    """How the kernel reads the indices of a form: of halves of tf32, of pairs of 4-bit elements, or of elements."""
    return {32: HALVES, 4: PAIRS}.get(bits, UNITS)


def lone(row: Row, a: Any, b: Any, c: Any, arch: object, threads: int | None) -> Words | None:
    """D of one warp's images without another look at what is known of them; None where `execute` has to do it."""
    if type(a) is not np.ndarray or not (threads is None or (type(threads) is int and threads > 0)):
        return None
    try:
        one = _lone(row, arch, changes())
    except TypeError:  # something unhashable, or a type error of our own, which `execute` raises too
        return None
    return None if one is None else one.run(a, b, c)


@lru_cache(maxsize=1024, typed=True)
def _lone(row: Row, arch: object, changed: int) -> OneWarp | None:
    return _prepared(row, arch, 0, False, changed).one if row.family == "mma" and row.executable else None


def execute(
    row: Row,
    a: Any,
    b: Any,
    c: Any,
    *,
    meta: Any = None,
    selector: int = 0,
    arch: object = "sm_90",
    strict: bool = False,
    threads: int | None = None,
) -> Words:
    """D of one instruction for a batch of warps: uint32 images (..., 32, registers) in and out.

    Leading axes broadcast.  meta: uint32 (..., 32) metadata of an mma.sp form, `selector` its immediate; strict=True
    refuses metadata that the ISA leaves undefined.  threads: at most this many (None: Numba's number).  The result does
    not depend on it.  Raises ShapeError, FormatError, MetadataError, OptionError or UnsupportedInstructionError.
    """
    if meta is None and type(selector) is int and not selector:
        d = lone(row, a, b, c, arch, threads)
        if d is not None:
            return d
    plan = prepare(row, arch, selector)
    if row.varies:
        for operand, words, name in ((row.a, a, "a"), (row.b, b, "b"), (row.c, c, "c")):
            check_layout(words, present(operand), arch_row(arch), name)
        return placed(perform(plan, a, b, c, meta, selector, strict, threads), present(row.d), arch)
    return perform(plan, a, b, c, meta, selector, strict, threads)


def perform(
    plan: Prepared, a: Any, b: Any, c: Any, meta: Any = None, selector: int = 0, strict: bool = False,
    threads: int | None = None,
) -> Words:  # fmt: skip
    """`execute` for a plan."""
    row = plan.row
    name, rd = row.mnemonic, plan.registers[3]
    a, b, c = (image(o, x, n) for o, x, n in zip(plan.operands, (a, b, c), "abc", strict=True))
    operands = [("a", a, 2), ("b", b, 2), ("c", c, 2)]
    if row.sparse:
        if meta is None:
            raise MetadataError(
                f"{name} needs metadata: pass meta=, uint32 (..., 32), as nbtc.sparse.compress returns it"
            )
        meta = sparse.metadata_words(row, meta)
        if as_flag(strict, "strict"):
            sparse.check_legal(row, meta, selector)
        operands.append(("meta", meta, 1))
    elif meta is not None:
        raise MetadataError(
            f"{name} is dense and takes no metadata; the sparse form is spelled mma.sp.sync...: leave meta out"
        )
    if threads is not None:
        thread_count(threads)
    lead = batch(operands, name)
    size = 32 * rd * math.prod(lead)
    out = (np.empty if 4 * size < output_pool.LEAST else output_pool.empty)((*lead, 32, rd), np.uint32)
    if size:
        _run(plan, operands, lead, out, threads)
    return out


def _run(
    plan: Prepared, operands: list[tuple[str, Words, int]], lead: tuple[int, ...], out: Words, threads: int | None
) -> None:
    flats = [flat(x, own, lead) for _, x, own in operands]
    result = out.reshape(-1)
    count = out.size // (32 * out.shape[-1])
    if plan.shape is None:
        parallel_for(count, plan.cost, threads, lambda first, last: _general(plan, flats, result, first, last))
        return
    needs_fallback = np.empty(count, np.uint8)

    def work(first: int, last: int) -> None:
        step = CHUNK if plan.tiles else count  # copies stay in the cache
        if sum(_vectors(plan, flats, result, n, min(n + step, last), needs_fallback) for n in range(first, last, step)):
            edges = np.flatnonzero(np.diff(needs_fallback[first:last], prepend=0, append=0)) + first
            for stretch in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
                for start, stop in shares(*stretch, plan.cost):
                    _general(plan, flats, result, start, stop)

    parallel_for(count, VECTOR_COST * max(1, len(plan.tiles)), threads, work)


def _vectors(
    plan: Prepared,
    flats: list[tuple[Words, int]],
    result: Words,
    first: int,
    last: int,
    needs_fallback: NDArray[np.uint8],
) -> bool:
    """Warps first..last by vector code; whether any result is not to be used."""
    vector = plan.vector
    if vector is None:
        return True
    if not plan.tiles:
        words, strides = [w for w, _ in flats], [s for _, s in flats]
        words[3:] = [w[plan.skipped :] for w in words[3:]]
        size = 32 * plan.registers[3]
        return bool(vector((*words, result), (*strides, size), first, last, plan.numbers, needs_fallback))
    from nbtc.ops.mma.tiles import run as run_tiles

    counts = plan.registers
    images = [
        w.reshape(-1, 32, n)[first:last] if s else w.reshape(1, 32, n) for (w, s), n in zip(flats, counts, strict=False)
    ]
    out = result.reshape(-1, 32, counts[3])[first:last]
    if plan.operands[1].cols == 32:
        images[:2] = images[1::-1]
    return run_tiles(vector, plan.numbers, plan.tiles, images, out, needs_fallback[first:last])


def _general(plan: Prepared, flats: list[tuple[Words, int]], result: Words, first: int, last: int) -> None:
    """Warps first..last by the general kernel."""
    words = [w for w, _ in flats] + [_NO_WORDS] * (4 - len(flats))
    strides = np.array([s for _, s in flats] + [0] * (4 - len(flats)), np.int64)
    a, b, c, meta = words
    scratch = kernel.ElementBuffers(*(np.empty(n, plan.word) for n in plan.scratch))
    images = kernel.Images(a, b, c, meta, result)
    kernel.run(images, strides, first, last, plan.places, plan.geometry, plan.params, scratch)
