"""WMMA in the words of CUDA C++ (CUDA C++ Programming Guide, "Warp Matrix Functions").

From Python a fragment is that of a whole warp, or of a batch of warps.  `frag.x[t]` is element t of every lane, so
element-wise code reads as in CUDA C++.  Memory is a typed array, one tile a warp; offsets and leading dimensions
count elements.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbtc.compiler.python_only import PythonOnly, refuse_in_compiled_code
from nbtc.errors import FormatError, OptionError, RangeError, ShapeError, shown, whole_number
from nbtc.formats.arrays import as_array, as_flag, as_format
from nbtc.formats.conversions import convert
from nbtc.formats.table import FORMATS, Format
from nbtc.isa.spec import Operand
from nbtc.isa.wmma import fragment as fragment_operand
from nbtc.isa.wmma_names import AccumulateOp, BitOp, MatrixLayout, MemoryLayout, Namespace, Use
from nbtc.isa.wmma_products import memory_layout, product_row, saturation
from nbtc.numba_door import wmma as inside
from nbtc.numba_door.registry import refresh_numba_registry
from nbtc.ops.memory import wmma as _wmma
from nbtc.ops.memory.typed import place
from nbtc.ops.mma import product as _mma

__all__ = [
    "accumulator", "bmmaAccumulateOpPOPC", "bmmaBitOpAND", "bmmaBitOpXOR", "bmma_sync", "col_major", "element_type",
    "experimental", "fill_fragment", "float_to_tf32", "fragment", "load_matrix_sync", "matrix_a", "matrix_b",
    "mem_col_major", "mem_row_major", "mma_sync", "precision", "row_major", "storage_element_type", "store_matrix_sync",
]  # fmt: skip


matrix_a: Use = Use.matrix_a
matrix_b: Use = Use.matrix_b
accumulator: Use = Use.accumulator
row_major: MatrixLayout = MatrixLayout.row_major
col_major: MatrixLayout = MatrixLayout.col_major
mem_row_major: MemoryLayout = MemoryLayout.mem_row_major
mem_col_major: MemoryLayout = MemoryLayout.mem_col_major
bmmaBitOpXOR: BitOp = BitOp.bmmaBitOpXOR
bmmaBitOpAND: BitOp = BitOp.bmmaBitOpAND
bmmaAccumulateOpPOPC = AccumulateOp.bmmaAccumulateOpPOPC


class precision(metaclass=Namespace):
    """Element types that exist only in fragments."""

    tf32: Format = FORMATS["tf32"]


class experimental(metaclass=Namespace):
    """`experimental.precision`: element types below a byte."""

    class precision(metaclass=Namespace):
        """The types."""

        u4: Format = FORMATS["u4"]
        s4: Format = FORMATS["s4"]
        b1: Format = FORMATS["b1"]


class fragment(PythonOnly):
    """A tile of a matrix, spread over the lanes of a warp (or of each warp of a batch).

    use: matrix_a (m x k), matrix_b (k x n) or accumulator (m x n).  T: element type.  layout: row_major or col_major
    for matrix_a and matrix_b, None for an accumulator.  batch: leading axes of independent warps.

    x: array (num_elements, *batch, 32): element t of every lane is x[t].  For s4, u4 and b1 it holds packed words,
    (num_storage_elements, *batch, 32).  CUDA does not specify which matrix element a slot holds; here it is as on sm_80
    to sm_121.  Raises OptionError and FormatError for a combination that does not exist.

    >>> import nbtc
    >>> c = fragment(accumulator, 16, 16, 16, nbtc.f32)
    >>> fill_fragment(c, 1.5)
    >>> for t in range(c.num_elements):
    ...     c.x[t] *= 2
    >>> c.num_elements, c.x.shape, float(c.x[0, 0])
    (8, (8, 32), 3.0)
    """

    def __init__(
        self, use: Use, m: int, n: int, k: int, T: object, layout: MatrixLayout | None = None, batch: Any = ()
    ) -> None:
        self.use: Use = _member(use, Use, "use")
        self.layout: MatrixLayout | None = layout
        self.shape: tuple[int, int, int] = (_count(m, "m"), _count(n, "n"), _count(k, "k"))
        fmt = as_format(T)
        if self.use is not Use.accumulator:
            _member(layout, MatrixLayout, "layout")
            fmt = FORMATS["tf32"] if fmt.name == "f32" else fmt  # a float32 multiplicand is read as tf32
        elif layout is not None:
            raise OptionError(
                f"layout={shown(layout)}: an accumulator has none, its layout is an argument of load_matrix_sync and "
                "store_matrix_sync: fragment(accumulator, 16, 16, 16, nbtc.f32)"
            )
        self.element_type = fmt
        lead = batch if isinstance(batch, tuple | list) else (batch,)
        self.batch: tuple[int, ...] = tuple(_count(v, "batch") for v in lead)
        self.operand: Operand = fragment_operand(self.use.value, self.shape, fmt, layout.value if layout else "row")
        self._x = np.zeros((self.num_storage_elements, *self.batch, 32), self.storage_element_type)

    @property
    def format(self) -> Format:
        """The element type."""
        return self.element_type

    @property
    def num_elements(self) -> int:
        """The number of elements that each lane holds."""
        return self.operand.elements

    @property
    def num_storage_elements(self) -> int:
        """Items of x: elements, or words of packed ones."""
        return self.operand.registers if self.element_type.packed else self.operand.elements

    @property
    def storage_element_type(self) -> np.dtype[Any]:
        """dtype of x."""
        return storage_element_type(self.element_type)

    @property
    def x(self) -> NDArray[Any]:
        """The elements, to be read and written."""
        return self._x

    @x.setter
    def x(self, value: ArrayLike) -> None:
        self._x[...] = value

    def __repr__(self) -> str:
        m, n, k = self.shape
        end = f", {self.layout.name}" if self.layout else ""
        return f"fragment({self.use.name}, {m}, {n}, {k}, {self.element_type.name}{end}, batch={self.batch})"

    def _image(self) -> NDArray[np.uint32]:
        return np.ascontiguousarray(np.moveaxis(self._x, 0, -1)).view(np.uint32)

    def _take(self, words: NDArray[np.uint32]) -> None:
        self._x[...] = np.moveaxis(words.view(self._x.dtype), -1, 0)


def _count(value: Any, name: str) -> int:
    found = whole_number(value)
    if found is None or not 0 <= found < 1 << 40:
        raise OptionError(
            f"{name}={shown(value)} is not a size: pass whole numbers, as in fragment(matrix_a, 16, 16, 16, nbtc.f16, "
            "row_major, batch=4)"
        )
    return found


def _member(value: Any, kind: type[Enum], name: str) -> Any:
    if not isinstance(value, kind):
        legal = " or ".join(f"wmma.{m.name}" for m in kind)
        raise OptionError(
            f"{name}={shown(value)} is not legal here; pass {name}={legal} (an object of nbtc.wmma, not a string)"
        )
    return value


def element_type(T: object) -> Format:
    """The element type of a fragment or of a type name.

    >>> element_type(experimental.precision.s4).name
    's4'
    """
    return T.element_type if isinstance(T, fragment) else as_format(T)


def storage_element_type(T: object) -> np.dtype[Any]:
    """dtype of a fragment's x: the element's own, or int32 (s4) and uint32 (u4, b1) words of packed ones.

    >>> storage_element_type(experimental.precision.s4).name, storage_element_type("bf16").name
    ('int32', 'bfloat16')
    """
    fmt = element_type(T)
    return np.dtype(np.int32 if fmt.signed else np.uint32) if fmt.packed else fmt.dtype


def float_to_tf32(x: ArrayLike) -> NDArray[np.float32]:
    """f32 rounded to tf32, ties away from zero, as `__float_to_tf32` does (cvt.rna.tf32.f32).

    >>> import numpy as np
    >>> float(float_to_tf32(np.float32(1.0004883)))
    1.0009765625
    """
    array = as_array(x)
    if array.dtype.kind not in "iuf":
        raise FormatError(f"float_to_tf32({shown(x)}): {array.dtype} is not a real number: pass float32")
    with np.errstate(over="ignore"):
        return np.asarray(convert(array.astype(np.float32), "tf32", rounding="rna"), np.float32)


def fill_fragment(frag: fragment, v: Any) -> None:
    """Set every element of a fragment (of s4, u4 and b1: replicate the low bits of v).

    v: a number, or an array that broadcasts to (*batch, 32); one too large for a float format becomes Inf, as in CUDA.
    Raises RangeError for a value that an integer type lacks, FormatError for anything that is not a number and for a
    non-integer in an integer fragment, ShapeError for an array that does not broadcast.

    >>> from nbtc import wmma
    >>> c = wmma.fragment(wmma.accumulator, 16, 16, 16, "f32")
    >>> wmma.fill_fragment(c, 1.5)
    >>> c.x.shape, float(c.x[7, 31])
    ((8, 32), 1.5)
    """
    fmt, label = _fragment(frag, "fill_fragment").element_type, f"fill_fragment({frag})"
    values = _numbers(v, fmt, label)
    if values.shape and not _broadcasts(values.shape, frag.x.shape[1:]):
        raise ShapeError(f"{label}: values of shape {values.shape} do not broadcast to {frag.x.shape[1:]}, one a lane")
    if fmt.kind == "float":
        with np.errstate(over="ignore"):
            frag.x[...] = values
    elif fmt.packed:
        words = values.astype(np.uint32) * np.uint32(sum(1 << i for i in range(0, 32, fmt.bits)))
        frag.x[...] = words.view(frag.x.dtype)
    else:
        frag.x[...] = values


def _numbers(v: Any, fmt: Format, label: str) -> NDArray[Any]:
    """The value or values of `fill_fragment`, checked against the format."""
    if isinstance(v, int) and not isinstance(v, bool) and fmt.packed:
        v &= (1 << fmt.bits) - 1
    elif isinstance(v, int) and fmt.kind == "float" and abs(v) >= 1 << 1024:
        v = np.inf if v > 0 else -np.inf
    elif isinstance(v, int) and abs(v) >= 1 << 63:
        raise RangeError(f"{label}: {shown(v)} is too large: {fmt.name} holds {fmt.low} to {fmt.high}")
    try:
        values = np.asarray(as_array(v))
    except (ValueError, TypeError):
        values = np.asarray(None)
    integers = fmt.kind != "float"
    if values.dtype.kind not in ("iub" if integers else "iubfV") or values.dtype.names:
        raise FormatError(
            f"{label}: {shown(v)} ({values.dtype}) is not a {fmt.name} number: pass "
            f"{'an int' if integers else 'a number'}, such as 0"
        )
    if fmt.packed:
        return values & values.dtype.type((1 << fmt.bits) - 1) if values.dtype.kind != "b" else values
    if integers and values.size and (int(values.min()) < fmt.low or int(values.max()) > fmt.high):
        raise RangeError(f"{label}: {shown(v)} is outside of {fmt.name}, {fmt.low} to {fmt.high}: clip it first")
    return values


def _fragment(x: Any, name: str) -> fragment:
    if not isinstance(x, fragment):
        raise FormatError(
            f"{name} works on a fragment, not on {shown(x)}: make one with "
            "wmma.fragment(wmma.accumulator, 16, 16, 16, nbtc.f32)"
        )
    return x


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    try:
        return np.broadcast_shapes(shape, to) == to
    except ValueError:
        return False


def load_matrix_sync(
    frag: fragment, mem: ArrayLike, ldm: int, layout: MemoryLayout | None = None, offset: int = 0
) -> None:
    """Load a tile into a fragment.

    mem: (*batch, elements) of the fragment's dtype, or (elements,) for all warps; for s4, u4 and b1 packed uint32
    words.  A matrix, or a block of one such as D[16:32, 16:32], is read as it lies in memory: (*batch, lines,
    elements).  ldm: elements from one row (column) of the tile to the next, a multiple of 16 bytes, or of the tile's
    line if that is shorter.  layout: mem_row_major or mem_col_major, accumulators only.  offset: elements from the
    start to the tile, a multiple of 32 bytes.  Raises AlignmentError, BoundsError, RangeError, FormatError, ShapeError,
    OptionError.

    >>> import numpy as np, nbtc
    >>> a = fragment(matrix_a, 16, 16, 16, nbtc.f16, row_major)
    >>> load_matrix_sync(a, np.arange(256, dtype=np.float16), 16)
    >>> a.x[:4, 0].tolist()
    [0.0, 1.0, 128.0, 129.0]
    """
    order, operand = memory_layout(_fragment(frag, "load_matrix_sync"), layout, "load_matrix_sync"), frag.operand
    tile = place(mem, operand, frag.batch, order, ldm, offset, f"load_matrix_sync({frag})", write=False)
    words = _wmma.gather(tile.memory, tile.start, operand, order, tile.ldm)
    frag._take(np.broadcast_to(words, (*frag.batch, *words.shape[-2:])) if words.shape[:-2] != frag.batch else words)


def store_matrix_sync(mem: NDArray[Any], frag: fragment, ldm: int, layout: MemoryLayout, offset: int = 0) -> None:
    """Store an accumulator in place: mem is (*batch, elements) or (*batch, lines, elements), writable.

    Everything else is as in `load_matrix_sync`.

    >>> import numpy as np, nbtc
    >>> c, out = fragment(accumulator, 16, 16, 16, nbtc.f32), np.zeros(256, np.float32)
    >>> fill_fragment(c, 2.0)
    >>> store_matrix_sync(out, c, 16, mem_row_major)
    >>> float(out.sum())
    512.0
    """
    if _fragment(frag, "store_matrix_sync").use is not Use.accumulator:
        raise OptionError(
            f"store_matrix_sync takes an accumulator, not {frag}: CUDA stores no others; use frag.x to read them"
        )
    order, operand = memory_layout(frag, layout, "store_matrix_sync"), frag.operand
    tile = place(mem, operand, frag.batch, order, ldm, offset, f"store_matrix_sync({frag})", write=True)
    _wmma.scatter(tile.memory, tile.start, operand, order, tile.ldm, frag._image())


def _multiply(d: fragment, a: fragment, b: fragment, c: fragment, saturate: bool, op: str | None, arch: object) -> None:
    uses = tuple(f.use.name if isinstance(f, fragment) else shown(f) for f in (d, a, b, c))
    if uses != ("accumulator", "matrix_a", "matrix_b", "accumulator"):
        raise OptionError(
            f"the fragments are {', '.join(uses)}; the order is d, a, b, c: accumulator, matrix_a, "
            "matrix_b, accumulator"
        )
    rule = saturation(d, saturate)
    found = product_row(d, a, b, c, rule.clamps, op)
    plan = _mma.prepare(found, arch, 0, common=True)
    _check_batches(d, a, b, c)
    words = _mma.perform(plan, a._image(), b._image(), c._image())
    d._take(np.broadcast_to(words, (*d.batch, *words.shape[-2:])))
    if rule.makes_finite:
        _saturate(d)


def _check_batches(d: fragment, *others: fragment) -> None:
    try:
        good = np.broadcast_shapes(d.batch, *(f.batch for f in others)) == d.batch
    except ValueError:
        good = False
    if not good:
        raise ShapeError(
            f"batches {[f.batch for f in others]} of a, b, c do not broadcast to {d.batch} of d: make all fragments "
            "with "
            f"batch={d.batch}, or those shared by all warps with batch=()"
        )


def _saturate(d: fragment) -> None:
    """The guide's old rule for floats: infinities become the largest number, NaN becomes +0."""
    x = d.x
    largest = np.finfo(x.dtype).max
    d.x = np.where(np.isnan(x), x.dtype.type(0), np.clip(x, -largest, largest))


def mma_sync(d: fragment, a: fragment, b: fragment, c: fragment, satf: bool = False, *, arch: object = "sm_90") -> None:
    """D = A * B + C; d may be c.

    satf: clamp integers to s32 instead of wrapping; in floats turn Inf into the largest number and NaN into +0 (as the
    guide once said).  arch: the architecture whose arithmetic is used.  Batches broadcast to d's.  Raises FormatError
    for types that don't go together, ShapeError, OptionError, UnsupportedInstructionError.

    >>> import nbtc
    >>> a, b = (fragment(u, 16, 16, 16, nbtc.f16, row_major) for u in (matrix_a, matrix_b))
    >>> c = fragment(accumulator, 16, 16, 16, nbtc.f32)
    >>> fill_fragment(a, 1); fill_fragment(b, 0.5); fill_fragment(c, 1)
    >>> mma_sync(c, a, b, c)
    >>> float(c.x[0, 0])
    9.0
    """
    _multiply(d, a, b, c, as_flag(satf, "satf"), None, arch)


def bmma_sync(
    d: fragment, a: fragment, b: fragment, c: fragment, op: BitOp = bmmaBitOpXOR,
    acc: AccumulateOp = bmmaAccumulateOpPOPC, *, arch: object = "sm_90",
) -> None:  # fmt: skip
    """D = C + popcount(row of A op column of B), b1 fragments of 8x8x128; s32 wraps.

    op: bmmaBitOpXOR or bmmaBitOpAND (sm_80 and later).  Errors as `mma_sync`.

    >>> from nbtc import wmma
    >>> b1 = wmma.experimental.precision.b1
    >>> a = wmma.fragment(wmma.matrix_a, 8, 8, 128, b1, wmma.row_major)
    >>> b = wmma.fragment(wmma.matrix_b, 8, 8, 128, b1, wmma.col_major)
    >>> c = wmma.fragment(wmma.accumulator, 8, 8, 128, "s32")
    >>> wmma.fill_fragment(a, 1); wmma.fill_fragment(b, 0); wmma.fill_fragment(c, 2)
    >>> wmma.bmma_sync(c, a, b, c)
    >>> int(c.x[0, 0])  # all of 128 bits differ
    130
    """
    _member(op, BitOp, "op")
    _member(acc, AccumulateOp, "acc")
    _multiply(d, a, b, c, False, "xor" if op is bmmaBitOpXOR else "and", arch)


inside.register({name: globals()[name] for name in __all__})
refuse_in_compiled_code((element_type, float_to_tf32, storage_element_type), "call it before, and pass what it returns")
refresh_numba_registry()
