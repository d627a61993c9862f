"""For tests of code that must give a tensor core's bits: comparison bit by bit, recordings, hard inputs.

`assert_bits_equal` is what a test calls; `classify` and `ulp_distance` are what its message is made of.  `recordings`
reads a directory of recorded vectors, `nbtc.testing.strategies` makes operands.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbtc.errors import BoundsError, FormatError, GoldenMismatch, ShapeError
from nbtc.formats.arrays import as_array, as_format
from nbtc.formats.table import FORMATS, Format

CLASSES = ("value", "zero sign", "NaN payload", "NaN against number", "Inf")
FAR = np.uint64(2**64 - 1)


class Recording(NamedTuple):
    """One recorded group: the form, the input distribution, its entry of index.json (or {}), its arrays by name."""

    form: str
    distribution: str
    entry: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


def recordings(directory: str | Path, file: str) -> Iterator[Recording]:
    """The groups of one .npz file of a directory of recordings (keys FORM__DISTRIBUTION__ARRAY), in file order.

    Raises BoundsError when the directory has no such file.
    """
    folder = Path(directory)
    path, listing = folder / file, folder / "index.json"
    if not path.is_file():
        have = ", ".join(sorted(p.name for p in folder.glob("*.npz"))) or "no .npz file at all"
        raise BoundsError(
            f"{path} does not exist; {folder} holds {have}: pass one of these to recordings(directory, file)"
        )
    index = json.loads(listing.read_text()) if listing.is_file() else {}
    with np.load(path) as z:
        heads: dict[str, list[str]] = {}
        for key in z.files:
            heads.setdefault(key.rpartition("__")[0], []).append(key)
        for head, keys in heads.items():
            form, _, distribution = head.partition("__")
            arrays = {k.rpartition("__")[2]: z[k] for k in keys}
            yield Recording(form, distribution, index.get(form, {}), arrays)


def raw_bits(x: ArrayLike) -> NDArray[Any]:
    """An array with items of 1, 2, 4 or 8 bytes as unsigned words, whatever its dtype."""
    array = as_array(x)
    if array.dtype.itemsize not in (1, 2, 4, 8) or array.dtype.kind in "OSUMm":
        raise FormatError(
            f"bits of {array.dtype} cannot be compared: pass numbers of 1, 2, 4 or 8 bytes, e.g. np.float32"
        )
    return array.view(f"u{array.dtype.itemsize}")


def _format_of(dtype: np.dtype[Any], fmt: object) -> Format | None:
    """The float format to read words in; None when they are plain integers."""
    if fmt is not None:
        found = as_format(fmt)
    else:
        found = next((f for f in FORMATS.values() if f.dtype == dtype), FORMATS["s32"])
    return found if found.kind == "float" else None


def _magnitude(words: NDArray[Any], fmt: Format) -> tuple[NDArray[np.uint64], NDArray[np.bool_], int]:
    """Codes without their sign, the signs, and the first code past the largest number."""
    shift = np.uint64(13 if fmt.name == "tf32" else 0)
    wide = words.astype(np.uint64) >> shift
    sign = np.uint64(1) << np.uint64(fmt.exponent + fmt.mantissa)
    return wide & (sign - np.uint64(1)), (wide & sign) != 0, fmt.special


def _nan(magnitude: NDArray[np.uint64], infinity: int, fmt: Format) -> NDArray[np.bool_]:
    return np.asarray(magnitude >= np.uint64(infinity) if not fmt.infinite else magnitude > np.uint64(infinity))


def ulp_distance(x: ArrayLike, y: ArrayLike, fmt: object = None) -> NDArray[np.uint64]:
    """How many representable values apart each pair is: 0 for equal values, 1 for neighbours.

    -0 and +0 are equal, an infinity is one above the largest finite value, two NaNs are 0 apart, a NaN and a number
    2**64 - 1.  Integers are apart by their difference.  fmt: the format of unsigned words (default: from the dtype).
    Raises ShapeError and FormatError for arrays that do not match.

    >>> import numpy as np
    >>> ulp_distance(np.float16([1.0, -0.0]), np.float16([1.001, 0.0])).tolist()
    [1, 0]
    """
    a, b, found = _pair(x, y, fmt)
    if found is None:
        left, right = as_array(x), as_array(y)
        more = np.asarray(left > right)
        gap = np.where(more, a.astype(np.uint64) - b.astype(np.uint64), b.astype(np.uint64) - a.astype(np.uint64))
        return np.asarray(gap & np.uint64(2 ** (8 * a.dtype.itemsize) - 1))
    (ma, na, infinity), (mb, nb, _) = _magnitude(a, found), _magnitude(b, found)
    same = na == nb
    gap = np.where(same, np.maximum(ma, mb) - np.minimum(ma, mb), ma + mb)
    nans = _nan(ma, infinity, found), _nan(mb, infinity, found)
    return np.where(nans[0] & nans[1], np.uint64(0), np.where(nans[0] | nans[1], FAR, gap))


def _pair(x: ArrayLike, y: ArrayLike, fmt: object) -> tuple[NDArray[Any], NDArray[Any], Format | None]:
    left, right = as_array(x), as_array(y)
    if left.shape != right.shape:
        raise ShapeError(
            f"shapes {left.shape} and {right.shape} differ: compare arrays of one shape, no broadcasting here"
        )
    if left.dtype != right.dtype:
        raise FormatError(
            f"dtypes {left.dtype} and {right.dtype} differ: compare arrays of one dtype, e.g. x.view({right.dtype}) if "
            "x holds its bits"
        )
    return raw_bits(left), raw_bits(right), _format_of(left.dtype, fmt)


def classify(x: ArrayLike, y: ArrayLike, fmt: object = None) -> dict[str, NDArray[np.bool_]]:
    """Which elements differ, and how: a mask for each of CLASSES ("value" alone for integers).

    >>> import numpy as np
    >>> found = classify(np.float32([0.0, 1.0, np.inf]), np.float32([-0.0, 1.0, 3.0]))
    >>> [name for name, mask in found.items() if mask.any()]
    ['zero sign', 'Inf']
    """
    a, b, found = _pair(x, y, fmt)
    differ = a != b
    masks = {name: np.zeros(a.shape, np.bool_) for name in CLASSES}
    if found is None:
        return masks | {"value": np.asarray(differ)}
    (ma, _, infinity), (mb, _, _) = _magnitude(a, found), _magnitude(b, found)
    na, nb = _nan(ma, infinity, found), _nan(mb, infinity, found)
    infinite = (
        np.zeros(a.shape, np.bool_) if not found.infinite else (ma == np.uint64(infinity)) | (mb == np.uint64(infinity))
    )
    masks["NaN payload"] = differ & na & nb
    masks["NaN against number"] = na ^ nb
    masks["zero sign"] = differ & (ma == 0) & (mb == 0)
    masks["Inf"] = differ & infinite & ~(na | nb)
    masks["value"] = differ & ~(na | nb | infinite | ((ma == 0) & (mb == 0)))
    return {name: np.asarray(mask) for name, mask in masks.items()}


def assert_bits_equal(x: ArrayLike, y: ArrayLike, fmt: object = None, what: str = "") -> None:
    """Raise GoldenMismatch (an AssertionError) unless x and y have the same shape, dtype and bits.

    x: what was computed; y: what is right.  The message counts the differences by class (value, with the largest
    distance in ulps; zero sign; NaN payload; NaN against number; Inf) and shows the first.  fmt: the format that
    unsigned words stand for, e.g. "tf32".  Raises ShapeError and FormatError for arrays that cannot be compared.

    >>> import numpy as np
    >>> assert_bits_equal(np.float32([1.0, np.nan]), np.float32([1.0, np.nan]))
    >>> assert_bits_equal(np.float16([0.0]), np.float16([-0.0]))
    Traceback (most recent call last):
        ...
    nbtc.errors.GoldenMismatch: 1 of 1 differ in bits: 1 zero sign; first at (0,): 0x0000 (0.0), not 0x8000 (-0.0)
    """
    a, b, found = _pair(x, y, fmt)
    differ = np.asarray(a != b)
    if not differ.any():
        return
    parts = []
    for name, mask in classify(x, y, fmt).items():
        count = int(mask.sum())
        if count and name == "value":
            most = int(ulp_distance(x, y, fmt)[mask].max())
            parts.append(f"{count} value (by {most} {'ulps' if found else ''} at most)".replace("  ", " "))
        elif count:
            parts.append(f"{count} {name}")
    at = tuple(int(i) for i in np.argwhere(differ)[0])
    values = [f"0x{int(w[at]):0{2 * w.dtype.itemsize}x} ({_show(v, at, found)})" for w, v in ((a, x), (b, y))]
    raise GoldenMismatch(
        f"{what + ': ' if what else ''}{int(differ.sum())} of {differ.size} differ in bits: {', '.join(parts)}; "
        f"first at {at}: {values[0]}, not {values[1]}"
    )


def _show(x: ArrayLike, at: tuple[int, ...], fmt: Format | None) -> str:
    array = as_array(x)
    if fmt is not None and array.dtype.kind == "u":
        array = array.view(fmt.dtype)
    return str(array[at])
