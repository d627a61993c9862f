"""Arrays <-> element bits: the only file that knows NumPy dtypes, ml_dtypes, torch tensors and DLPack.

Inside nbtc a number is its bits in an unsigned word; this file is where arrays of any library become such words and
where words become arrays again.  Nothing here rounds: a conversion of values is `nbtc.convert`.
"""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any, SupportsIndex, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbtc.compiler.python_only import refuse_in_compiled_code
from nbtc.errors import FormatError, OptionError, RangeError, ShapeError, shown, whole_number
from nbtc.formats.table import FORMATS, Format

_BY_DTYPE = {f.dtype_name: f for f in reversed(tuple(FORMATS.values()))}  # reversed: float32 is f32, not tf32
_EXAMPLE = 'try a format such as nbtc.f16, "bf16", np.float32 or ml_dtypes.float8_e4m3fn'


def _known() -> str:
    return " ".join(FORMATS)


def as_format(x: object) -> Format:
    """The `Format` of a format object, an nbtc or PTX name, a NumPy or ml_dtypes dtype, or a torch dtype.

    float32 means f32; only the name (or object) tf32 means tf32.  Raises FormatError for anything else.

    >>> import numpy as np
    >>> as_format("bf16").name, as_format(np.float16).name, as_format("torch.float8_e5m2").name
    ('bf16', 'f16', 'e5m2')
    """
    if isinstance(x, Format):
        return x
    found = FORMATS.get(x) if isinstance(x, str) else None
    found = found or _BY_DTYPE.get(_dtype_name(x))
    if found is None:
        raise FormatError(f"{shown(x)} names no number format; formats are {_known()}: {_EXAMPLE}")
    return found


@lru_cache(maxsize=64)
def dtype_name(dtype: np.dtype[Any]) -> str:
    """Its name, which NumPy makes anew at every question."""
    return dtype.name


def _dtype_name(x: object) -> str:
    """The NumPy-style name of a dtype, without importing the library it comes from; "" when it is none."""
    if isinstance(x, str):
        return x.removeprefix("torch.")
    if type(x).__module__.partition(".")[0] == "torch":
        return str(x).removeprefix("torch.")
    if isinstance(x, np.dtype):
        return dtype_name(x)
    if x is None or isinstance(x, int):  # np.dtype(None) would be float64
        return ""
    try:
        return np.dtype(x).name  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError):  # ValueError: a dict that describes no fields
        return ""


def as_array(x: ArrayLike) -> NDArray[Any]:
    """`x` as a NumPy array of native byte order, without a copy where its library allows it.

    Takes arrays, nested lists, torch tensors (bfloat16 and float8 too) and anything that speaks DLPack.  Subclasses,
    such as np.matrix and np.memmap, count as the plain arrays they hold.  Raises FormatError for a masked array, and
    for a tensor that requires a gradient while PyTorch records gradients.
    """
    if type(x) is np.ndarray:
        array: NDArray[Any] = x
    elif isinstance(x, np.ndarray):
        array = _plain(x)
    elif is_tensor(x):
        array = _from_torch(x)
    elif hasattr(x, "__dlpack__") and not hasattr(x, "__array__"):
        array = np.from_dlpack(cast(Any, x))
    else:
        array = _listed(x)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def as_flag(x: object, name: str) -> bool:
    """An option that is on or off: a bool of Python or NumPy, or 0 or 1.  Raises OptionError for anything else.

    >>> as_flag(True, "trans"), as_flag(np.False_, "trans"), as_flag(1, "trans")
    (True, False, True)
    """
    if not isinstance(x, bool | np.bool_) and whole_number(x) not in (0, 1):
        raise OptionError(f"{name}={shown(x)} is neither True nor False: pass {name}=True or {name}=False")
    return bool(x)


def _listed(x: Any) -> NDArray[Any]:
    try:
        return np.asarray(x)
    except ValueError:  # lists of different lengths
        raise FormatError(
            f"{shown(x)} is not an array: its rows have different lengths; pass a rectangular one"
        ) from None


def _plain(x: NDArray[Any]) -> NDArray[Any]:
    """The array that a subclass holds, without a copy; products and conversions have no rule for masked elements."""
    if isinstance(x, np.ma.MaskedArray):
        raise FormatError(
            f"a masked array of shape {x.shape} was given, and nbtc has no rule for elements that are masked: pass "
            "x.filled(0) for zeros in their place, or x.data to use all elements"
        )
    return x.view(np.ndarray)


def is_tensor(x: object) -> bool:
    """Whether x is torch's."""
    return "torch" in sys.modules and type(x).__module__.partition(".")[0] == "torch"


def _from_torch(x: Any) -> NDArray[Any]:
    """A torch tensor as an array; formats NumPy lacks travel as integers of their width."""
    torch = sys.modules["torch"]
    if x.requires_grad and torch.is_grad_enabled():
        raise FormatError(
            f"a tensor of shape {tuple(x.shape)} requires a gradient, which a product outside of PyTorch would lose: "
            "pass x.detach(), or compute with PyTorch's own operations inside `with nbtc.torch.emulated(...):`"
        )
    x = x.detach().cpu()
    if x.is_neg():
        x = x.resolve_neg()
    fmt = _BY_DTYPE.get(_dtype_name(x.dtype))
    if fmt is None or hasattr(np, fmt.dtype_name):
        array: NDArray[Any] = x.numpy()
        return array
    words: NDArray[Any] = x.view(torch.int16 if fmt.bits == 16 else torch.uint8).numpy()
    return words.view(fmt.dtype)


def as_given(result: NDArray[Any], *given: object) -> Any:
    """`result` as a torch tensor that shares its memory if any of `given` is one and torch has its dtype; else itself.

    >>> import numpy as np
    >>> as_given(np.zeros(2, np.float32), [1, 2], None)
    array([0., 0.], dtype=float32)
    """
    torch = sys.modules.get("torch")
    if torch is None or not any(is_tensor(x) for x in given):
        return result
    if hasattr(np, result.dtype.name):
        return torch.from_numpy(result)
    fmt, dtype = _BY_DTYPE.get(result.dtype.name), getattr(torch, result.dtype.name, None)
    if fmt is None or fmt.bits < 8 or dtype is None:  # torch's names of smaller formats hold no elements of them
        return result
    return torch.from_numpy(result.view(np.int16 if result.dtype.itemsize == 2 else np.uint8)).view(dtype)


def to_bits(array: ArrayLike, fmt: object = None) -> NDArray[Any]:
    """The elements of `array` as unsigned words of the same shape, a view where possible.

    fmt: the format the elements are in (default: that of the dtype).  bool gives uint8 0/1, formats of 4, 6 and 7 bits
    give uint8 without the bits above.  Raises FormatError when the dtype does not carry the format.

    >>> import numpy as np
    >>> [hex(v) for v in to_bits(np.array([1.0, -2.0], np.float16))]
    ['0x3c00', '0xc000']
    """
    x = as_array(array)
    f = as_format(x.dtype if fmt is None else fmt)
    if x.dtype != f.dtype:
        raise FormatError(
            f"format {f.name} is carried by {f.dtype} arrays, not by {x.dtype}: pass x.astype({f.dtype}) to convert "
            f"the values, or x.view({f.dtype}) if these are already its bits"
        )
    return significant(x.view(f.bits_dtype), f)


def significant(words: NDArray[Any], f: Format) -> NDArray[Any]:
    """Words without the bits that a format of fewer than 8 leaves unused; `words` itself where there are none."""
    if f.bits == 1:  # NumPy counts any byte but 0 as true
        return np.not_equal(words, 0).view(np.uint8) if words.size and words.max() > 1 else words
    if f.bits >= 8:
        return words
    return np.asarray(np.bitwise_and(words, np.uint8((1 << f.bits) - 1)))


def from_bits(bits: ArrayLike, fmt: object) -> NDArray[Any]:
    """Words of a format's item size as an array of its dtype, the inverse of `to_bits`; a view but for b1.

    >>> import numpy as np
    >>> from_bits(np.array([0x3C00, 0xC000], np.uint16), "f16").tolist()
    [1.0, -2.0]
    """
    f = as_format(fmt)
    words = as_array(bits)
    if words.dtype.kind not in "ui" or words.dtype.itemsize != f.bits_dtype.itemsize:
        raise FormatError(
            f"bits of {f.name} are {f.bits_dtype} words, not {words.dtype}: pass bits.astype(np.{f.bits_dtype})"
        )
    if f.bits == 1:
        return np.asarray(np.bitwise_and(words, 1), np.bool_)
    values: NDArray[Any] = words.view(f.dtype)
    return values


def pack(x: ArrayLike, fmt: object, axis: SupportsIndex = -1) -> NDArray[np.uint32]:
    """Elements smaller than a byte, packed into uint32 words as registers hold them.

    x: any shape (s4, u4: ml_dtypes.int4 / uint4 or integers in range; b1: bool or integers 0 and 1; e2m1:
    ml_dtypes.float4_e2m1fn).  Element 0 of `axis` is in the low bits of word 0.  A word has 8 elements of a 4-bit
    format and 32 of b1; the last word is padded with zeros.  The result has ceil(n / per_word) words along `axis`.
    Raises RangeError for a value that the format lacks, FormatError for other float arrays, for formats that fill bytes
    and for those of 6 bits, which fill no byte evenly.  (PTX ISA, "Sub-byte types" of the matrix fragments.)

    >>> import numpy as np
    >>> [hex(w) for w in pack(np.array([1, 2, -1, 0, 0, 0, 0, 0, 7]), "s4")]
    ['0xf21', '0x7']
    """
    f = _packed_format(fmt, "pack")
    given, x = x, as_array(x)
    at = _axis(axis, x.ndim)
    codes = np.moveaxis(_codes(x, f), at, -1)
    pad = -codes.shape[-1] % f.per_word
    if pad:
        codes = np.concatenate([codes, np.zeros((*codes.shape[:-1], pad), np.uint8)], -1)
    if f.bits == 1:
        octets = np.packbits(codes, axis=-1, bitorder="little")
    else:
        octets = codes[..., 0::2] | codes[..., 1::2] << np.uint8(4)
    words = np.ascontiguousarray(octets).view("<u4").astype(np.uint32, copy=False)
    packed: NDArray[np.uint32] = as_given(np.ascontiguousarray(np.moveaxis(words, -1, at)), given)
    return packed


def unpack(words: ArrayLike, fmt: object, axis: SupportsIndex = -1, count: int | None = None) -> NDArray[Any]:
    """The elements of packed uint32 words as an array of the format's dtype: the inverse of `pack`.

    words: uint32 (int32 is taken as the same bits), any shape.  count: how many elements to keep along `axis` (default:
    all).  Raises FormatError for other dtypes or formats, RangeError when count is negative or exceeds what the
    words hold.

    >>> import numpy as np
    >>> unpack(np.array([0xF21], np.uint32), "s4", count=3).tolist()
    [1, 2, -1]
    """
    f = _packed_format(fmt, "unpack")
    x = as_array(words)
    if x.dtype not in (np.dtype(np.uint32), np.dtype(np.int32)):
        raise FormatError(f"packed words are uint32, not {x.dtype}: unpack(words.view(np.uint32), {f.name!r})")
    at = _axis(axis, x.ndim)
    total = x.shape[at] * f.per_word
    keep = total if count is None else _count(count, total, f)
    octets = np.ascontiguousarray(np.moveaxis(x, at, -1)).astype("<u4", copy=False).view(np.uint8)
    if f.bits == 1:
        codes = np.unpackbits(octets, axis=-1, bitorder="little")
    else:
        codes = np.stack([octets & np.uint8(15), octets >> np.uint8(4)], -1).reshape(*octets.shape[:-1], total)
    elements: NDArray[Any] = as_given(from_bits(np.ascontiguousarray(np.moveaxis(codes[..., :keep], -1, at)), f), words)
    return elements


def _packed_format(fmt: object, caller: str) -> Format:
    f = as_format(fmt)
    if not f.packed:
        raise FormatError(
            f"{caller} takes the formats that share bytes evenly (s4 u4 e2m1 b1), not {f.name}, one element a byte: "
            f"x.view(np.uint32) gives the words of a contiguous array, nbtc.{caller}(x, nbtc.s4) packs nibbles"
        )
    return f


def _axis(axis: SupportsIndex, ndim: int) -> int:
    at = whole_number(axis)
    if at is None:
        raise OptionError(f"axis={shown(axis)} is not an axis: pass a whole number, for example axis=-1")
    if not -ndim <= at < ndim:
        raise ShapeError(
            f"axis={shown(at)} is outside of an array with {ndim} dimensions: pass at least 1-D data and axis=-1"
        )
    return at % ndim


def _count(count: int, total: int, f: Format) -> int:
    keep = whole_number(count)
    if keep is None:
        raise OptionError(
            f"count={shown(count)} is not a number of elements: pass 0 to {total}, or None for all of them"
        )
    if not 0 <= keep <= total:
        raise RangeError(
            f"count={shown(keep)} elements of {f.name} cannot come from words that hold {total}: pass at most that"
        )
    return keep


def _codes(x: NDArray[Any], f: Format) -> NDArray[np.uint8]:
    """Element codes (one uint8 each) of integers whose values all fit `f`."""
    if x.dtype == f.dtype:
        return to_bits(x, f)
    if f.kind == "float":
        raise FormatError(
            f"pack takes {f.dtype} arrays for {f.name}, not {x.dtype}: round first, nbtc.pack(nbtc.convert(x, "
            f"{f.name!r}), {f.name!r}), or x.view({f.dtype}) if these are codes already"
        )
    values = x
    if x.dtype.name in ("int4", "uint4"):
        values = x.astype(np.int8)
    elif x.dtype.kind not in "uib":
        raise FormatError(
            f"pack takes integers or {f.dtype} for {f.name}, not {x.dtype}: round first, for example "
            f"nbtc.pack(np.rint(x).astype(np.int8), {f.name!r})"
        )
    if values.size and (int(values.min()) < f.low or int(values.max()) > f.high):
        bad = next(int(v) for v in values.flat if not f.low <= int(v) <= f.high)
        raise RangeError(
            f"value {bad} does not fit {f.name} ({f.low} to {f.high}): "
            f"clip first, for example nbtc.pack(np.clip(x, {f.low}, {f.high}), {f.name!r})"
        )
    return values.astype(np.uint8) & np.uint8((1 << f.bits) - 1)


refuse_in_compiled_code((as_format, pack, unpack), "call it before or after")
