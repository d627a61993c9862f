"""Matrix descriptors of wgmma and the tiles of shared memory they name.

One formula gives the byte address of every element for every major order and swizzle; tiles are written, read back and
drawn through it.  (PTX ISA, "Asynchronous Warpgroup Level Matrix Shared Memory Layout" and "Matrix Descriptor".)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbtc.errors import DescriptorError, FormatError, OptionError, RangeError, ShapeError, shown, whole_number
from nbtc.formats.arrays import as_array, as_format
from nbtc.formats.table import Format

WINDOW = 1 << 18  # bytes that an 18-bit field can address
UNIT = 16  # bytes: every field counts in these
CORE = 128  # bytes of a core matrix: eight rows of one unit


@dataclass(frozen=True)
class Swizzle:
    """A swizzle mode: its code in the descriptor and the units of a swizzled row."""

    name: str
    code: int
    units: int

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of the atom."""
        return UNIT * self.units

    @property
    def pattern_bytes(self) -> int:
        """Bytes after which the pattern repeats: eight rows (16 without swizzle, where nothing repeats)."""
        return 8 * self.row_bytes if self.units > 1 else UNIT

    @property
    def log2(self) -> int:
        """B of the CuTe functor Swizzle<B, 4, 3> on byte addresses."""
        return self.units.bit_length() - 1


SWIZZLES: dict[str, Swizzle] = {
    s.name: s for s in (Swizzle("none", 0, 1), Swizzle("128B", 1, 8), Swizzle("64B", 2, 4), Swizzle("32B", 3, 2))
}
_BY_CODE = {s.code: s for s in SWIZZLES.values()}
MAJORS = ("k", "mn")


def swizzle_row(name: object) -> Swizzle:
    """The row of a swizzle mode; OptionError names the legal ones."""
    found = SWIZZLES.get(name) if isinstance(name, str) else None
    if found is None:
        raise OptionError(
            f'swizzle={shown(name)} is not a swizzle mode; the modes are {", ".join(SWIZZLES)}: try swizzle="128B"'
        )
    return found


def operand_format(format: object, major: object = "k") -> Format:
    """The format of an operand in shared memory, checked against its major order.

    Raises FormatError for formats wgmma does not read and OptionError for MN-major order of any but 16-bit formats.
    """
    if not isinstance(major, str) or major not in MAJORS:
        raise OptionError(
            f'major={shown(major)} is not a major order: pass "k" (K contiguous) or "mn" (M or N contiguous)'
        )
    fmt = as_format(format)
    if fmt.name == "f32":  # a float32 multiplicand means tf32
        fmt = as_format("tf32")
    if fmt.name not in ("f16", "bf16", "tf32", "e4m3", "e5m2", "s8", "u8", "b1"):
        raise FormatError(
            f"wgmma reads no {fmt.name} operand from shared memory; it reads f16 bf16 tf32 e4m3 e5m2 s8 u8 b1: "
            'try format="f16"'
        )
    if major == "mn" and fmt.bits != 16:
        raise OptionError(
            f"{fmt.name} exists in K-major order only: MN-major (imm-trans = 1) is for the 16-bit types f16 and bf16; "
            f'transpose the tile and use major="k"'
        )
    return fmt


def byte_offset(mn: Any, k: Any, leading: Any, stride: Any, log2: Any, bits: int, major: str) -> Any:
    """Byte offset of element (mn, k) from the start of its tile, before swizzling.  Everything broadcasts."""
    per_unit = 128 // bits
    if major == "k":
        return unit_offset(mn, k // per_unit, leading, stride, log2, False) + k % per_unit * bits // 8
    return unit_offset(mn // per_unit, k, leading, stride, log2, True) + mn % per_unit * bits // 8


def unit_offset(mn: Any, k: Any, leading: Any, stride: Any, log2: Any, transposed: Any) -> Any:
    """Byte offset of a unit of 16 bytes from the start of its tile, before swizzling.

    Of arrays, in compiled code, and of whatever else has the operators used here, as emitted code's words have
    (`executor.matrix.warpgroup_memory`): no division, so that they need none.  K-major: mn counts rows, k units;
    transposed (MN-major): mn counts units, k rows.  log2: of the units of a row of the swizzle pattern, 0 of a plain
    tile.
    """
    pitch = UNIT << log2
    if transposed:
        swizzled = log2 > 0
        plain = mn * stride + (k >> 3) * leading
        atoms = (mn & ((1 << log2) - 1)) * UNIT + (mn >> log2) * leading + (k >> 3) * stride
        return (k & 7) * pitch + plain + (atoms - plain) * swizzled
    along = (k & ((1 << log2) - 1)) * UNIT + (k >> log2) * leading  # side by side as far as a swizzled row goes
    return (mn & 7) * pitch + (mn >> 3) * stride + along


def swizzled_address(address: Any, log2: Any, base: Any) -> Any:
    """The address after the XOR of its unit with its row of the pattern (base: the base offset field)."""
    return address ^ ((((address >> 7) - base) & ((1 << log2) - 1)) << 4)


@dataclass(frozen=True)
class Descriptor:
    """A 64-bit wgmma matrix descriptor, all fields in bytes.

    start: address of the tile in shared memory.  leading, stride: the leading and stride dimension byte offsets (LBO,
    SBO).  base_offset: 0..7, the row of the swizzle pattern at which its repetition starts.  swizzle: "none", "32B",
    "64B" or "128B".  Every byte count is a multiple of 16 below 2**18; DescriptorError says which is not.
    (PTX ISA, "Matrix Descriptor Format".)

    >>> from nbtc.wgmma import Descriptor
    >>> d = Descriptor(0, 1024, 128)
    >>> hex(d.encode()), Descriptor.decode(d.encode()) == d
    ('0x800400000', True)
    >>> int(d.address(9, 5, "f16"))
    154
    """

    start: int
    leading: int
    stride: int
    base_offset: int = 0
    swizzle: str = "none"

    # field name -> (lowest bit, width, bytes a step)
    FIELDS: ClassVar[dict[str, tuple[int, int, int]]] = {
        "start": (0, 14, UNIT),
        "leading": (16, 14, UNIT),
        "stride": (32, 14, UNIT),
        "base_offset": (49, 3, 1),
    }

    def __post_init__(self) -> None:
        for name, (_, width, step) in self.FIELDS.items():
            object.__setattr__(self, name, _field(name, getattr(self, name), (step << width) - step, step))
        swizzle_row(self.swizzle)

    @property
    def mode(self) -> Swizzle:
        """The row of the swizzle mode."""
        return SWIZZLES[self.swizzle]

    def encode(self) -> int:
        """The 64-bit word as the instruction takes it.

        >>> from nbtc.wgmma import Descriptor
        >>> hex(Descriptor(1024, 16, 1024, swizzle="128B").encode())
        '0x4000004000010040'
        """
        word = self.mode.code << 62
        for name, (low, _, step) in self.FIELDS.items():
            word |= getattr(self, name) // step << low
        return word

    @classmethod
    def decode(cls, word: SupportsIndex) -> Self:
        """The descriptor of a 64-bit word; DescriptorError if a reserved bit is set.

        >>> from nbtc.wgmma import Descriptor
        >>> Descriptor.decode(0x4000004000010040).swizzle
        '128B'
        """
        value = _word(word)
        fields = {n: (value >> low & ((1 << width) - 1)) * step for n, (low, width, step) in cls.FIELDS.items()}
        found = cls(**fields, swizzle=_BY_CODE[value >> 62].name)
        if found.encode() != value:
            raise DescriptorError(
                f"descriptor 0x{value:016x} has reserved bits set (0x{value ^ found.encode():x}); bits 14-15, 30-31, "
                "46-48 "
                f"and 52-61 must be zero: 0x{found.encode():016x} is the same descriptor without them"
            )
        return found

    def address(self, mn: ArrayLike, k: ArrayLike, format: object, major: str = "k") -> NDArray[np.int64]:
        """Byte address in shared memory of element (mn, k); mn and k are integers or arrays that broadcast.

        mn: row of A or column of B.  For b1 it is the byte that holds bit k % 8.  Addresses wrap at 2**18 as the
        hardware's do.  Raises RangeError for negative indices, FormatError and OptionError for formats and major
        orders that wgmma lacks.  (PTX ISA, "Strides" and "Swizzling modes" of wgmma.)

        >>> import numpy as np
        >>> from nbtc.wgmma import Descriptor
        >>> d = Descriptor(0, 512, 1024, swizzle="64B")
        >>> d.address(np.array([0, 1, 8, 63]), np.array([0, 0, 0, 15]), "f16", "mn").tolist()
        [0, 2, 16, 1998]
        """
        fmt = operand_format(format, major)
        m, n = _indices("mn", mn), _indices("k", k)
        try:
            np.broadcast_shapes(m.shape, n.shape)
        except ValueError:
            raise ShapeError(
                f"mn of shape {m.shape} and k of shape {n.shape} do not broadcast: pass mn[:, None]"
            ) from None
        log2 = self.mode.log2
        off = byte_offset(m, n, self.leading, self.stride, log2, fmt.bits, major)
        return np.asarray(swizzled_address((self.start + off) % WINDOW, log2, self.base_offset), np.int64)

    def unit_addresses(self, rows: int, cols: int, fmt: Format, major: str) -> NDArray[np.int64]:
        """Addresses of the 16-byte units of a tile: (MN, K / U) in K-major order, (MN / U, K) in MN-major."""
        per_unit = 128 // fmt.bits
        down, across = (1, per_unit) if major == "k" else (per_unit, 1)
        return self.address(np.arange(0, rows, down)[:, None], np.arange(0, cols, across)[None, :], fmt, major)

    def notes(self, shape: tuple[int, int], format: object, major: str = "k") -> tuple[str, ...]:
        """What a reader of this descriptor should know about a tile of shape (MN, K): ignored fields, overlaps, phases.

        >>> from nbtc.wgmma import Descriptor
        >>> Descriptor(0, 16, 64).notes((16, 16), "f16")[0]
        'elements share bytes: 256 elements of 2 bytes lie in 208 bytes'
        """
        fmt, (rows, cols) = operand_format(format, major), tile_shape(shape)
        at = self.address(np.arange(rows)[:, None], np.arange(cols)[None, :], fmt, major)
        size, out = max(1, fmt.bits // 8), []
        total, distinct = rows * cols * fmt.bits // 8, np.unique(at).size * size
        if distinct < total:
            out.append(f"elements share bytes: {rows * cols} elements of {size} bytes lie in {distinct} bytes")
        if (at.size and int(at.max()) + size - self.start > WINDOW) or (at < self.start - self.start % 1024).any():
            out.append("the tile wraps around the 18-bit shared-memory window")
        if major == "k" and self.mode.units > 1:
            wide = cols * fmt.bits // 8
            if wide <= self.mode.row_bytes:
                out.append(f"LBO ({self.leading} bytes) is not read: K fits one swizzle row")
            else:
                out.append(
                    f"K spans {wide} bytes, more than the {self.swizzle} row: LBO ({self.leading} bytes) is the step "
                    f"to the next {self.mode.row_bytes} bytes of K"
                )
        elif major == "mn" and self.mode.units > 1 and rows <= self.mode.units * 128 // fmt.bits:
            out.append(f"LBO ({self.leading} bytes) is not read: MN fits one swizzle row")
        return tuple(out + self.phase_notes())

    def phase_notes(self) -> list[str]:
        """Remarks on where the swizzle pattern starts."""
        if self.mode.units == 1:
            return [f"base offset {self.base_offset} is not read: no swizzle"] if self.base_offset else []
        out = []
        row = (self.start >> 7) & 7 & (self.mode.pattern_bytes // CORE - 1)
        if row != self.base_offset & (self.mode.pattern_bytes // CORE - 1):
            out.append(
                f"start {self.start} lies inside the {self.mode.pattern_bytes}-byte swizzle pattern "
                f"(row group {row}) and base offset {self.base_offset} does not say so"
            )
        if self.base_offset:
            out.append(f"base offset {self.base_offset} moves the phase of the swizzle; most programs keep it 0")
        return out


def _field(name: str, value: Any, most: int, step: int) -> int:
    v = whole_number(value)
    if v is None:
        raise DescriptorError(
            f"{name}={shown(value)} is not an integer: pass bytes, for example Descriptor(0, 1024, 128)"
        )
    if not 0 <= v <= most:
        raise DescriptorError(
            f"{name}={shown(v)} does not fit its field: legal are 0 to {most} in steps of {step}, nearest is "
            f"{min(max(v, 0), most)}; "
            "for example Descriptor(0, 1024, 128)"
        )
    if v % step:
        raise DescriptorError(
            f"{name}={shown(v)} is not a multiple of {step} bytes, and the descriptor stores {step}-byte units; "
            f"nearest is {v // step * step}: for example Descriptor(0, 1024, 128)"
        )
    return v


def _word(word: Any) -> int:
    found = whole_number(word)
    if found is None or not 0 <= found < 1 << 64:
        raise DescriptorError(
            f"{shown(word)} is not a 64-bit descriptor word: pass an integer from 0 to 2**64 - 1, such as 0x800400000"
        )
    return found


def _indices(name: str, x: ArrayLike) -> NDArray[np.int64]:
    v = np.asarray(as_array(x))
    if v.dtype.kind not in "iu":
        raise FormatError(f"{name} indexes elements and must hold integers, not {v.dtype}: for example np.arange(64)")
    if v.size and int(v.min()) < 0:
        raise RangeError(f"{name} holds {int(v.min())}: element indices start at 0, for example address(0, 0, 'f16')")
    return v.astype(np.int64)


def tile_shape(shape: Any) -> tuple[int, int]:
    """A tile shape (MN, K) as two positive integers."""
    try:
        rows, cols = (int(v.__index__()) for v in shape)
    except (TypeError, ValueError, AttributeError):
        raise ShapeError(f"shape={shown(shape)} is not a tile shape: pass (MN, K), for example (64, 16)") from None
    if rows <= 0 or cols <= 0:
        raise ShapeError(
            f"shape={shown(shape)} is an empty tile: pass (MN, K) with both positive, for example (64, 16)"
        )
    return rows, cols
