"""Tensor memory and its products (sm_100): descriptors, allocation, moves, mma, and the order of asynchronous work.

Nothing here was recorded from a GPU: the arithmetic is a published model's, layouts follow the PTX ISA and CuTe, and
what neither settles raises by name.  (PTX ISA, "TensorCore 5th Generation Family Instructions".)

>>> import numpy as np, nbtc, warnings
>>> from nbtc import tcgen05
>>> from nbtc.wgmma import tile_to_smem
>>> smem, plain = tile_to_smem(np.ones((128, 16), np.float16), "f16")
>>> desc = tcgen05.Descriptor(0, plain.leading, plain.stride)
>>> idesc = tcgen05.InstructionDescriptor("f16", "f32", "f16", "f16", 128, 128)
>>> tmem = tcgen05.TensorMemory()
>>> d = tcgen05.alloc(tmem, 128)
>>> with warnings.catch_warnings():
...     warnings.simplefilter("ignore")
...     tcgen05.mma("tcgen05.mma.cta_group::1.kind::f16", tmem, d, desc, desc, idesc, smem, enable_d=False)
>>> tcgen05.commit(tmem); tcgen05.wait(tmem); tcgen05.fence(tmem)
>>> tcgen05.ld(tmem, d, num=128).view(np.float32)[3, :2].tolist()
[16.0, 16.0]
"""

from __future__ import annotations

from nbtc.errors import FormatError, shown
from nbtc.fragments import tensor_descriptors as _descriptors
from nbtc.fragments.tensor_descriptors import InstructionDescriptor
from nbtc.ops.tcgen05.memory import TensorMemory
from nbtc.ops.tcgen05.moves import cp, ld, st
from nbtc.ops.tcgen05.product import mma

__all__ = [
    "Descriptor", "InstructionDescriptor", "TensorMemory", "alloc", "commit", "cp", "dealloc", "fence", "ld", "mma",
    "relinquish_alloc_permit", "st", "wait", "wait_st",
]  # fmt: skip


class Descriptor(_descriptors.Descriptor):
    __doc__ = _descriptors.Descriptor.__doc__

    def explain(self, shape: tuple[int, int], format: object, major: str = "k") -> object:
        """A drawing of the tile (MN, K), as `nbtc.wgmma.Descriptor.explain`.

        >>> Descriptor(0, 1024, 128).explain((64, 16), "f16").layout
        '((8,8),(8,2)):((8,64),(1,512))'
        """
        from nbtc.show.smem import explain

        return explain(self, shape, format, major)


def _checked(tmem: object) -> TensorMemory:
    if not isinstance(tmem, TensorMemory):
        raise FormatError(f"{shown(tmem)} is not tensor memory: pass a nbtc.tcgen05.TensorMemory, one for each CTA")
    return tmem


def alloc(tmem: TensorMemory, columns: int) -> int:
    """tcgen05.alloc: the address (lane << 16 | column, lane 0) of newly allocated columns of 128 lanes of 32 bits.

    columns: a power of two from 32 to 512, no more than an earlier allocation still has.  Raises OptionError for
    another number, HazardError where it would wait for ever or the CTA gave up the permit, FormatError for a tmem that
    is no `TensorMemory`, as all functions here do.  (PTX ISA, "tcgen05.alloc, dealloc, relinquish_alloc_permit".)

    >>> tmem = TensorMemory()
    >>> alloc(tmem, 128), alloc(tmem, 32)
    (0, 128)
    """
    return _checked(tmem).alloc(columns)


def dealloc(tmem: TensorMemory, address: int, columns: int) -> None:
    """tcgen05.dealloc: free what `alloc` gave.

    Raises OptionError for columns that are not allocated so, HazardError while an operation on them is not complete.
    (PTX ISA, "tcgen05.alloc, dealloc, relinquish_alloc_permit".)

    >>> tmem = TensorMemory()
    >>> dealloc(tmem, alloc(tmem, 64), 64)
    >>> tmem.allocated
    {}
    """
    _checked(tmem).dealloc(address, columns)


def relinquish_alloc_permit(tmem: TensorMemory) -> None:
    """tcgen05.relinquish_alloc_permit: this CTA allocates no more; `alloc` raises HazardError from now on.

    (PTX ISA, "tcgen05.alloc, dealloc, relinquish_alloc_permit".)

    >>> tmem = TensorMemory()
    >>> address = alloc(tmem, 32)
    >>> relinquish_alloc_permit(tmem)
    >>> tmem.relinquished
    True
    """
    _checked(tmem).relinquished = True


def commit(tmem: TensorMemory) -> None:
    """tcgen05.commit: a barrier will tell when the products and copies so far are complete.

    (PTX ISA, "tcgen05.commit".)

    >>> from nbtc.wgmma import tile_to_smem
    >>> import numpy as np
    >>> rows, plain = tile_to_smem(np.arange(256 * 32, dtype=np.uint8).reshape(256, 32)[:128], "u8")
    >>> tmem = TensorMemory()
    >>> cp(tmem, alloc(tmem, 32), Descriptor(0, plain.leading, plain.stride), rows, "128x256b")
    >>> commit(tmem)
    >>> wait(tmem)
    >>> fence(tmem)
    >>> hex(ld(tmem, 0, num=1)[1, 0])  # the first four bytes of row 1
    '0x23222120'
    """
    _checked(tmem).commit()


def wait(tmem: TensorMemory) -> None:
    """The wait on the barrier of a commit; `fence` must follow before registers are loaded.

    Raises HazardError where nothing was committed (the wait would never end), and where shared memory that an
    operation reads was changed before it was complete.  (PTX ISA, "tcgen05 Memory Consistency Model".)

    >>> wait(TensorMemory())
    Traceback (most recent call last):
        ...
    nbtc.errors.HazardError: a wait without a commit before it never ends: call commit first
    """
    _checked(tmem).wait()


def wait_st(tmem: TensorMemory) -> None:
    """tcgen05.wait::st: stores from registers are complete.

    (PTX ISA, "tcgen05.wait".)

    >>> import numpy as np
    >>> tmem = TensorMemory()
    >>> st(tmem, alloc(tmem, 32), np.full((128, 1), 7, np.uint32))
    >>> wait_st(tmem)
    >>> int(ld(tmem, 0, num=1)[127, 0])
    7
    """
    _checked(tmem).wait_st()


def fence(tmem: TensorMemory) -> None:
    """tcgen05.fence::after_thread_sync: what was complete before a synchronisation is seen after it.

    Without it `ld` and `st` raise HazardError after a wait on a commit.  (PTX ISA, "tcgen05.fence".)

    >>> fence(TensorMemory())
    """
    _checked(tmem).fence()
