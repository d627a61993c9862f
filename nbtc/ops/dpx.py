"""DPX functions on whole arrays, and inside compiled kernels.

Each row gets its loop when it is first called: thirty-six small compilations that a program using three of them never
pays for.  Arrays become flat unsigned words here; type and range rules of the public functions are here too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numba.core import types
from numba.core.errors import TypingError
from numpy.typing import ArrayLike, NDArray

from nbtc.compiler.callees import overload
from nbtc.compiler.jit import jit
from nbtc.compiler.python_only import compiled_only
from nbtc.errors import FormatError, RangeError, ShapeError
from nbtc.formats.arrays import as_array
from nbtc.numerics.dpx import DpxRow, wins, word

Array = NDArray[Any]
_BLOCK = 1 << 14  # elements a chunk when operands must be copied: four arrays of them stay in the second-level cache


@cache
def kernel(row: DpxRow) -> Callable[..., None]:
    """The compiled loop of a row over flat arrays of words: (a, b[, c], value[, predicates...])."""
    # Only numbers in the closure: they are compile-time constants, and the cache on disk tells rows apart by them.
    scheme, least, bits, signed, relu = row.codes
    upper = np.uint32(16)

    def two(a, b, out):
        for i in range(out.size):
            out[i] = word(a[i], b[i], b[i], scheme, least, bits, signed, relu)

    def three(a, b, c, out):
        for i in range(out.size):
            out[i] = word(a[i], b[i], c[i], scheme, least, bits, signed, relu)

    def one_predicate(a, b, out, first):
        for i in range(out.size):
            x, y = a[i], b[i]
            out[i] = word(x, y, y, scheme, least, bits, signed, relu)
            first[i] = wins(x, y, least, bits, signed)

    def two_predicates(a, b, out, high, low):
        for i in range(out.size):
            x, y = a[i], b[i]
            out[i] = word(x, y, y, scheme, least, bits, signed, relu)
            high[i] = wins(np.uint32(x >> upper), np.uint32(y >> upper), least, bits, signed)
            low[i] = wins(x, y, least, bits, signed)

    loop = (three if row.arity == 3 else two, one_predicate, two_predicates)[row.predicates]
    return jit(loop)  # type: ignore[no-any-return]


def call(row: DpxRow, arguments: tuple[ArrayLike, ...], out: Any = None) -> Any:
    """The function of `row` on anything that broadcasts; see `nbtc.dpx` for the rules."""
    if out is not None:
        outs = _outputs(row, out)
        if _direct(row, arguments, outs):
            kernel(row)(*map(_words, arguments), *map(_flat, outs))
            return out
    inputs = [_operand(row, x, "abc"[i]) for i, x in enumerate(arguments)]
    shape = _shape(row, inputs)
    if out is None:
        outs = [np.empty(shape, d) for d in _dtypes(row)]
        if _direct(row, inputs, outs):
            kernel(row)(*map(_words, inputs), *map(_flat, outs))
        else:
            _broadcast(row, inputs, outs)
        results = tuple(x[()] for x in outs)  # a 0-d array becomes a scalar
        return results if row.predicates else results[0]
    for x in outs:
        if x.shape != shape:
            raise ShapeError(
                f"{row.name}: out has shape {x.shape}, but the operands broadcast to {shape}; "
                f"pass out=np.empty({shape}, {x.dtype})"
            )
    _broadcast(row, inputs, outs)
    return out


def _outputs(row: DpxRow, out: Any) -> list[Array]:
    """The arrays of `out=`: one array, or a tuple of the value and its predicates."""
    outs = list(out) if isinstance(out, tuple) else [out]
    want = _dtypes(row)
    if len(outs) != len(want) or not all(isinstance(x, np.ndarray) for x in outs):
        given = ", ".join(type(x).__name__ for x in outs)
        raise _wrong_out(row, f"out is ({given}), but the function returns {len(want)} array(s)")
    for x, dtype in zip(outs, want, strict=True):
        if x.dtype != dtype:
            raise _wrong_out(row, f"an output array is of {x.dtype}, but its results are {dtype}")
        if not x.flags.writeable:
            raise _wrong_out(row, "an output array is read-only, but results must be written to it")
    return outs


def _dtypes(row: DpxRow) -> tuple[np.dtype[Any], ...]:
    """Types of the results: the value, then its predicates."""
    return (row.dtype,) + (np.dtype(np.bool_),) * row.predicates


def _wrong_out(row: DpxRow, what: str) -> FormatError:
    form = ", ".join(f"np.empty(shape, np.{d})" for d in _dtypes(row))
    return FormatError(f"{row.name}: {what}; pass out={f'({form})' if row.predicates else form}")


def _direct(row: DpxRow, inputs: Sequence[Any], outs: Sequence[Array]) -> bool:
    """Whether the kernel can run on the arrays as they are: same shape, contiguous, native words, no overlap."""
    shape, dtype = outs[0].shape, row.dtype
    for x in inputs:
        if type(x) is not np.ndarray or x.dtype != dtype or x.shape != shape or not x.flags.c_contiguous:
            return False
        for y in outs:
            if np.may_share_memory(x, y):
                return False
    return all(y.shape == shape and y.flags.c_contiguous for y in outs)


def _words(x: Any) -> Array:
    """A flat read-only view of words: read-only always, so that each row is compiled once."""
    flat: Array = x.reshape(-1).view(np.uint32)
    flat.flags.writeable = False
    return flat


def _flat(x: Array) -> Array:
    return x.reshape(-1).view(np.uint32 if x.dtype.itemsize == 4 else np.bool_)


def _broadcast(row: DpxRow, inputs: list[Array], outs: list[Array]) -> None:
    """Run the kernel over contiguous chunks; operands are copied a chunk at a time where they must be."""
    run = kernel(row)
    read, write = ["readonly", "contig"], ["writeonly", "contig"]
    options: dict[str, Any] = {
        "flags": ["external_loop", "buffered", "growinner", "zerosize_ok", "copy_if_overlap"],
        "op_flags": [read] * len(inputs) + [write] * len(outs),
        "op_dtypes": [x.dtype for x in (*inputs, *outs)],
        "buffersize": _BLOCK,
    }
    with np.nditer([*inputs, *outs], **options) as chunks:
        if chunks.itersize == 0:
            return
        for chunk in chunks:
            run(*map(_words, chunk[: len(inputs)]), *map(_flat, chunk[len(inputs) :]))


def _shape(row: DpxRow, inputs: list[Array]) -> tuple[int, ...]:
    if all(x.shape == inputs[0].shape for x in inputs):
        return inputs[0].shape
    try:
        return np.broadcast_shapes(*(x.shape for x in inputs))
    except ValueError:
        shapes = " ".join(str(x.shape) for x in inputs)
        raise ShapeError(
            f"{row.name}: operands of shapes {shapes} do not broadcast; "
            "axes must be equal or 1, as in NumPy: pass for example x[:, None] and y[None, :]"
        ) from None


def _operand(row: DpxRow, x: ArrayLike, label: str) -> Array:
    """An operand as an array of the row's type; values that do not fit raise."""
    if type(x) is np.ndarray and x.dtype == row.dtype:
        return x
    dtype, limits = row.dtype, np.iinfo(row.dtype)
    if isinstance(x, (int, np.integer)) and not isinstance(x, bool):  # scalars, without the cost of min and max
        if not limits.min <= x <= limits.max:
            raise RangeError(_out_of_range(row, label, str(x)))
        return np.array(x, dtype)
    try:
        array = as_array(x)
    except (ValueError, OverflowError) as error:
        raise FormatError(
            f"{row.name}: {label} is not an array of integers ({error}); pass np.array(x, np.{dtype})"
        ) from None
    if array.dtype.kind not in "iu":
        if array.dtype.kind == "O" and all(isinstance(v, int) for v in array.flat):  # Python ints beyond 64 bits
            raise RangeError(_out_of_range(row, label, "a value beyond 64 bits"))
        raise FormatError(
            f"{row.name}: {label} is {array.dtype}, but DPX functions take integers ({dtype}); "
            f"pass np.asarray({label}, np.{dtype}) if the values are whole"
        )
    if array.size and not np.can_cast(array.dtype, dtype):
        low, high = int(array.min()), int(array.max())
        if low < limits.min or high > limits.max:
            raise RangeError(_out_of_range(row, label, str(low if low < limits.min else high)))
    return array.astype(dtype)


def _out_of_range(row: DpxRow, label: str, given: str) -> str:
    limits = np.iinfo(row.dtype)
    return (
        f"{row.name}: {label} holds {given}, outside of {row.dtype}'s {limits.min}..{limits.max}; "
        f"reinterpret bits with x.view(np.{row.dtype}), or pass values in range"
    )


def register(function: Callable[..., Any], row: DpxRow) -> None:
    """Make `function` callable on scalars inside `@njit` functions, where it becomes a few inlined instructions."""
    scheme, least, bits, signed, relu = row.codes
    value = np.int32 if row.format == "s32" else np.uint32
    upper, u32 = np.uint32(16), _int_bits if row.format == "s32" else _word_bits

    def plain2(a, b):
        return value(word(u32(a), u32(b), u32(b), scheme, least, bits, signed, relu))

    def plain3(a, b, c):
        return value(word(u32(a), u32(b), u32(c), scheme, least, bits, signed, relu))

    def predicate1(a, b):
        best = value(word(u32(a), u32(b), u32(b), scheme, least, bits, signed, relu))
        return best, wins(u32(a), u32(b), least, bits, signed)

    def predicate2(a, b):
        best = value(word(u32(a), u32(b), u32(b), scheme, least, bits, signed, relu))
        high = wins(np.uint32(u32(a) >> upper), np.uint32(u32(b) >> upper), least, bits, signed)
        return best, high, wins(u32(a), u32(b), least, bits, signed)

    chosen = (plain3 if row.arity == 3 else plain2, predicate1, predicate2)[row.predicates]
    if row.arity == 3:

        @overload(function)
        def three(a, b, c):
            _check_types(row, (a, b, c))
            return chosen

    else:

        @overload(function)
        def two(a, b):
            _check_types(row, (a, b))
            return chosen


@jit(inline=True)
def _int_bits(x):
    return _bits(x, np.int64(-(1 << 31)), np.int64((1 << 31) - 1))


@jit(inline=True)
def _word_bits(x):
    return _bits(x, np.int64(0), np.int64((1 << 32) - 1))


def _bits(x: Any, least: Any, most: Any) -> Any:
    """An operand as a word: of 32 bits or less its bits, of 64 bits its value, which has to lie in the type's range."""
    raise compiled_only("_bits")


@overload(_bits)
def _typed_bits(x, least, most):
    if x.bitwidth <= 32:
        return lambda x, least, most: np.uint32(x)
    unsigned = not x.signed

    def checked(x, least, most):
        if (unsigned and x > np.uint64(most)) or (not unsigned and (x < least or x > most)):
            raise RangeError(
                "a DPX function inside a compiled function was given a 64-bit integer outside of its type's range: "
                "32-bit integers are taken as bits, so pass np.int32(x) or np.uint32(x)"
            )
        return np.uint32(x)

    return checked


def _check_types(row: DpxRow, given: tuple[Any, ...]) -> None:
    """Only integer scalars; anything else stops the compilation with a reason."""
    for t in given:
        if not isinstance(t, types.Integer):
            raise TypingError(
                f"{row.name} takes integer scalars inside a compiled function, not {t}; "
                f"call it on elements, e.g. {row.name}(a[i], b[i]{', c[i]' * (row.arity == 3)})"
            )
