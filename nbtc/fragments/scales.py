"""Scale registers of block-scaled mma.sync: which lane and byte holds the scale of which row, column and block.

(PTX ISA, "Block Scaling for mma.sync".)  Row R of A has its scales in lane 4 * (R % 8) + 2 * thread + R / 8, column n
of B in lane 4 * n + thread; the scale of chunk j of K is byte `byte` + j of that lane's register.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbtc.errors import FormatError, OptionError, ShapeError
from nbtc.formats.arrays import as_array, to_bits
from nbtc.formats.table import FORMATS
from nbtc.isa.parse import immediate
from nbtc.isa.spec import Operand, Row

BYTES = {1: (0, 1, 2, 3), 2: (0, 2), 4: (0,)}  # legal first bytes, by the scales a row or column has
THREADS = {"a": (0, 1), "b": (0, 1, 2, 3)}  # legal threads: pairs of a quad's lanes for A, one of them for B


class ScaleRegister(NamedTuple):
    """A scale operand: one register a lane, and where in a quad of lanes and in the register its scales are."""

    words: Any
    byte: int = 0
    thread: int = 0


def require_scales(row: Row) -> Row:
    """The row, if it has block scales; OptionError otherwise."""
    if not row.scale:
        raise OptionError(
            f"{row.mnemonic} has no block scales: they belong to kinds mxf8f6f4, mxf4 and mxf4nvf4, for example "
            "mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0"
        )
    return row


def places(row: Row, side: str, byte: int = 0, thread: int = 0) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Lane and byte of each scale of side "a" (16 rows) or "b" (8 columns): int64 (lines,) and (chunks,).

    >>> from nbtc.isa.parse import row
    >>> form = row("mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0")
    >>> places(form, "a", 2, 1)[0][[0, 1, 8]].tolist(), places(form, "b", 2, 3)[0][:2].tolist()
    ([2, 6, 3], [3, 7])
    """
    require_scales(row)
    for name, given, legal in ((f"byte_{side}", byte, BYTES[row.chunks]), (f"thread_{side}", thread, THREADS[side])):
        if isinstance(given, bool) or not isinstance(given, int | np.integer) or given not in legal:
            raise OptionError(
                f"{name}={given!r}: with {row.chunks} scales a {'row' if side == 'a' else 'column'} {row.mnemonic} "
                f"takes {' '.join(map(str, legal))}; pass {name}={legal[0]}"
            )
    lines = np.arange(_lines(row.a if side == "a" else row.b, side))
    lanes = 4 * (lines % 8) + 2 * thread + lines // 8 if side == "a" else 4 * lines + thread
    return lanes, byte + np.arange(row.chunks)


def pack_scale(row: Row, side: str, scales: ArrayLike, byte: int = 0, thread: int = 0) -> NDArray[np.uint32]:
    """Scale registers uint32 (..., 32) of scales (..., M, chunks) of A or (..., chunks, N) of B; other bytes are 0."""
    lanes, where = places(row, side, byte, thread)
    codes = to_bits(scales, FORMATS[row.scale])
    inner = (lanes.size, where.size) if side == "a" else (where.size, lanes.size)
    if codes.shape[-2:] != inner:
        raise ShapeError(
            f"scales of {side.upper()} have shape {codes.shape}, but {row.mnemonic} has {row.chunks} a "
            f"{'row' if side == 'a' else 'column'}: (..., {inner[0]}, {inner[1]})"
        )
    lines = codes if side == "a" else codes.swapaxes(-1, -2)
    octets = np.zeros((*codes.shape[:-2], 32, 4), np.uint8)
    octets[..., lanes[:, None], where] = lines
    return octets.view("<u4")[..., 0].astype(np.uint32, copy=False)


def scale_codes(row: Row, side: str, given: Any) -> NDArray[np.uint8]:
    """Scale codes (..., lines, chunks) of a selected register."""
    words, byte, thread = given if isinstance(given, ScaleRegister) else ScaleRegister(given)
    name = f"scale_{side}"
    if words is None:
        raise OptionError(
            f"{row.mnemonic} needs {name}: uint32 (..., 32), one scale register a lane, as pack_{name} makes it"
        )
    lanes, where = places(row, side, byte, thread)
    found = as_array(words)
    if found.dtype != np.uint32 or found.shape[-1:] != (32,):
        error = FormatError if found.dtype != np.uint32 else ShapeError
        raise error(
            f"{name} is {found.dtype} of shape {found.shape}, but scale registers are uint32 (..., 32), one a lane: "
            f"make them with pack_{name}, or view bytes as uint32"
        )
    octets = np.ascontiguousarray(found).astype("<u4", copy=False).view(np.uint8).reshape(*found.shape, 4)
    return octets[..., lanes[:, None], where]


def selected(source: object, a: tuple[Any, Any, Any], b: tuple[Any, Any, Any]) -> tuple[ScaleRegister, ScaleRegister]:
    """Scale operands (register, byte, thread) of A and B; selectors that are None are those of a whole line, else 0."""
    found = []
    for side, (words, byte, thread) in (("a", a), ("b", b)):
        letter = side.upper()
        byte = immediate(source, f"byte{letter}", byte, 0, f"byte_{side}")
        found.append(ScaleRegister(words, byte, immediate(source, f"thread{letter}", thread, 0, f"thread_{side}")))
    return found[0], found[1]


def no_scales(row: Row, *given: Any) -> None:
    """Raise OptionError when scale operands are given to a form without block scales."""
    for x in given:  # a single warp's call waits for this: no generator
        if x is not None:
            require_scales(row)


def _lines(operand: Operand | None, side: str) -> int:
    """Rows of A or columns of B."""
    if operand is None:
        return 0
    return operand.rows if side == "a" else operand.cols
