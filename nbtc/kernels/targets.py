"""What kernels need to know of a processor: one row a class of machines, the first that serves is taken.

A row says how many lanes a vector register has, how many registers sums may fill, and which operations are one
instruction.  The emitters read it; nothing else in a kernel depends on the machine.  None names an AVX-512 intrinsic
unless its row asks for AVX-512, since on another processor such an intrinsic aborts the process.
"""

from __future__ import annotations

import platform
from functools import cache
from typing import NamedTuple

from nbtc.compiler.host import AVX512, features

X86, ARM = frozenset({"x86_64", "AMD64", "x86-64"}), frozenset({"aarch64", "arm64", "ARM64"})


class Target(NamedTuple):
    """One class of processors.

    machines, needs: where it serves (as `platform.machine` and LLVM name them).  lanes: 32-bit lanes of a register.
    sums: registers that the sums of a register tile fill, which leaves the others to operands and bookkeeping.  mixed:
    the bookkeeping of neighbouring tiles is mixed into the sums, for which sixteen registers are too few.  fma: a
    multiply-add is one instruction.  half: so is rounding to f16, with its own rounding mode.  scale: so is x * 2**n
    with subnormal results.  lookup: bits are counted by a table of nibbles in a register.
    """

    name: str
    machines: frozenset[str]
    needs: frozenset[str]
    lanes: int
    sums: int
    mixed: bool = False
    fma: bool = True
    half: bool = False
    scale: bool = False
    lookup: bool = False

    @property
    def x86(self) -> bool:
        """True where x86's intrinsics are legal, within the extensions needed."""
        return self.machines == X86

    @property
    def bytes(self) -> int:
        """Size of a vector register."""
        return 4 * self.lanes


TARGETS = (
    Target("AVX-512", X86, AVX512, lanes=16, sums=16, mixed=True, half=True, scale=True),
    Target("AVX2", X86, frozenset({"avx2", "fma", "f16c"}), lanes=8, sums=8, half=True, lookup=True),
    Target("SSE2", X86, frozenset(), lanes=4, sums=8, fma=False),
    Target("NEON", ARM, frozenset(), lanes=4, sums=16),
)
GENERIC = Target("generic", frozenset(), frozenset(), lanes=4, sums=8, fma=False)  # for what needs no rounding mode


@cache
def host_target() -> Target | None:
    """The row of this machine, as Numba compiles for it; None where none serves."""
    machine = platform.machine()
    return next((t for t in TARGETS if machine in t.machines and features() >= t.needs), None)
