"""Descriptors of tcgen05: the 32-bit instruction descriptor, and the shared-memory descriptor of the sm_100 family.

(PTX ISA, "Instruction descriptor" and "Shared memory descriptor" of tcgen05.)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Self, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbtc.errors import DescriptorError, FormatError, OptionError, UnsupportedInstructionError, shown
from nbtc.formats.arrays import as_format
from nbtc.fragments import smem_descriptors as smem
from nbtc.isa.tcgen05 import KINDS, UNITS_OF

ACCUMULATORS = {"f16": 0, "f32": 1, "s32": 2}
SCALES = {"ue4m3": 0, "ue8m0": 1}
CODES = {"none": 0, "128B": 2, "64B": 4, "32B": 6}  # of the swizzle modes; 1 (32-byte atoms) is MN-major tf32's
FIXED = 1 << 46  # bits 46-48 are 0b001


def _table(kind: str) -> dict[str, tuple[int, int]]:
    """Name -> (lowest bit, width) of the fields that a kind of product has."""
    fields = {"a": (7, 3), "b": (10, 3), "transpose_a": (15, 1), "transpose_b": (16, 1), "n": (17, 6), "m": (24, 5)}
    if kind != "i8":
        fields |= {"negate_a": (13, 1), "negate_b": (14, 1)}
    if kind in UNITS_OF:
        return fields | {"scale_b_id": (4, 2), "scale": (23, 1), "scale_a_id": (29, 2)}
    return fields | {"d": (4, 2)} | ({"saturate": (3, 1)} if kind == "i8" else {})


@dataclass(frozen=True)
class InstructionDescriptor:
    """What a tcgen05.mma multiplies: kind, formats of d, a, b, m and n of the whole product, and its modifiers.

    negate_a, negate_b: flip signs.  transpose_a, transpose_b: MN-major operands.  saturate: of kind i8.  scale: format
    of block scales, scale_a_id and scale_b_id the byte of a word of tensor memory where they start.  DescriptorError
    says what does not fit.  (PTX ISA, "Instruction descriptor" of tcgen05.)

    >>> i = InstructionDescriptor("f16", "f32", "f16", "f16", 128, 64)
    >>> hex(i.encode()), InstructionDescriptor.decode(i.encode(), "f16") == i
    ('0x8100010', True)
    """

    kind: str
    d: str
    a: str
    b: str
    m: int
    n: int
    negate_a: bool = False
    negate_b: bool = False
    transpose_a: bool = False
    transpose_b: bool = False
    saturate: bool = False
    scale: str = ""
    scale_a_id: int = 0
    scale_b_id: int = 0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise DescriptorError(f"kind={shown(self.kind)} is not a kind of tcgen05.mma: {', '.join(KINDS)}")
        if not KINDS[self.kind].takes(self.a, self.b, self.d):
            raise DescriptorError(
                f"kind {self.kind} does not multiply {self.a} by {self.b} into {self.d}: formats "
                f"{' or '.join(KINDS[self.kind].formats)}, accumulators {' '.join(KINDS[self.kind].accumulators)}"
            )
        for name, value, step, most in (("m", self.m, 16, 256), ("n", self.n, 8, 256)):
            if isinstance(value, bool) or not isinstance(value, int) or value % step or not 0 < value <= most:
                raise DescriptorError(f"{name}={shown(value)}: a multiple of {step} up to {most}; try {name}=128")
        if (self.scale in SCALES) != (self.kind in UNITS_OF):
            raise DescriptorError(
                f"scale={self.scale!r} with kind {self.kind}: mx kinds have ue8m0 or ue4m3, others ''"
            )
        fields = _table(self.kind)
        for name in ("negate_a", "negate_b", "saturate", "scale_a_id", "scale_b_id"):
            value, width = getattr(self, name), fields.get(name, (0, 0))[1]
            if not 0 <= int(value) < 1 << width:
                raise DescriptorError(f"{name}={value} with kind {self.kind}: legal are 0 to {(1 << width) - 1}")
        allowed = (as_format(self.a).bits == 16, self.kind == "mxf8f6f4")
        if (self.transpose_a or self.transpose_b) and self.kind in ("mxf4", "mxf4nvf4") and not any(allowed):
            raise DescriptorError(f"transposed operands of kind {self.kind}: 4-bit operands are K-major; drop it")

    @property
    def k(self) -> int:
        """K of one dense product."""
        return KINDS[self.kind].k

    def _values(self) -> dict[str, int]:
        codes = dict(KINDS[self.kind].codes)
        coded = ("a", "b", "d", "m", "n", "scale")
        values = {name: int(getattr(self, name)) for name in _table(self.kind) if name not in coded}
        values |= {"a": codes[self.a], "b": codes[self.b], "n": self.n // 8, "m": self.m // 16}
        values |= {"d": ACCUMULATORS[self.d]} if "d" in _table(self.kind) else {"scale": SCALES[self.scale]}
        return values

    def encode(self) -> int:
        """The 32-bit word."""
        table = _table(self.kind)
        return sum(value << table[name][0] for name, value in self._values().items())

    @classmethod
    def decode(cls, word: SupportsIndex, kind: str) -> Self:
        """The descriptor of a word for a kind; DescriptorError for codes the kind lacks and reserved bits."""
        if kind not in KINDS:
            raise DescriptorError(f"kind={shown(kind)} is not a kind of tcgen05.mma: {', '.join(KINDS)}")
        value, table = int(word.__index__()), _table(kind)
        fields: dict[str, Any] = {name: value >> low & ((1 << width) - 1) for name, (low, width) in table.items()}
        for name, codes in (("a", KINDS[kind].codes), ("b", KINDS[kind].codes), ("d", tuple(ACCUMULATORS.items()))):
            if name in fields:
                known = {code: text for text, code in codes}
                if fields[name] not in known:
                    raise DescriptorError(f"0x{value:08x}: {name} has code {fields[name]}; kind {kind} knows {known}")
                fields[name] = known[fields[name]]
        fields |= {"m": 16 * fields["m"], "n": 8 * fields["n"]}
        if "scale" in fields:
            fields |= {"scale": "ue8m0" if fields["scale"] else "ue4m3", "d": "f32"}
        flags = ("negate_a", "negate_b", "transpose_a", "transpose_b", "saturate")
        fields = {n: bool(v) if n in flags else v for n, v in fields.items()}
        found = cls(kind, **fields)
        if found.encode() != value:
            raise DescriptorError(
                f"0x{value:08x} has bits set that kind {kind} reserves (or sparse ones): 0x{value ^ found.encode():x}; "
                f"0x{found.encode():08x} is the same descriptor without them"
            )
        return found

    def explain(self) -> str:
        """The fields with their bits, as text.

        >>> print(InstructionDescriptor("f16", "f32", "bf16", "bf16", 64, 8).explain().splitlines()[1])
        bits   4-5   d             1  f32
        """
        lines = [f"0x{self.encode():08x}: kind {self.kind}, {self.m}x{self.n}x{self.k}"]
        for name, value in sorted(self._values().items(), key=lambda item: _table(self.kind)[item[0]]):
            low, width = _table(self.kind)[name]
            bits = f"{low}-{low + width - 1}" if width > 1 else str(low)
            lines.append(f"bits {bits:>5}   {name:12}  {value}  {getattr(self, name)}")
        return "\n".join(lines)


class Descriptor(smem.Descriptor):
    """A 64-bit shared-memory descriptor of tcgen05, all fields in bytes; arguments as of `nbtc.wgmma.Descriptor`.

    Bits 46-48 hold 0b001 and the swizzle mode is in bits 61-63 (0 none, 2 128B, 4 64B, 6 32B).  The fifth mode, 128B
    with 32-byte atoms, is that of MN-major tf32, whose addresses no chip has confirmed: decoding it raises by name.

    >>> d = Descriptor(1024, 16, 1024, swizzle="128B")
    >>> hex(d.encode()), Descriptor.decode(d.encode()) == d
    ('0x4000404000010040', True)
    """

    NAMES: ClassVar[dict[int, str]] = {code: name for name, code in CODES.items()}

    def encode(self) -> int:
        """The 64-bit word."""
        plain = smem.Descriptor(self.start, self.leading, self.stride, self.base_offset).encode()
        return plain | FIXED | CODES[self.swizzle] << 61

    @classmethod
    def decode(cls, word: SupportsIndex) -> Self:
        """The descriptor of a 64-bit word; DescriptorError for reserved bits and modes."""
        value = int(word.__index__())
        mode = value >> 61
        if mode == 1:
            raise UnsupportedInstructionError(
                f"descriptor 0x{value:016x} has swizzle mode 1 (128B with 32-byte atoms), whose addresses are not "
                "verified; nbtc has modes none, 32B, 64B and 128B"
            )
        if not 0 <= value < 1 << 64 or mode not in cls.NAMES:
            raise DescriptorError(f"{value:#x} has swizzle mode {mode}: legal are 0, 2, 4 and 6 in bits 61-63")
        fields = {n: (value >> low & ((1 << width) - 1)) * step for n, (low, width, step) in cls.FIELDS.items()}
        found = cls(**fields, swizzle=cls.NAMES[mode])
        if found.encode() != value:
            raise DescriptorError(
                f"descriptor 0x{value:016x}: bits 46-48 must be 0b001 and bits 14-15, 30-31, 52-60 zero; "
                f"0x{found.encode():016x} is the same descriptor without the others"
            )
        return found

    def address(self, mn: ArrayLike, k: ArrayLike, format: object, major: str = "k") -> NDArray[np.int64]:
        """Byte address of element (mn, k), as `nbtc.wgmma.Descriptor.address`; formats below a byte in their units.

        e2m1 and the 6-bit formats take bytes here (16 elements fill a unit of 16 bytes); "mxf4" stands for e2m1 two a
        byte, 32 in a unit.  MN-major order of bytes follows the ISA's canonical layouts, whose units hold 128 bits of
        any type; no recording backs it, programs that Triton makes do.  K beyond a swizzle row follows what an H200's
        wgmma does (LBO is the step); no recording of tcgen05 backs that.  Raises by name what nothing has confirmed:
        MN-major order of formats other than of 8 and 16 bits.
        """
        if isinstance(format, str) and format == "mxf4":
            own = bits = 4
        else:
            fmt = as_format(format)
            own, bits = fmt.bits, max(8, fmt.bits)
            if bits not in (8, 16, 32) or fmt.kind == "bit":
                raise FormatError(f"tcgen05 reads no {fmt.name} operand from shared memory; try format='f16'")
        if major not in smem.MAJORS:
            raise OptionError(f'major={shown(major)}: pass "k" (K contiguous) or "mn" (M or N contiguous)')
        if major == "mn" and own not in (8, 16):
            raise UnsupportedInstructionError(
                f"MN-major order of {own}-bit operands: no chip has confirmed these addresses; use K-major ones"
            )
        m, n, log2 = np.asarray(mn, np.int64), np.asarray(k, np.int64), self.mode.log2
        off = smem.byte_offset(m, n, self.leading, self.stride, log2, bits, major)
        return np.asarray(smem.swizzled_address((self.start + off) % smem.WINDOW, log2, self.base_offset), np.int64)
