"""Tensor maps: what a bulk tensor copy (TMA) knows of the array it copies from or to.

(CUDA driver API, "Tensor Map Object Management"; PTX ISA, "Tensors", "tensormap.replace".)  NVIDIA keeps the 128 bytes
secret, so nbtc has a layout of its own, `LAYOUT`, which the executor's copies and `tensormap.replace` read and write.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from nbtc.errors import AlignmentError, FormatError, OptionError, RangeError, ShapeError, shown
from nbtc.formats.arrays import as_array
from nbtc.formats.device_arrays import DeviceArray, device_array, is_device_array

BYTES = 128  # of a tensor map
MOST_DIMS = 5
LAYOUT = np.dtype(
    [
        ("global_address", "<u8"), ("rank", "<u4"), ("elemtype", "u1"), ("interleave_layout", "u1"),
        ("swizzle_mode", "u1"), ("fill_mode", "u1"), ("box_dim", "<u4", MOST_DIMS), ("global_dim", "<u4", MOST_DIMS),
        ("global_stride", "<u8", MOST_DIMS - 1), ("element_stride", "<u4", MOST_DIMS), ("lower", "<i2", 3),
        ("upper", "<i2", 3), ("channels", "<u2"), ("pixels", "<u2"), ("im2col", "<u2"), ("swizzle_atomicity", "<u2"),
    ]
)  # fmt: skip


class Element(NamedTuple):
    """An element type: its number in `tensormap.replace.elemtype`, bytes, and the letter of its NumPy kind."""

    number: int
    size: int
    kind: str


ELEMENTS = {  # PTX ISA, the table of `.elemtype`
    "u8": Element(0, 1, "u"), "u16": Element(1, 2, "u"), "u32": Element(2, 4, "u"), "s32": Element(3, 4, "i"),
    "u64": Element(4, 8, "u"), "s64": Element(5, 8, "i"), "f16": Element(6, 2, "f"), "f32": Element(7, 4, "f"),
    "f32_ftz": Element(8, 4, "f"), "f64": Element(9, 8, "f"), "bf16": Element(10, 2, "f"),
    "tf32": Element(11, 4, "f"), "tf32_ftz": Element(12, 4, "f"), "b4x16_p64": Element(14, 1, "u"),
}  # fmt: skip
PADDED = ELEMENTS["b4x16_p64"].number  # 16 elements are 8 bytes of the array and, with a gap of 8, 16 of shared memory
PADDED_ROW = 128  # elements: dimensions, boxes and coordinates are multiples (CUDA driver API, cuTensorMapEncodeTiled)
PADDED_ALIGN = 32  # bytes: addresses and strides are multiples
SIZES = np.zeros(max(e.number for e in ELEMENTS.values()) + 1, np.int64)  # in shared memory, by number
for _element_type in ELEMENTS.values():
    SIZES[_element_type.number] = _element_type.size
_BY_DTYPE = {
    "uint8": "u8", "int8": "u8", "bool": "u8", "uint16": "u16", "int16": "u16", "uint32": "u32", "int32": "s32",
    "uint64": "u64", "int64": "s64", "float16": "f16", "float32": "f32", "float64": "f64", "bfloat16": "bf16",
    "float8_e4m3fn": "u8", "float8_e5m2": "u8",
}  # fmt: skip
SWIZZLES = {"none": 0, "32B": 1, "64B": 2, "128B": 3}
INTERLEAVES = {"none": 0}
FILLS = {"zero": 0, "nan": 1}
UNIT = 16  # bytes: addresses, strides and the innermost row of a box are multiples
MOST_BOX = 256  # elements of a box along a dimension, and channels of a pixel
MOST_PIXELS = 1024  # of a column
CORNER_BITS = {3: 16, 4: 8, 5: 5}  # of a corner of a box of pixels, by the map's dimensions (PTX ISA, "im2col mode")


class PixelBox(NamedTuple):
    """What a copy in im2col mode takes, spatial dimensions innermost first (width, height, depth).

    lower, upper: corners of the box that pixels come from, as distances from the image's first and last pixel.
    channels: elements of a pixel that are copied.  pixels: pixels of a column, one after the other in shared memory.
    """

    lower: tuple[int, ...]
    upper: tuple[int, ...]
    channels: int
    pixels: int


class TensorMap:
    """The tensor map of an array: what a `.tensormap` parameter of a program takes.

    array: the array that is copied from or to, with 1 to 5 dimensions, of which the last is contiguous and the others
    have strides that are multiples of 16 bytes.  An array in a GPU's memory makes a map for launches there.  box:
    elements of a tile, innermost dimension first, as `cuTensorMapEncodeTiled` takes them.
    element_strides: steps between copied elements, innermost first (the first is ignored, as on the hardware).
    swizzle: "none", "32B", "64B", "128B".  interleave: only "none"; "16B" and "32B" are refused, because the stride
    between their slices of channels is not documented.  oob: what reads outside the array return, "zero" or "nan"
    (floats only).  dtype: the element type if the array's own does not tell ("tf32", "f32_ftz", ...); "b4x16_p64" is
    for arrays of bytes that hold two 4-bit elements each, low half first: dimensions and boxes count elements, and
    loaded data have a gap of 8 bytes after every 16 elements.

    `bytes(map)` are the map's 128 bytes, valid wherever a program keeps them, as long as the array exists.

    >>> import numpy as np
    >>> a = np.zeros((64, 128), np.float16)
    >>> tile = TensorMap(a, (64, 8), swizzle="128B")
    >>> tile.dims, tile.strides, len(bytes(tile))
    ((128, 64), (256,), 128)
    """

    array: Any
    address: int
    dtype: str
    element: Element
    dims: tuple[int, ...]
    pixel_box: PixelBox | None
    box: tuple[int, ...]
    element_strides: tuple[int, ...]
    strides: tuple[int, ...]
    interleave: str
    oob: str
    swizzle: str

    def __init__(
        self,
        array: ArrayLike | DeviceArray,
        box: tuple[int, ...] | PixelBox,
        *,
        element_strides: tuple[int, ...] | None = None,
        swizzle: str = "none",
        interleave: str = "none",
        oob: str = "zero",
        dtype: str | None = None,
    ) -> None:
        self.array = _array(array)
        self.address, self._keeps = _address(self.array), array
        rank = len(self.array.shape)
        if not 1 <= rank <= MOST_DIMS:
            raise ShapeError(
                f"a tensor map has 1 to {MOST_DIMS} dimensions, the array given has {rank}: reshape it or take a slice"
            )
        self.dtype, self.element = _element(self.array, dtype)
        self.dims = tuple(self.array.shape[::-1])
        if self.element.number == PADDED:
            self.dims = (2 * self.dims[0], *self.dims[1:])
        self.pixel_box = _pixel_box(box, rank) if isinstance(box, PixelBox) else None
        self.box = (self.pixel_box.channels,) if self.pixel_box else _counts("box", box, rank, MOST_BOX)
        steps = (1,) * rank if element_strides is None else element_strides
        self.element_strides = _counts("element_strides", steps, rank, 8)
        self.strides = tuple(self.array.strides[-2::-1]) if rank > 1 else ()
        self.swizzle, self.interleave, self.oob = swizzle, interleave, oob
        modes = [_mode("swizzle", swizzle, SWIZZLES), _mode("interleave", interleave, INTERLEAVES)]
        self._check(_mode("oob", oob, FILLS), modes[0])
        self._record = np.zeros(1, LAYOUT)
        r = self._record[0]
        r["global_address"], r["rank"], r["elemtype"] = self.address, rank - 1, self.element.number
        r["swizzle_mode"], r["interleave_layout"], r["fill_mode"] = *modes, FILLS[oob]
        r["global_dim"][:rank], r["element_stride"][:rank] = self.dims, self.element_strides
        r["global_stride"][: rank - 1] = self.strides
        if self.pixel_box is None:
            r["box_dim"][:rank] = self.box
        else:
            r["im2col"], r["channels"], r["pixels"] = 1, self.pixel_box.channels, self.pixel_box.pixels
            r["lower"][: rank - 2], r["upper"][: rank - 2] = self.pixel_box.lower, self.pixel_box.upper

    @classmethod
    def im2col(
        cls,
        array: ArrayLike | DeviceArray,
        lower: tuple[int, ...],
        upper: tuple[int, ...],
        channels: int,
        pixels: int,
        **options: Any,
    ) -> TensorMap:
        """The map of images (N, W, C), (N, H, W, C) or (N, D, H, W, C) for copies in im2col mode.

        (PTX ISA, "im2col mode"; CUDA driver API, `cuTensorMapEncodeIm2col`.)  lower, upper: corners of the box that
        a filter's base goes through, innermost dimension first, as distances from the image's first and last pixel:
        -padding, and padding - (filter - 1) * dilation.  A copy takes `pixels` pixels, width first, then the next
        row, then the next image, and `channels` elements of each; its offsets select the tap of the filter.
        options: those of `TensorMap`; element_strides are the filter's strides.

        >>> import numpy as np
        >>> images = np.zeros((2, 14, 14, 64), np.float16)
        >>> TensorMap.im2col(images, (-1, -1), (-1, -1), channels=64, pixels=128, swizzle="128B")
        TensorMap(f16, dims=(64, 14, 14, 2), box=128 pixels of 64, swizzle='128B', oob='zero')
        """
        return cls(array, PixelBox(tuple(lower), tuple(upper), channels, pixels), **options)

    def _check(self, fill: int, swizzle: int) -> None:
        size, inner = self.element.size, self.box[0] * self.element.size
        if self.dims[0] > 1 and self.array.strides[-1] != size:
            raise AlignmentError(
                f"the innermost dimension has a stride of {self.array.strides[-1]} bytes; a tensor map wants its "
                f"elements side by side ({size} bytes): pass np.ascontiguousarray(array)"
            )
        unit = PADDED_ALIGN if self.element.number == PADDED else UNIT
        for what, value in (("address", self.address), *(("stride", s) for s in self.strides)):
            if value % unit or value < 0:
                raise AlignmentError(
                    f"{what} {value} of the array is not a multiple of {unit} bytes, as a tensor map needs: allocate "
                    "rows of such a length"
                )
        if self.element.number == PADDED:
            self._check_padded()
        if inner % UNIT:
            raise AlignmentError(
                f"a row of the box is {self.box[0]} elements = {inner} bytes, not a multiple of {UNIT}; nearest: "
                f"{-(-inner // UNIT) * UNIT // size} elements"
            )
        span = UNIT << swizzle
        if swizzle and inner > span:
            raise RangeError(
                f"a row of the box is {inner} bytes, but swizzle={self.swizzle!r} spans {span}: at most "
                f"{span // size} elements"
            )
        if fill and self.element.kind != "f":
            raise OptionError(f"oob='nan' fills floats only, the array holds {self.dtype}: use oob='zero'")

    def _check_padded(self) -> None:
        """What padded elements want besides (CUDA driver API, `cuTensorMapEncodeTiled`)."""
        if self.dims[0] % PADDED_ROW or self.box[0] != PADDED_ROW:
            raise RangeError(
                f"rows of {self.dims[0]} elements and a box of {self.box[0]}: b4x16_p64 wants rows that are multiples "
                f"of {PADDED_ROW}, {PADDED_ROW // 2} bytes, and boxes of {PADDED_ROW}"
            )
        if self.swizzle not in ("none", "128B") or self.pixel_box:
            raise OptionError(
                f"b4x16_p64 is tiled, with swizzle='none' or '128B'; given: {self.swizzle!r}"
                + (" and a box of pixels" if self.pixel_box else "")
            )

    @property
    def on_device(self) -> bool:
        """Whether the array lies in a GPU's memory."""
        return isinstance(self.array, DeviceArray)

    @property
    def span(self) -> int:
        """Bytes from the first element's begin to the last one's end."""
        shape, strides = self.array.shape, self.array.strides
        steps: int = sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
        return steps + self.element.size

    def __bytes__(self) -> bytes:
        return self._record.tobytes()

    def __repr__(self) -> str:
        box = f"{self.pixel_box.pixels} pixels of {self.pixel_box.channels}" if self.pixel_box else self.box
        return f"TensorMap({self.dtype}, dims={self.dims}, box={box}, swizzle={self.swizzle!r}, oob={self.oob!r})"


def _array(x: Any) -> Any:
    """A NumPy array, or what is known of one in a GPU's memory."""
    if isinstance(x, DeviceArray):
        return x
    return device_array(x) if is_device_array(x) else as_array(x)


def _address(array: Any) -> int:
    if isinstance(array, DeviceArray):
        return array.address
    found: int = array.ctypes.data
    return found


def _element(array: Any, dtype: str | None) -> tuple[str, Element]:
    """The element type by name, or the array's own."""
    name = dtype if dtype is not None else _BY_DTYPE.get(array.dtype.name)
    if isinstance(name, str):
        name = {"b8": "u8", "e4m3": "u8", "e5m2": "u8", "s8": "u8", "s16": "u16"}.get(name, name)
    if not isinstance(name, str) or name not in ELEMENTS:
        raise FormatError(
            f"{shown(dtype) if dtype is not None else array.dtype} is not an element type of a tensor map; they are "
            f"{' '.join(ELEMENTS)}: pass dtype= one of them"
        )
    if ELEMENTS[name].size != array.dtype.itemsize:
        raise FormatError(
            f"dtype={name!r} has {ELEMENTS[name].size} bytes an element, the array's {array.dtype} has "
            f"{array.dtype.itemsize}: pass a view of the right width"
        )
    return name, ELEMENTS[name]


def _whole(what: str, given: Any, count: int) -> tuple[int, ...]:
    """So many whole numbers."""
    try:
        values = tuple(int(x.__index__()) for x in given)
    except (TypeError, AttributeError):
        raise FormatError(
            f"{what}={shown(given)} is not a sequence of whole numbers; one a dimension, innermost first"
        ) from None
    if len(values) != count:
        raise ShapeError(f"{what}={values} has {len(values)} numbers, {count} are wanted: one a dimension")
    return values


def _counts(what: str, given: Any, rank: int, most: int) -> tuple[int, ...]:
    """One whole number a dimension, from 1 to `most`."""
    values = _whole(what, given, rank)
    for value in values:
        if not 1 <= value <= most:
            raise RangeError(f"{what}={shown(values)}: {shown(value)} is not from 1 to {most}")
    return values


def _pixel_box(given: PixelBox, rank: int) -> PixelBox:
    """A box of pixels whose numbers a map can hold."""
    if rank not in CORNER_BITS:
        raise ShapeError(
            f"im2col mode is for arrays (N, W, C), (N, H, W, C) and (N, D, H, W, C); the one given has {rank} "
            "dimensions: reshape it"
        )
    (channels,) = _counts("channels", (given.channels,), 1, MOST_BOX)
    (pixels,) = _counts("pixels", (given.pixels,), 1, MOST_PIXELS)
    most = 1 << CORNER_BITS[rank] - 1
    corners = [_whole(what, x, rank - 2) for what, x in (("lower", given.lower), ("upper", given.upper))]
    for what, corner in zip(("lower", "upper"), corners, strict=True):
        for value in corner:
            if not -most <= value < most:
                raise RangeError(f"{what}={corner}: {value} is not from {-most} to {most - 1}")
    return PixelBox(corners[0], corners[1], channels, pixels)


def _mode(what: str, given: Any, modes: dict[str, int]) -> int:
    if not isinstance(given, str) or given not in modes:
        raise OptionError(f"{what}={shown(given)} is not one of {', '.join(map(repr, modes))}")
    return modes[given]
