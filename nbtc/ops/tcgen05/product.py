"""tcgen05.mma: D in tensor memory, A there or in shared memory, B in shared memory, block scales in tensor memory.

(PTX ISA, "tcgen05.mma".)  One CTA, or a pair of them that share a product: each holds half of the rows of A and half of
the columns of B.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.jit import jit
from nbtc.errors import BoundsError, OptionError, ShapeError, UnsupportedInstructionError
from nbtc.formats.arrays import significant
from nbtc.formats.block_scales import scale_table
from nbtc.formats.table import FORMATS
from nbtc.fragments.tensor_descriptors import Descriptor, InstructionDescriptor
from nbtc.isa import parse
from nbtc.isa.archs import arch as arch_row
from nbtc.isa.spec import Row
from nbtc.numerics.fused import chain
from nbtc.numerics.models import Model, model, params
from nbtc.numerics.scaled import StepScales, scaled_outputs
from nbtc.ops.mma.scaled import flattened
from nbtc.ops.tcgen05.memory import PendingOperations, TensorMemory

Bits = NDArray[Any]
SHIFT_E2M1 = 2  # e2m1 sits in bits 2..5 of a byte in tensor memory (as in the registers of mma.sync)


class Cta(NamedTuple):
    """One CTA of a product: its tensor memory and its shared memory (uint8)."""

    tmem: TensorMemory
    smem: NDArray[np.uint8]


@jit
def _chains(a, b, c, params, d):
    """d[i, j] = chain of row i of a and column j of b from c[i, j]; all uint words, a (M, K), b (N, K)."""
    m, k, n = a.shape[0], a.shape[1], b.shape[0]
    fa, fb = a.reshape(-1), b.reshape(-1)
    for i in range(m):
        for j in range(n):
            d[i, j] = chain(fa, i * k, 1, fb, j * k, 1, k, c[i, j], params)


def d_places(m: int, n: int, group: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """CTA, lane and column of each element of D, relative to its base: three int64 arrays (m, n).

    >>> cta, lane, column = d_places(128, 64, 2)
    >>> cta[70, 3], lane[70, 40], column[70, 40]
    (np.int64(1), np.int64(70), np.int64(8))
    """
    i, j = np.arange(m)[:, None], np.arange(n)[None, :]
    zero = 0 * (i + j)
    found = {
        (128, 1): (zero, i + 0 * j, j + 0 * i),
        (64, 1): (zero, 32 * (i // 16) + i % 16 + 0 * j, j + 0 * i),
        (256, 2): (i // 128 + 0 * j, i % 128 + 0 * j, j + 0 * i),
        (128, 2): (i // 64 + 0 * j, i % 64 + 64 * (j // (n // 2)), j % (n // 2) + 0 * i),
    }
    if (m, group) not in found:
        raise OptionError(f"M = {m} with cta_group::{group}: 64 or 128 for one CTA, 128 or 256 for a pair")
    return found[m, group]


def check_shape(i: InstructionDescriptor, group: int) -> None:
    """Raise OptionError for M and N that a kind lacks."""
    step = 16 * group if i.kind == "i8" else 8 * group
    few = (8, 24) if i.kind == "i8" and group == 1 else ()
    least = 32 if i.kind == "i8" and group == 2 else 8 * group
    if not (i.n % step == 0 or i.n in few) or i.n < least:
        raise OptionError(f"N = {i.n}: kind {i.kind} with cta_group::{group} takes multiples of {step} from {least} on")
    if i.scale and (i.m, group) not in ((128, 1), (128, 2), (256, 2)):
        raise OptionError(f"M = {i.m}: block-scaled kinds take 128 with cta_group::1, 128 or 256 with cta_group::2")
    d_places(i.m, i.n, group)


def _shared(
    descriptor: Any, smem: NDArray[np.uint8], rows: int, i: InstructionDescriptor, side: str
) -> tuple[Bits, Any]:
    """Element codes (rows, K) of an operand in shared memory, and what must not change."""
    d = descriptor if isinstance(descriptor, Descriptor) else Descriptor.decode(descriptor)
    fmt = FORMATS[i.a if side == "a" else i.b]
    if fmt.bits == 6:
        raise UnsupportedInstructionError(
            f"{fmt.name} in shared memory: how 6-bit elements are packed there is not verified; tensor memory takes "
            "them a byte each, and nbtc.matmul computes such products"
        )
    major = "mn" if (i.transpose_a if side == "a" else i.transpose_b) else "k"
    row, k = np.arange(rows)[:, None], np.arange(i.k)[None, :]
    whole = i.kind in ("mxf4", "mxf4nvf4")
    if fmt.bits == 4 and major == "k":  # two a byte; in byte kinds 16 elements fill half a unit
        at = d.address(row, k, "mxf4") if whole else d.address(row, k // 16 * 16, "u8") + k % 16 // 2
    else:
        at = d.address(row, k, fmt, major)
    size = max(1, fmt.bits // 8)
    every = at[..., None] + np.arange(size)
    if smem.dtype != np.uint8 or smem.ndim != 1 or int(every.max()) >= smem.size:
        raise BoundsError(
            f"operand {side} reads bytes up to {int(every.max())}, but shared memory is {smem.dtype} of {smem.shape}: "
            "pass uint8 bytes that hold the tile"
        )
    words = np.ascontiguousarray(smem[every]).view(f"<u{size}")[..., 0]
    if fmt.bits == 4:
        words = words >> (4 * (k % 2)).astype(np.uint8) & np.uint8(15)
    return np.ascontiguousarray(words), (smem, every.ravel(), smem[every].ravel())


def _a_in_tensor_memory(ctas: list[Cta], address: int, i: InstructionDescriptor, group: int) -> Bits:
    """Element codes (M, K) of A in tensor memory: 8 columns of packed words, in the lanes of its rows of D."""
    fmt, (cta, lane, _) = FORMATS[i.a], d_places(i.m, i.n, group)
    first, last = ctas[0].tmem.region(address, 8, "mma (A)")
    base = address >> 16
    copies = [
        np.stack([ctas[c].tmem.words[at + base, first:last] for c, at in zip(cta[:, j], lane[:, j], strict=True)])
        for j in (0, i.n - 1)
    ]
    if not np.array_equal(copies[0], copies[1]):
        raise OptionError("A in tensor memory, M = 128 of a pair of CTAs: both halves of the lanes hold the same rows")
    width = 4 if i.kind in ("mxf4", "mxf4nvf4") else max(8, fmt.bits)
    octets = np.ascontiguousarray(copies[0]).astype("<u4").view(np.uint8)
    if width == 4:
        return np.stack([octets & np.uint8(15), octets >> np.uint8(4)], -1).reshape(i.m, -1)
    words = octets.view(f"<u{width // 8}")
    return significant(words >> np.uint8(SHIFT_E2M1) if fmt.bits == 4 else words, fmt)


def _scale_codes(tmem: TensorMemory, address: int, rows: int, first_byte: int, chunks: int, quarters: Any) -> Bits:
    """Scale codes (rows, chunks): lane row % 32 of a lane quarter, column row / 32, bytes from first_byte on."""
    columns = -(-rows // 32)
    first, last = tmem.region(address, columns, "mma (scales)")
    words = [tmem.words[32 * q : 32 * q + 32, first:last] for q in quarters]
    if any(not np.array_equal(words[0], w) for w in words):
        raise OptionError("scales in tensor memory stand in every quarter of the lanes alike: copy them with .warpx4")
    octets = np.ascontiguousarray(words[0].T).astype("<u4").view(np.uint8).reshape(-1, 4)[:rows]
    return octets[:, first_byte : first_byte + chunks]


def _scales(
    ctas: list[Cta], i: InstructionDescriptor, group: int, at: tuple[int, int], chunks: int
) -> tuple[Bits, Bits]:
    """Scale codes of A (M, chunks) and of B (chunks, N)."""
    every = range(4)
    rows = i.m // group
    a = [_scale_codes(c.tmem, at[0], rows, i.scale_a_id, chunks, every) for c in ctas]
    halves = [(0, 1), (2, 3)] if (i.m, group) == (128, 2) else [every]
    part = i.n // len(halves)
    b = [[_scale_codes(c.tmem, at[1], part, i.scale_b_id, chunks, q) for q in halves] for c in ctas]
    if any(not np.array_equal(np.concatenate(b[0]), np.concatenate(x)) for x in b):
        raise OptionError("scales of B differ between the two CTAs: each holds those of all N columns")
    return np.concatenate(a), np.concatenate(b[0]).T


def _row(mnemonic: str, arch: object) -> tuple[Row, int, Model]:
    row, target = parse.row(mnemonic), arch_row(arch)
    if row.family != "tcgen05.mma":
        raise UnsupportedInstructionError(f"{row.mnemonic} is a {row.family} form; this is tcgen05.mma.cta_group::1...")
    if not row.executable:
        raise parse.refuse(row)
    row.require(target)
    fmt = {"f16": "f16", "tf32": "tf32", "i8": "s8", "mxf4": "e2m1", "mxf4nvf4": "e2m1"}.get(row.kind, "e4m3")
    numerics = model(target.numerics, row.unit, FORMATS[fmt], label=target.name, validated=target.validated)
    return row, int(row.mnemonic.split("cta_group::")[1][0]), numerics


def _compute(i: InstructionDescriptor, row: Row, numerics: Model, x: Any, y: Any, c: Any, scales: Any) -> Bits:
    """D (M, N) of codes x (M, K), y (N, K) and accumulator bits c."""
    fa, fb, acc = FORMATS[i.a], FORMATS[i.b], FORMATS[i.d]
    vector = params(numerics, fa, fb, acc, i.k, saturate=i.saturate)
    flips = [np.array(1 << (f.bits - 1), v.dtype) if flip else np.array(0, v.dtype)
             for f, v, flip in ((fa, x, i.negate_a), (fb, y, i.negate_b))]  # fmt: skip
    x, y = np.ascontiguousarray(x ^ flips[0]), np.ascontiguousarray(y ^ flips[1])
    if scales is None:
        d = np.empty(c.shape, np.uint64)
        _chains(x, y, c.astype(np.uint64), vector, d)
        return d.astype(np.uint32)
    d = np.empty(c.shape, np.uint32)
    chunks = scales[0].shape[1]
    operands = flattened([x, y.T, c, scales[0], scales[1]], ())
    sizes = np.array([i.m, i.n, i.k, chunks])
    how = StepScales(chunks, scale_table(FORMATS[i.scale]))
    scaled_outputs(operands, d.reshape(-1), np.zeros(0, np.int64), sizes, how, vector, 0, d.size)
    return d


def mma(
    mnemonic: str, tmem: Any, d: int, a: Any, b: Any, idesc: Any, smem: Any, *, a_in_tmem: bool = False,
    enable_d: bool = True, scale_a: int | None = None, scale_b: int | None = None, arch: object = "sm_100",
) -> None:  # fmt: skip
    """tcgen05.mma: D (+)= A * B in tensor memory.

    mnemonic: "tcgen05.mma.cta_group::1.kind::f16" and so on.  tmem, smem: a `TensorMemory` and uint8 shared memory; for
    cta_group::2 pairs of both, the even CTA first.  d: address of D (lane << 16 | column).  a: descriptor of A, or with
    a_in_tmem its address in tensor memory.  b: descriptor of B.  idesc: an `InstructionDescriptor` or its word.
    scale_a, scale_b: addresses of block scales.  enable_d=False takes D as zero.  f16 results stand in the low halves
    of words whose high halves become 0.  It is complete after commit and wait.  Raises OptionError, BoundsError,
    HazardError, and UnsupportedInstructionError for what is not verified: sparse kinds, 6-bit operands in shared
    memory, MN-major operands of other than 8 and 16 bits.  (PTX ISA, "tcgen05.mma".)

    >>> import numpy as np, warnings
    >>> from nbtc import tcgen05
    >>> from nbtc.wgmma import tile_to_smem
    >>> smem, plain = tile_to_smem(np.full((128, 16), 2, np.float16), "f16")
    >>> desc = tcgen05.Descriptor(0, plain.leading, plain.stride)
    >>> tmem, idesc = tcgen05.TensorMemory(), tcgen05.InstructionDescriptor("f16", "f32", "f16", "f16", 128, 64)
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("ignore")  # that sm_100's arithmetic was not recorded
    ...     tcgen05.mma("tcgen05.mma.cta_group::1.kind::f16", tmem, 0, desc, desc, idesc, smem, enable_d=False)
    >>> float(tmem.words.view(np.float32)[127, 63])  # row 127, column 63: sixteen products of two twos
    64.0
    """
    row, group, numerics = _row(mnemonic, arch)
    i = idesc if isinstance(idesc, InstructionDescriptor) else InstructionDescriptor.decode(idesc, row.kind)
    if i.kind != row.kind:
        raise OptionError(f"the instruction descriptor is of kind {i.kind}, the instruction of {row.kind}")
    check_shape(i, group)
    memories = list(zip(tmem, smem, strict=True)) if group == 2 else [(tmem, smem)]
    ctas = [Cta(t, np.asarray(s)) for t, s in memories]
    if len(ctas) != group:
        raise ShapeError(f"cta_group::2 works on a pair of CTAs: pass two memories of each kind, not {len(ctas)}")
    chunks = int(row.mnemonic[-2]) if i.scale else 0
    if i.scale and (scale_a is None or scale_b is None):
        raise OptionError(f"{row.mnemonic} needs scale_a= and scale_b=, addresses of scales in tensor memory")
    if i.scale == "ue4m3" and chunks != 4:
        raise OptionError("ue4m3 scales exist with .scale_vec::4X only; use ue8m0, or kind::mxf4nvf4 with 4X")
    if i.scale and any(s + chunks > 4 or (chunks == 2 and s % 2) for s in (i.scale_a_id, i.scale_b_id)):
        raise OptionError(f"scale ids {i.scale_a_id}, {i.scale_b_id}: 0..3 with 1X, 0 or 2 with 2X, 0 with 4X")
    _product(ctas, row, i, group, numerics, (d, a, b), a_in_tmem, enable_d, (scale_a, scale_b), chunks)


def _product(
    ctas: list[Cta], row: Row, i: InstructionDescriptor, group: int, numerics: Model, at: tuple[int, Any, Any],
    a_in_tmem: bool, enable_d: bool, scale_at: Any, chunks: int,
) -> None:  # fmt: skip
    cta, lane, column = d_places(i.m, i.n, group)
    d, a, b = at
    base = d >> 16
    if base not in ((0, 16) if i.m == 64 else (0,)):
        raise OptionError(f"D at lane {base}: it starts at lane 0{', or 16 for M = 64' if i.m == 64 else ''}")
    region = ctas[0].tmem.region(d, int(column.max()) + 1, "mma (D)")
    columns = (128, i.n + 31)
    reads = [(s & 0xFFFF, (s & 0xFFFF) + n // 32) for s, n in zip(scale_at, columns, strict=True) if s is not None]
    reads += [(a & 0xFFFF, (a & 0xFFFF) + 8)] if a_in_tmem else []
    for c in ctas:
        c.tmem.uses("mma", [region, *reads], ("mma", "cp"))
    sources: list[list[Any]] = [[] for _ in ctas]
    parts: list[list[Bits]] = [[], []]
    for side, descriptor, rows in (("a", a, i.m // group), ("b", b, i.n // group)):
        if side == "a" and a_in_tmem:
            parts[0].append(_a_in_tensor_memory(ctas, a, i, group))
            continue
        for n, c in enumerate(ctas):
            codes, source = _shared(descriptor, c.smem, rows, i, side)
            parts["ab".index(side)].append(codes)
            sources[n].append(source)
    places = cta, lane + base, column + region[0]
    words = np.stack([c.tmem.words for c in ctas])
    mask = np.uint32((1 << FORMATS[i.d].bits) - 1)
    start = words[places] & mask if enable_d else np.zeros((i.m, i.n), np.uint32)
    scales = _scales(ctas, i, group, scale_at, chunks) if chunks else None
    result = _compute(i, row, numerics, np.concatenate(parts[0]), np.concatenate(parts[1]), start, scales)
    words[places] = result
    for n, c in enumerate(ctas):
        c.tmem.words[:] = words[n]
        c.tmem.pending += [PendingOperations("mma", region, tuple(reads), s) for s in sources[n]]
