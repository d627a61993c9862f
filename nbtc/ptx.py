"""Tensor core and data movement instructions under their PTX names, on register images of many warps at once.

Register images are uint32 (..., 32, registers); leading axes are a batch of independent warps.  Mnemonics are those of
the PTX ISA, in any spelling the assembler takes.  `mma_sync` also works inside Numba-compiled functions, with a literal
mnemonic.  Every function takes `threads` (None: Numba's number of threads); no result depends on it.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import ArrayLike

from nbtc.compiler.parallel import thread_count
from nbtc.errors import UnsupportedInstructionError
from nbtc.isa.parse import row
from nbtc.isa.spec import Row
from nbtc.numba_door import mma as inside
from nbtc.ops.convert import cvt
from nbtc.ops.images import Words
from nbtc.ops.memory import wmma
from nbtc.ops.memory.matrix_move import ldmatrix, movmatrix, stmatrix
from nbtc.ops.mma import product as mma
from nbtc.ops.wgmma.product import wgmma

__all__ = [
    "cvt", "ldmatrix", "mma_sp", "mma_sync", "movmatrix", "stmatrix", "wgmma", "wmma_load", "wmma_mma", "wmma_store",
]  # fmt: skip


def _form(mnemonic: str, family: str, example: str) -> Row:
    found = row(mnemonic)
    if found.family != family:
        raise UnsupportedInstructionError(
            f"{found.mnemonic} is a {found.family} form; this function runs {family}, for example {example}"
        )
    return found


def mma_sync(
    mnemonic: str, a: ArrayLike, b: ArrayLike, c: ArrayLike, arch: object = "sm_90", threads: int | None = None
) -> Words:
    """D = A * B + C of an `mma.sync` form (PTX ISA, "mma").

    a, b, c: uint32 images (..., 32, registers), f64 low word first; leading axes broadcast.  arch: whose arithmetic.
    Returns a new uint32 image (..., 32, registers of D).  Raises ParseError for text that is no form,
    UnsupportedInstructionError where `arch` lacks it, ShapeError and FormatError for operands that don't fit.

    >>> import numpy as np
    >>> name = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
    >>> one = np.full((32, 2), 0x3C003C00, np.uint32)            # every element of A and B is 1.0
    >>> d = mma_sync(name, one, one[:, :1], np.zeros((32, 4), np.uint32))
    >>> d.view(np.float32)[0].tolist()
    [8.0, 8.0, 8.0, 8.0]
    """
    form = _form(mnemonic, "mma", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    return mma.execute(form, a, b, c, arch=arch, threads=threads)


def mma_sp(
    mnemonic: str, a: ArrayLike, b: ArrayLike, c: ArrayLike, meta: ArrayLike, selector: int = 0,
    arch: object = "sm_90", strict: bool = False, threads: int | None = None,
) -> Words:  # fmt: skip
    """D = A * B + C of an `mma.sp` form, A 50 % structured sparse (PTX ISA, "mma.sp").

    a: the stored M x K/2 elements; b, c: dense; all uint32 (..., 32, registers).  meta: uint32 (..., 32), of which the
    lanes that `selector` names count.  Metadata outside the ISA's rules computes as the hardware does; strict=True
    raises MetadataError instead.  A selector outside the legal set always raises.  Otherwise as `mma_sync`.

    >>> import numpy as np
    >>> name = "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    >>> one = np.full((32, 2), 0x3C003C00, np.uint32)
    >>> d = mma_sp(name, one, one, np.zeros((32, 4), np.uint32), np.full(32, 0x44444444, np.uint32))
    >>> d.view(np.float32)[0].tolist()
    [8.0, 8.0, 8.0, 8.0]
    """
    form = _form(mnemonic, "mma.sp", "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    return mma.execute(form, a, b, c, meta=meta, selector=selector, arch=arch, strict=strict, threads=threads)


def wmma_mma(
    mnemonic: str, a: ArrayLike, b: ArrayLike, c: ArrayLike, arch: object = "sm_90", threads: int | None = None
) -> Words:
    """D = A * B + C of a `wmma.mma` form on its fragments' images (PTX ISA, "wmma.mma").

    Operands and errors as of `mma_sync`.  Where an f16 fragment holds copies of an element, the first one is read.

    >>> import numpy as np
    >>> name = "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32"
    >>> one = np.full((32, 8), 0x3C003C00, np.uint32)
    >>> wmma_mma(name, one, one, np.zeros((32, 8), np.uint32)).view(np.float32).max().item()
    16.0
    """
    form = _form(mnemonic, "wmma.mma", "wmma.mma.sync.aligned.row.col.m16n16k16.f32.f32")
    return mma.execute(form, a, b, c, arch=arch, threads=threads)


def wmma_load(
    mnemonic: str, mem: ArrayLike, offset: int = 0, stride: int | None = None, threads: int | None = None
) -> Words:
    """The fragment that a `wmma.load` form reads from memory (PTX ISA, "wmma.load").

    mem: uint8 (..., bytes).  offset: bytes from its start to the tile, aligned to the fragment's bytes a lane (at most
    32).  stride: elements from one row (.row) or column (.col) to the next; default: dense.  Returns uint32
    (..., 32, registers).  Raises AlignmentError, BoundsError, RangeError, FormatError, ShapeError, ParseError.

    >>> import numpy as np
    >>> mem = np.arange(256, dtype=np.float16).view(np.uint8)
    >>> wmma_load("wmma.load.a.sync.aligned.row.m16n16k16.f16", mem).view(np.float16)[0, :4].tolist()
    [0.0, 1.0, 128.0, 129.0]
    """
    if threads is not None:
        thread_count(threads)
    return wmma.load(row(mnemonic), mem, offset, stride)


def wmma_store(
    mnemonic: str, mem: Any, regs: ArrayLike, offset: int = 0, stride: int | None = None, threads: int | None = None
) -> None:
    """Write the fragment of a `wmma.store` form to memory, in place (PTX ISA, "wmma.store").

    mem: writable uint8 (..., bytes) whose leading axes are those of regs, uint32 (..., 32, registers).  offset, stride
    and errors as of `wmma_load`; memory is untouched when it raises.

    >>> import numpy as np
    >>> mem = np.zeros(1024, np.uint8)
    >>> wmma_store("wmma.store.d.sync.aligned.row.m16n16k16.f32", mem, np.full((32, 8), 0x3F800000, np.uint32))
    >>> mem.view(np.float32).sum().item()
    256.0
    """
    if threads is not None:
        thread_count(threads)
    wmma.store(row(mnemonic), mem, regs, offset, stride)


inside.register(mma_sync)
