"""Structured sparse matrices for mma.sp and wgmma.sp: from dense to stored columns and metadata, and back.

(PTX ISA, "Sparse matrix storage" of mma.sp and of wgmma.mma_async.sp.)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbtc.compiler.python_only import refuse_in_compiled_code
from nbtc.fragments import sparse as _sparse
from nbtc.isa.parse import as_row, immediate


def compress(
    dense: ArrayLike, instruction: object, selector: int | None = None
) -> tuple[NDArray[Any], NDArray[np.uint32]]:
    """The columns of a dense A that are stored, and the metadata registers that say which they are.

    dense: (..., M, K) in the dtype of the instruction's A (float32 for tf32), with at most 2 non-zero elements in every
    4 columns (4-bit types: 2 non-zero pairs in every 8; tf32: 1 in every 2).  instruction: a mnemonic of mma.sp or
    wgmma.mma_async.sp, or its `Instruction`.  selector: which lanes supply metadata
    (default: that of a whole PTX line, else 0).  Returns stored (..., M, K / 2) and meta uint32 (..., 32), or (...,
    128) for a warpgroup; the metadata is legal for every spelling of the form.  Where fewer elements are not zero,
    zeros are stored too, first those with a sign.  Raises MetadataError if `dense` does not fit the pattern or has a -0
    for which there is no place, or if the selector is not legal; ShapeError and FormatError for other arrays.

    >>> import numpy as np
    >>> from nbtc import sparse
    >>> form = "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    >>> dense = np.zeros((16, 16), np.float16)
    >>> dense[0, [1, 3, 4]] = 1, 2, 3
    >>> stored, meta = sparse.compress(dense, form)
    >>> stored[0, :4].tolist(), hex(meta[0] & 0xFF)          # chunk 0 keeps columns 1 and 3, chunk 1 columns 0 and 1
    ([1.0, 2.0, 3.0, 0.0], '0x4d')
    """
    return _sparse.compress(as_row(instruction), dense, immediate(instruction, "selector", selector, 0))


def expand(stored: ArrayLike, meta: ArrayLike, instruction: object, selector: int | None = None) -> NDArray[Any]:
    """The dense A (..., M, K) that stored columns (..., M, K / 2) and metadata registers describe.

    The inverse of `compress`; arguments and errors are the same.  Raises MetadataError for metadata that puts two
    elements into one place.

    >>> import numpy as np
    >>> from nbtc import sparse
    >>> form = "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32"
    >>> dense = np.tile(np.array([0, 1, 0, 2], np.float16), (16, 4))
    >>> bool((sparse.expand(*sparse.compress(dense, form), form) == dense).all())
    True
    """
    return _sparse.expand(as_row(instruction), stored, meta, immediate(instruction, "selector", selector, 0))


refuse_in_compiled_code((compress, expand), "call it before, and pass what it returns")
