"""What kernels need to know of a processor: one row a class of machines, the first that serves is taken.

Emitters read the row, and `compiler.lowering` has the operations that a class does in its own instructions; nothing
else in a kernel depends on the machine.  Nothing names an AVX-512 intrinsic unless its row asks for AVX-512, since on
another processor such an intrinsic aborts the process.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from nbtc.compiler.cpu.host import AVX512, architecture, features

X86, ARM = frozenset({"x86_64"}), frozenset({"aarch64", "arm64"})


class Processor(NamedTuple):
    """One class of processors.

    architectures, needs: where it serves, as LLVM's triples begin, and its features.  lanes: 32-bit lanes of a vector
    register.  registers: how many there are.  sums: those that the sums of a register tile fill, which leaves the
    others to operands and bookkeeping.  mixed: the bookkeeping of neighbouring tiles is mixed into the sums, for which
    sixteen registers are too few.  fma: a multiply-add is one instruction.  to_f16: so is rounding to f16, with its own
    rounding mode.  rounds: a conversion names its rounding.  toward_zero: where none does, panels are summed in the
    mode that rounds toward zero, which rounds their sums, all positive, down, and converts results as it should be.
    scale: x * 2**n with subnormal results is one instruction.  masks: an operation on bytes leaves some of them as they
    are, at no cost.  two_ports: every operation on vectors
    takes one of the two ports that multiply-adds take, so that the fewest are the fastest, whichever they are.
    dots: dot products of bytes and of halves are among those.  counts: an instruction counts bits.  lookup: they are
    counted by a table of nibbles in a register.  broadcasts: numbers are spread over 512 bits as integers.
    """

    name: str
    architectures: frozenset[str]
    needs: frozenset[str]
    lanes: int
    registers: int
    sums: int
    mixed: bool = False
    fma: bool = True
    to_f16: bool = False
    rounds: bool = False
    toward_zero: bool = False
    scale: bool = False
    masks: bool = False
    two_ports: bool = False
    dots: bool = False
    counts: bool = False
    lookup: bool = False
    broadcasts: bool = False

    @property
    def x86(self) -> bool:
        """True where x86's intrinsics are legal, within the extensions needed."""
        return self.architectures == X86

    @property
    def nibbles(self) -> bool:
        """True where tables count the negative products of panels, since no instruction counts bits."""
        return self.lookup or (self.dots and not self.counts)

    @property
    def bytes(self) -> int:
        """Size of a vector register."""
        return 4 * self.lanes

    @property
    def bits(self) -> int:
        """Bits of a vector register."""
        return 32 * self.lanes


_AVX2 = frozenset({"avx2", "fma", "f16c"})
AVX_512 = Processor(  # Intel's first
    "AVX-512",
    X86,
    AVX512,
    lanes=16,
    registers=32,
    sums=16,
    mixed=True,
    to_f16=True,
    rounds=True,
    scale=True,
    masks=True,
    two_ports=True,
    broadcasts=True,
)
# Intel's from Cascade Lake on multiply bytes, those from Ice Lake on count bits too.  On Zen, additions and logic have
# two ports more, while dot products of bytes and comparisons take a multiplier.  No Zen up to the fifth has avx512fp16,
# and no Intel without it has both avx512bf16 and avx512bitalg.
_VNNI, _BITALG = AVX512 | {"avx512vnni"}, AVX512 | {"avx512vnni", "avx512bitalg", "avx512vpopcntdq"}
AVX_512_VNNI = AVX_512._replace(name="AVX-512 VNNI", needs=_VNNI, dots=True)
AVX_512_BITALG = AVX_512._replace(name="AVX-512 BITALG", needs=_BITALG, dots=True, counts=True)
AVX_512_FP16 = AVX_512_BITALG._replace(name="AVX-512 FP16", needs=_BITALG | {"avx512fp16"})
AVX_512_ZEN = AVX_512._replace(name="AVX-512 Zen", needs=_BITALG | {"avx512bf16"}, two_ports=False, counts=True)
AVX2 = Processor("AVX2", X86, _AVX2, lanes=8, registers=16, sums=8, to_f16=True, toward_zero=True, lookup=True)
SSE2 = Processor("SSE2", X86, frozenset(), lanes=4, registers=16, sums=8, fma=False)
NEON = Processor("NEON", ARM, frozenset(), lanes=4, registers=32, sums=16)
PROCESSORS = (AVX_512_FP16, AVX_512_ZEN, AVX_512_BITALG, AVX_512_VNNI, AVX_512, AVX2, SSE2, NEON)
GENERIC = Processor("generic", frozenset(), frozenset(), lanes=4, registers=16, sums=8, fma=False)  # rounds to nearest


def processor(name: str, has: frozenset[str]) -> Processor | None:
    """The row of an architecture (as LLVM's triples begin) with some features; None where none serves."""
    return next((row for row in PROCESSORS if name in row.architectures and has >= row.needs), None)


@cache
def host_processor() -> Processor | None:
    """The row of this machine, as Numba compiles for it."""
    return processor(architecture(), features())
