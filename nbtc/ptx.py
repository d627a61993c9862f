"""Tensor core and data movement instructions under their PTX names, on register images of many warps at once.

Register images are uint32 (..., 32, registers); leading axes are a batch of independent warps.  Mnemonics are those of
the PTX ISA, in any spelling the assembler takes.  `mma_sync` also works inside Numba-compiled functions, with a literal
mnemonic.  Every function takes `threads` (None: Numba's number of threads); no result depends on it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbtc.compiler.python_only import refuse_in_compiled_code
from nbtc.compiler.threads import thread_count
from nbtc.dialect.vocabulary.copies import (
    bar_sync,
    cluster_arrive,
    cluster_rank,
    cluster_wait,
    cp_async,
    cp_async_bulk,
    cp_async_bulk_commit_group,
    cp_async_bulk_store,
    cp_async_bulk_wait_group,
    cp_async_commit_group,
    cp_async_wait_all,
    cp_async_wait_group,
    elect_sync,
    fence_mbarrier_init,
    mbarrier_arrive,
    mbarrier_arrive_cluster,
    mbarrier_arrive_expect_tx,
    mbarrier_init,
    mbarrier_inval,
    mbarrier_try_wait,
    mbarrier_wait,
    setmaxnreg_dec,
    setmaxnreg_inc,
    tma_load,
    tma_prefetch,
    tma_store,
)
from nbtc.errors import UnsupportedInstructionError
from nbtc.executor.rows.approx_arrays import approx
from nbtc.fragments import scales
from nbtc.isa.parse import immediate, row
from nbtc.isa.spec import Row
from nbtc.numba_door import matrix_move
from nbtc.numba_door import mma as inside
from nbtc.numba_door.registry import refresh_numba_registry
from nbtc.ops.convert import cvt
from nbtc.ops.images import Words
from nbtc.ops.memory import wmma
from nbtc.ops.memory.matrix_move import ldmatrix, movmatrix, stmatrix
from nbtc.ops.mma import product as mma
from nbtc.ops.mma import scaled
from nbtc.ops.wgmma.product import execute as execute_wgmma
from nbtc.ops.wgmma.product import line_operands

__all__ = [
    "approx", "bar_sync", "cluster_arrive", "cluster_rank", "cluster_wait", "cp_async", "cp_async_bulk",
    "cp_async_bulk_commit_group", "cp_async_bulk_store", "cp_async_bulk_wait_group", "cp_async_commit_group",
    "cp_async_wait_all", "cp_async_wait_group", "cvt", "elect_sync", "fence_mbarrier_init", "ldmatrix",
    "mbarrier_arrive", "mbarrier_arrive_cluster", "mbarrier_arrive_expect_tx", "mbarrier_init", "mbarrier_inval",
    "mbarrier_try_wait", "mbarrier_wait", "mma_sp", "mma_sync", "movmatrix", "setmaxnreg_dec", "setmaxnreg_inc",
    "stmatrix", "tma_load", "tma_prefetch", "tma_store", "wgmma", "wmma_load", "wmma_mma", "wmma_store",
]  # fmt: skip


def _form(mnemonic: str, family: str, example: str) -> Row:
    found = row(mnemonic)
    if found.family != family:
        raise UnsupportedInstructionError(
            f"{found.mnemonic} is a {found.family} form; this function runs {family}, for example {example}"
        )
    return found


def mma_sync(
    mnemonic: str, a: ArrayLike, b: ArrayLike, c: ArrayLike, arch: object = "sm_90", threads: int | None = None,
    scale_a: ArrayLike | None = None, scale_b: ArrayLike | None = None, byte_a: int | None = None,
    thread_a: int | None = None, byte_b: int | None = None, thread_b: int | None = None,
) -> Words:  # fmt: skip
    """D = A * B + C of an `mma.sync` form (PTX ISA, "mma").

    a, b, c: uint32 images (..., 32, registers), f64 low word first; leading axes broadcast.  arch: the architecture
    whose arithmetic is used.  scale_a, scale_b: scale registers uint32 (..., 32) of block-scaled forms, with their
    selectors (default: those of a whole PTX line, otherwise 0).  Returns a new uint32 image (..., 32, registers of D).
    Raises ParseError for text that is not a form, UnsupportedInstructionError if `arch` lacks it, ShapeError and
    FormatError for operands that don't fit.

    >>> import numpy as np
    >>> name = "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32"
    >>> one = np.full((32, 2), 0x3C003C00, np.uint32)            # every element of A and B is 1.0
    >>> d = mma_sync(name, one, one[:, :1], np.zeros((32, 4), np.uint32))
    >>> d.view(np.float32)[0].tolist()
    [8.0, 8.0, 8.0, 8.0]
    """
    form = _form(mnemonic, "mma", "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    if form.scale:
        left, right = scales.selected(mnemonic, (scale_a, byte_a, thread_a), (scale_b, byte_b, thread_b))
        return scaled.execute(form, a, b, c, left, right, arch, threads)
    scales.no_scales(form, scale_a, scale_b, byte_a, thread_a, byte_b, thread_b)
    return mma.execute(form, a, b, c, arch=arch, threads=threads)


def mma_sp(
    mnemonic: str, a: ArrayLike, b: ArrayLike, c: ArrayLike, meta: ArrayLike, selector: int | None = None,
    arch: object = "sm_90", strict: bool = False, threads: int | None = None,
) -> Words:  # fmt: skip
    """D = A * B + C of an `mma.sp` form, with half of A's elements zero and not stored (PTX ISA, "mma.sp").

    a: the stored M x K/2 elements; b, c: dense; all uint32 (..., 32, registers).  meta: uint32 (..., 32), of which only
    the lanes that `selector` names are read (default: that of a whole PTX line, otherwise 0).  Metadata that breaks the
    ISA's rules computes as on the hardware; strict=True raises MetadataError instead.  A selector outside the legal set
    always raises.  Everything else is as in `mma_sync`.

    >>> import numpy as np
    >>> name = "mma.sp::ordered_metadata.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    >>> one = np.full((32, 2), 0x3C003C00, np.uint32)
    >>> d = mma_sp(name, one, one, np.zeros((32, 4), np.uint32), np.full(32, 0x44444444, np.uint32))
    >>> d.view(np.float32)[0].tolist()
    [8.0, 8.0, 8.0, 8.0]
    """
    form = _form(mnemonic, "mma.sp", "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    selector = immediate(mnemonic, "selector", selector, 0)
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
    mnemonic: str, mem: ArrayLike, offset: int | None = None, stride: int | None = None, arch: object = "sm_90",
    threads: int | None = None,
) -> Words:  # fmt: skip
    """The fragment that a `wmma.load` form reads from memory (PTX ISA, "wmma.load").

    mem: uint8 (..., bytes).  offset: bytes from its start to the tile (0), aligned to the fragment's bytes a lane (at
    most 32).  stride: elements from one row (.row) or column (.col) to the next; default: dense.  A whole PTX line
    gives its own displacement and stride; an argument that contradicts them raises OptionError.  arch: whose fragment
    layout.  Returns uint32 (..., 32, registers); where layouts differ between architectures the image remembers its
    own, and a product, store or unpacking for another raises LayoutError.  Raises AlignmentError, BoundsError,
    RangeError, FormatError, ShapeError, ParseError, and UnsupportedInstructionError where `arch` lacks the form or
    nobody knows its layout there.

    >>> import numpy as np
    >>> mem = np.arange(256, dtype=np.float16).view(np.uint8)
    >>> wmma_load("wmma.load.a.sync.aligned.row.m16n16k16.f16", mem).view(np.float16)[0, :4].tolist()
    [0.0, 1.0, 128.0, 129.0]
    """
    if threads is not None:
        thread_count(threads)
    where = immediate(mnemonic, "offset", offset, 0), immediate(mnemonic, "stride", stride, None)
    return wmma.load(row(mnemonic), mem, *where, arch)


def wmma_store(
    mnemonic: str, mem: Any, regs: ArrayLike, offset: int | None = None, stride: int | None = None,
    arch: object = "sm_90", threads: int | None = None,
) -> None:  # fmt: skip
    """Write the fragment of a `wmma.store` form to memory, in place (PTX ISA, "wmma.store").

    mem: writable uint8 (..., bytes) whose leading axes are those of regs, uint32 (..., 32, registers).  offset, stride,
    arch and errors as of `wmma_load`; memory is untouched when it raises.

    >>> import numpy as np
    >>> mem = np.zeros(1024, np.uint8)
    >>> wmma_store("wmma.store.d.sync.aligned.row.m16n16k16.f32", mem, np.full((32, 8), 0x3F800000, np.uint32))
    >>> mem.view(np.float32).sum().item()
    256.0
    """
    if threads is not None:
        thread_count(threads)
    where = immediate(mnemonic, "offset", offset, 0), immediate(mnemonic, "stride", stride, None)
    wmma.store(row(mnemonic), mem, regs, *where, arch)


def wgmma(
    mnemonic: str,
    d: ArrayLike,
    a: Any,
    b_desc: Any,
    smem: ArrayLike,
    *,
    scale_d: Any = None,
    scale_a: int | None = None,
    scale_b: int | None = None,
    trans_a: int | None = None,
    trans_b: int | None = None,
    meta: ArrayLike | None = None,
    selector: int | None = None,
    arch: object = "sm_90",
    threads: int | None = None,
) -> NDArray[np.uint32]:
    """D = A * B + D of a warpgroup, or of a batch of independent ones, as `wgmma.mma_async` computes it.

    d: uint32 (..., 128, registers).  a: a uint64 descriptor (scalar or (...,), or a `Descriptor`), or uint32 registers
    (..., 128, 4).  b_desc: a descriptor.  smem: uint8 (..., bytes).  Leading axes broadcast.  scale_d: 0 drops D (it is
    not read), also one value for each warpgroup.  scale_a, scale_b: 1 or -1, floating types.  trans_a, trans_b: 1 for
    MN-major, 16-bit types in shared memory.  meta: uint32 (..., 128) and selector: sparse forms.  threads: how many to
    use at most.  By default scale_d, scale_a and scale_b are 1, trans_a, trans_b and selector 0, or what a whole PTX
    line says; an argument that contradicts the line raises OptionError.
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
    given = {"scale_d": scale_d, "scale_a": scale_a, "scale_b": scale_b, "trans_a": trans_a, "trans_b": trans_b}
    taken = line_operands(mnemonic, {**given, "selector": selector})
    return execute_wgmma(row(mnemonic), d, a, b_desc, smem, meta=meta, arch=arch, threads=threads, **taken)


inside.register(mma_sync)
matrix_move.register({f.__name__: f for f in (ldmatrix, stmatrix, movmatrix)})
refuse_in_compiled_code(
    (approx, cvt, mma_sp, wgmma, wmma_load, wmma_mma, wmma_store),
    "nbtc.ptx.mma_sync and ldmatrix, nbtc.instruction objects, nbtc.wmma, nbtc.warp and nbtc.dpx do",
)
refresh_numba_registry()
