"""wgmma.mma_async as a function of its operands: checks everything, then runs all warpgroups of a batch.

(PTX ISA, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Operation using wgmma.mma_async".)
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbtc.errors import (
    BoundsError,
    DescriptorError,
    FormatError,
    MetadataError,
    OptionError,
    ShapeError,
    UnsupportedInstructionError,
)
from nbtc.fragments.smem import UNIT, Descriptor
from nbtc.isa.archs import Arch
from nbtc.isa.archs import arch as arch_row
from nbtc.numerics.models import model, params
from nbtc.numerics.tile import panels
from nbtc.ops import warpgroup

SERIAL = 8  # warpgroups below which threads cost more than they bring


def wgmma(
    mnemonic: str,
    d: ArrayLike,
    a: Any,
    b_desc: Any,
    smem: ArrayLike,
    *,
    scale_d: Any = 1,
    scale_a: int = 1,
    scale_b: int = 1,
    trans_a: int = 0,
    trans_b: int = 0,
    meta: ArrayLike | None = None,
    selector: int = 0,
    arch: object = "sm_90",
    threads: int | None = None,
) -> NDArray[np.uint32]:
    """D = A * B + D of a warpgroup, or of a batch of independent ones, as `wgmma.mma_async` computes it.

    d: uint32 (..., 128, registers).  a: a uint64 descriptor (scalar or (...,), or a `Descriptor`), or uint32 registers
    (..., 128, 4).  b_desc: a descriptor.  smem: uint8 (..., bytes).  Leading axes broadcast.  scale_d: 0 drops D (it is
    not read), also one value a warpgroup.  scale_a, scale_b: 1 or -1, floating types.  trans_a, trans_b: 1 for
    MN-major, 16-bit types in shared memory.  meta: uint32 (..., 128) and selector: sparse forms.  threads: how many to
    use at most.
    Returns a new uint32 array; raises subclasses of ValueError and TypeError naming the rule.

    >>> import numpy as np
    >>> from nbtc.wgmma import tile_to_smem
    >>> a, da = tile_to_smem(np.eye(64, 16, dtype=np.float16), "f16")
    >>> b, db = tile_to_smem(np.ones((8, 16), np.float16), "f16")
    >>> smem = np.concatenate([a, b])
    >>> zero = np.zeros((128, 4), np.uint32)
    >>> d = wgmma("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", zero, da, db.encode() + (a.size >> 4), smem)
    >>> d.view(np.float32)[0].tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    from nbtc.isa.parse import row

    return execute(
        row(mnemonic), d, a, b_desc, smem, scale_d=scale_d, scale_a=scale_a, scale_b=scale_b, trans_a=trans_a,
        trans_b=trans_b, meta=meta, selector=selector, arch=arch, threads=threads,
    )  # fmt: skip


def execute(
    row: Any,
    d: ArrayLike,
    a: Any,
    b_desc: Any,
    smem: ArrayLike,
    *,
    scale_d: Any = 1,
    scale_a: int = 1,
    scale_b: int = 1,
    trans_a: int = 0,
    trans_b: int = 0,
    meta: ArrayLike | None = None,
    selector: int = 0,
    arch: object = "sm_90",
    threads: int | None = None,
) -> NDArray[np.uint32]:
    """`wgmma` for a row of the instruction table."""
    target = _target(row, arch)
    _immediates(row, {"a": scale_a, "b": scale_b}, {"a": trans_a, "b": trans_b}, is_registers(a))
    memory = _uint("smem", smem, np.uint8, (-1,))
    image = _uint("d", d, np.uint32, (warpgroup.THREADS, _registers(row)))
    words = _uint("a", a, np.uint32, (warpgroup.THREADS, 4)) if is_registers(a) else None
    a_desc = None if words is not None else descriptor_words("a", a)
    b_words = descriptor_words("b_desc", b_desc)
    keep = _flags(scale_d)
    notes = _metadata(row, meta, selector)
    batch = _batch(
        {"d": image.shape[:-2], "a": (words.shape[:-2] if words is not None else np.shape(a_desc)), "b_desc": b_words.shape,
         "smem": memory.shape[:-1], "scale_d": keep.shape, "meta": notes.shape[:-1]}
    )  # fmt: skip
    out = np.empty((*batch, warpgroup.THREADS, _registers(row)), np.uint32)
    if not out.size:
        return out
    m, n, k = row.shape
    stored = k // 2 if row.sparse else k
    size = memory.shape[-1]
    a_units, a_which = (
        (_NO_UNITS, np.array(0)) if a_desc is None else _units(row, "A", a_desc, m, stored, trans_a, size)
    )
    b_units, b_which = _units(row, "B", b_words, n, k, trans_b, size)
    geometry = _geometry(row, scale_a, scale_b, trans_a, trans_b, words is not None, size)
    acc = row.d.format
    numbers = model(target.numerics, "wgmma", row.a.format, label=target.name, validated=target.validated)
    vector = params(numbers, row.a.format, row.b.format, acc, stored, saturate=row.saturate, op=row.op or "and")
    storage = panels(row.a.format, row.b.format)
    geometry[warpgroup.ZERO] = storage.zero
    panel = np.empty(0, storage.value), np.empty(0, storage.exponent)
    lanes, shifts = metadata_places(row, selector) if row.sparse else (_NO_INDEX, _NO_INDEX)

    many = int(np.prod(batch, dtype=np.int64))
    again = np.zeros(many, np.uint8)
    inputs = (
        geometry, vector, *panel, memory.reshape(-1), _spread(memory.shape[:-1], batch), a_units.reshape(-1),
        _index(a_which, batch), _NO_WORDS if words is None else words.reshape(-1),
        _NO_INDEX if words is None else _spread(words.shape[:-2], batch), b_units.reshape(-1), _index(b_which, batch),
        notes.reshape(-1), _spread(notes.shape[:-1], batch), lanes, shifts, image.reshape(-1),
        _spread(image.shape[:-2], batch), _index(keep, batch).astype(np.uint8), out.reshape(-1),
    )  # fmt: skip
    in_threads(lambda g0, g1: warpgroup.run(g0, g1, *inputs, again), many, threads)
    left = np.flatnonzero(again)
    if left.size:
        in_threads(lambda i, j: warpgroup.repair(left[i:j], *inputs), left.size, threads)
    return out


_NO_UNITS = np.zeros((1, 1), np.int32)
_NO_WORDS = np.zeros(1, np.uint32)
_NO_INDEX = np.zeros(1, np.int64)


def _registers(row: Any) -> int:
    return int(row.d.registers)


def _target(row: Any, arch: object) -> Arch:
    target = arch_row(arch)
    if row.unit != "wgmma":
        raise UnsupportedInstructionError(
            f"{row.mnemonic} is no wgmma form: pass one such as wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16"
        )
    row.require(target)
    return target


def is_registers(a: Any) -> bool:
    """True when operand a is a register image and no descriptor."""
    return isinstance(a, np.ndarray) and a.dtype == np.uint32 and a.ndim >= 2


def _immediates(row: Any, scales: dict[str, Any], trans: dict[str, Any], registers: bool) -> None:
    fmt = row.a.format.name
    for side, value in scales.items():
        name = f"scale_{side}"
        if isinstance(value, bool) or value not in (1, -1):
            raise OptionError(f"{name}={value!r}: imm-scale-{side} of wgmma is 1 or -1; nearest is {name}=1")
        if value == -1 and side not in row.scales:
            raise OptionError(f"{name}=-1: {fmt} forms have no imm-scale operands, floating types do: leave {name}=1")
    for side, value in trans.items():
        name = f"trans_{side}"
        if value not in (0, 1):
            raise OptionError(f"{name}={value!r}: imm-trans-{side} is 0 (K-major) or 1 (MN-major); try {name}=0")
        if value and side not in row.trans:
            raise OptionError(
                f"{name}=1: {fmt} operands are K-major only, imm-trans exists for f16 and bf16: leave {name}=0 and write "
                'the tile with tile_to_smem(..., major="k")'
            )
    if trans["a"] and registers:
        raise OptionError(
            "trans_a=1 needs A in shared memory, not in registers (their layout is fixed): leave trans_a=0 or pass a "
            "descriptor"
        )


def _uint(name: str, x: Any, dtype: Any, tail: tuple[int, ...]) -> NDArray[Any]:
    """x as a C-contiguous array of the dtype whose last axes are `tail` (-1: any)."""
    v = np.asarray(x)
    want = f"{np.dtype(dtype).name} (..., {', '.join('bytes' if t < 0 else str(t) for t in tail)})"
    if v.dtype != dtype:
        raise FormatError(
            f"{name} is {v.dtype}, but it must be {want}: pass {name}.view(np.{np.dtype(dtype).name}) of its bits"
        )
    if v.ndim < len(tail) or any(t not in (-1, s) for t, s in zip(tail, v.shape[v.ndim - len(tail) :], strict=True)):
        raise ShapeError(
            f"{name} has shape {v.shape}, but it must be {want}: for example np.zeros({tuple(map(abs, tail))}, "
            f"{v.dtype})"
        )
    return np.ascontiguousarray(v)


def descriptor_words(name: str, x: Any) -> NDArray[np.uint64]:
    """Descriptors as uint64 words, each checked by decoding it."""
    if isinstance(x, Descriptor):
        return np.array(x.encode(), np.uint64)
    v = np.asarray(x)
    if v.dtype == object and all(isinstance(e, Descriptor) for e in v.flat):
        v = np.array([e.encode() for e in v.flat], np.uint64).reshape(v.shape)
    if v.dtype.kind not in "iu" or (v.dtype.kind == "i" and v.size and int(v.min()) < 0):
        raise DescriptorError(
            f"{name} is {v.dtype} {v.shape}: a matrix descriptor is a 64-bit word or a Descriptor (A may also be "
            "uint32 "
            f"registers (..., 128, 4)): try {name}=nbtc.wgmma.Descriptor(0, 128, 256).encode()"
        )
    return v.astype(np.uint64)


def _flags(scale_d: Any) -> NDArray[np.uint8]:
    v = np.asarray(scale_d)
    if v.dtype.kind not in "biu" or (v.size and (int(v.min()) < 0 or int(v.max()) > 1)):
        raise OptionError(
            f"scale_d={scale_d!r}: scale-d is a predicate, 0 (D = A*B) or 1 (D = A*B + D), one or one a warpgroup"
        )
    return v.astype(np.uint8)


def _metadata(row: Any, meta: Any, selector: Any) -> NDArray[np.uint32]:
    if not row.sparse:
        if meta is not None or selector != 0:
            raise MetadataError(
                f"{row.mnemonic} is dense and takes neither meta nor selector: leave them out, or use "
                "wgmma.mma_async.sp"
            )
        return np.zeros(warpgroup.THREADS, np.uint32)
    if meta is None:
        raise MetadataError(f"{row.mnemonic} needs meta: uint32 (..., 128), the metadata register of every thread")
    legal = tuple(row.selectors)
    if isinstance(selector, bool) or selector not in legal:
        raise MetadataError(
            f"selector={selector!r} is not legal for {row.mnemonic}: legal are {legal}; try selector={legal[0]}"
        )
    return _uint("meta", meta, np.uint32, (warpgroup.THREADS,))


def _batch(shapes: dict[str, tuple[int, ...]]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*shapes.values())
    except ValueError:
        named = ", ".join(f"{n} {s}" for n, s in shapes.items())
        raise ShapeError(
            f"the leading (batch) axes do not broadcast: {named}; give each operand the same leading axes or none"
        ) from None


def _units(
    row: Any, operand: str, words: NDArray[np.uint64], rows: int, cols: int, trans: int, size: int
) -> tuple[Any, Any]:
    """Tables of unit addresses of the distinct descriptors, and which one each warpgroup uses."""
    distinct, which = np.unique(words, return_inverse=True)
    fmt, major = (row.a if operand == "A" else row.b).format, "mn" if trans else "k"
    tables = []
    for word in distinct.tolist():
        found = Descriptor.decode(word)
        if major == "k" and found.mode.units > 1 and cols * fmt.bits // 8 > found.mode.row_bytes:
            raise DescriptorError(
                f"{operand} of {row.mnemonic} needs {cols * fmt.bits // 8} bytes a row, but its {found.swizzle} "
                "swizzle row is narrower "
                '(no recording says what the hardware reads there): use swizzle="64B", "128B" or "none"'
            )
        at = found.unit_addresses(rows, cols, fmt, major)
        if int(at.max()) + UNIT > size:
            raise BoundsError(
                f"{operand} ({rows} x {cols} {fmt.name}, {major.upper()}-major) at {found} reaches byte "
                f"{int(at.max()) + UNIT - 1} of a "
                f"shared memory of {size} bytes: pass a larger smem or a descriptor inside it; .explain() draws it"
            )
        tables.append(at.reshape(-1))
    return np.array(tables, np.int32).reshape(len(tables), -1), which.reshape(words.shape).astype(np.int64)


def _geometry(
    row: Any, scale_a: int, scale_b: int, trans_a: int, trans_b: int, registers: bool, size: int
) -> NDArray[np.int64]:
    g = np.zeros(warpgroup.GEOMETRY, np.int64)
    _, n, k = row.shape
    fmt = row.a.format
    bits, k = (32, k // 32) if fmt.kind == "bit" else (fmt.bits, k)
    g[warpgroup.N], g[warpgroup.K], g[warpgroup.STORED] = n, k, k // 2 if row.sparse else k
    g[warpgroup.BITS], g[warpgroup.A_MN], g[warpgroup.B_MN] = bits, trans_a, trans_b
    g[warpgroup.HALF] = row.d.format.bits == 16
    sign = 1 << (bits - 1)
    g[warpgroup.FLIP_A], g[warpgroup.FLIP_B] = (sign if s == -1 else 0 for s in (scale_a, scale_b))
    g[warpgroup.SPARSE] = (warpgroup.HALVES if bits == 32 else warpgroup.PAIRS) if row.sparse else warpgroup.DENSE
    g[warpgroup.A_REGISTERS], g[warpgroup.SMEM_BYTES] = registers, size
    return g


def metadata_places(row: Any, selector: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Thread and lowest bit of the nibble of (row, chunk), both flat (64 * chunks,).

    16- and 32-bit formats: a word holds four chunks of row g and of row g + 8, two lanes split K.  8-bit formats: a
    word holds eight chunks of one row, lanes 0 and 1 the rows g and g + 8, lanes 2 and 3 the second half of K.
    """
    per_chunk = 2 if row.a.format.bits == 32 else 4
    chunk = np.arange(row.shape[2] // per_chunk)
    r = np.arange(warpgroup.M)[:, None]
    warp, upper, group = r // 16, r // 8 % 2, r % 8
    if row.a.format.bits == 8:
        lane, nibble = upper + 2 * (chunk >> 3), chunk & 7 | 0 * upper
    else:
        lane, nibble = 2 * selector + (chunk >> 2) + 0 * upper, (chunk & 3) + 4 * upper
    return (32 * warp + 4 * group + lane).reshape(-1).astype(np.int64), (4 * nibble).reshape(-1).astype(np.int64)


def _spread(shape: tuple[int, ...], batch: tuple[int, ...]) -> NDArray[np.int64]:
    """For each warpgroup of the batch, which image of an operand with these leading axes it uses."""
    return _index(np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape), batch)


def _index(which: NDArray[Any], batch: tuple[int, ...]) -> NDArray[np.int64]:
    return np.ascontiguousarray(np.broadcast_to(which, batch), np.int64).reshape(-1)


def in_threads(call: Callable[[int, int], None], count: int, threads: int | None) -> None:
    """call(start, stop) over [0, count) in threads; the compiled code releases the GIL."""
    if threads is not None and (isinstance(threads, bool) or not isinstance(threads, int) or threads < 1):
        raise OptionError(
            f"threads={threads!r} is no number of threads: pass a positive integer, or None for all processors"
        )
    many = min(threads or len(os.sched_getaffinity(0)), count // SERIAL)
    if many < 2:
        call(0, count)
        return
    edges = [count * i // many for i in range(many + 1)]
    with ThreadPoolExecutor(many) as pool:
        list(pool.map(call, edges[:-1], edges[1:]))
