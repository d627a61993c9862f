"""Instructions as objects: look one up by its PTX text, see its operands, pack matrices, run it.

(PTX ISA, "Warp Level Matrix Instructions" and "Asynchronous Warpgroup Level Matrix Instructions".)
"""

from __future__ import annotations

import sys
from functools import cache, lru_cache
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbtc.compiler.python_only import refuse_in_compiled_code
from nbtc.errors import FormatError, OptionError, UnsupportedInstructionError
from nbtc.fragments import pack as _pack
from nbtc.fragments import scales as _scales
from nbtc.fragments.placed import archs_of, check_layout, placed
from nbtc.isa import lines, parse
from nbtc.isa.archs import Arch
from nbtc.isa.archs import arch as arch_row
from nbtc.isa.spec import Operand, Row

RUNS = ("mma", "mma.sp", "wmma.mma")  # families that a call runs
# what works on other operands than three register images: the function to call instead
ELSEWHERE = {
    "tcgen05.mma": "nbtc.tcgen05.mma",
    "wgmma.mma_async": "nbtc.ptx.wgmma",
    "wgmma.mma_async.sp": "nbtc.ptx.wgmma",
    "wmma.load": "nbtc.ptx.wmma_load",
    "wmma.store": "nbtc.ptx.wmma_store",
    "ldmatrix": "nbtc.ptx.ldmatrix",
    "stmatrix": "nbtc.ptx.stmatrix",
    "movmatrix": "nbtc.ptx.movmatrix",
    "cvt": "nbtc.ptx.cvt",
    "dpx": "nbtc.dpx.viaddmax_s32 and its kin",
    "shfl.sync": "nbtc.warp.shfl_sync, shfl_up_sync, shfl_down_sync or shfl_xor_sync",
    "redux.sync": "nbtc.warp.reduce_add_sync and its kin",
    "vote.sync": "nbtc.warp.all_sync, any_sync or ballot_sync",
    "match.sync": "nbtc.warp.match_any_sync or match_all_sync",
    "activemask": "nbtc.warp.activemask",
    "nanosleep": "nbtc.warp.nanosleep",
    "wgmma.sync": "nbtc.wgmma.fence, commit_group or wait_group",
    "fence": "nbtc.wgmma.fence_proxy_async",
}


@cache
def _products() -> ModuleType:
    """What runs products: imported when first needed, since it imports a compiler."""
    from nbtc.ops.mma import product

    return product


class Instruction:
    """One form of an instruction, as `nbtc.instruction` finds it.

    mnemonic: canonical spelling.  family, shape (m, n, k), min_arch ("sm_80").  a, b, c, d, meta: `Operand` or None.
    row: everything else that is declared about it.  immediates: (operand, number) of the PTX line it was looked up by;
    a call uses them.  ptx: a legal line.

    >>> import nbtc, numpy as np
    >>> i = nbtc.instruction("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    >>> i.shape, i.min_arch, i.a.registers, i.d.coords()[0].tolist()
    ((16, 8, 16), 'sm_80', 4, [[0, 0], [0, 1], [8, 0], [8, 1]])
    >>> registers = i.pack_a(np.arange(256, dtype=np.float16).reshape(16, 16))
    >>> registers.shape, registers.dtype.name
    ((32, 4), 'uint32')
    """

    __slots__ = ("immediates", "row")
    row: Row
    immediates: tuple[tuple[str, int], ...]

    def __init__(self, row: Row, immediates: tuple[tuple[str, int], ...] = ()) -> None:
        self.row = row
        self.immediates = immediates

    @property
    def _numba_type_(self) -> Any:
        """What Numba asks an object for: inside compiled functions an instruction is a constant."""
        from nbtc.numba_door.instruction import InstructionType

        return InstructionType(self)

    @property
    def mnemonic(self) -> str:
        """Canonical spelling."""
        return self.row.mnemonic

    @property
    def family(self) -> str:
        """Its family, such as "mma", "mma.sp", "wmma.load" or "wgmma.mma_async"."""
        return self.row.family

    @property
    def shape(self) -> tuple[int, int, int] | None:
        """(m, n, k), or None for forms without a matrix shape."""
        return self.row.shape

    @property
    def min_arch(self) -> str:
        """First target that has the form."""
        return self.row.min_arch

    @property
    def archs(self) -> tuple[str, ...]:
        """Architectures that have the form."""
        return self.row.archs

    @property
    def executable(self) -> bool:
        """Whether the arithmetic has been recorded or published."""
        return self.row.executable

    @property
    def a(self) -> Operand | None:
        """Operand A (m x k; the stored m x k/2 of a sparse form)."""
        return self.row.a

    @property
    def b(self) -> Operand | None:
        """Operand B (k x n)."""
        return self.row.b

    @property
    def c(self) -> Operand | None:
        """Accumulator operand C (m x n)."""
        return self.row.c

    @property
    def d(self) -> Operand | None:
        """Result D (m x n)."""
        return self.row.d

    @property
    def meta(self) -> Operand | None:
        """Metadata of a sparse form: one register for each lane."""
        return self.row.meta

    @property
    def ptx(self) -> str:
        """A legal PTX line of the form."""
        return lines.example(self.row)

    def _packed(self, name: str, matrix: ArrayLike, arch: object) -> NDArray[np.uint32]:
        declared, target = self._operand(name), arch_row("sm_90" if arch is None else arch)
        words = _pack.pack(declared if arch is None else self._operand(name, target), matrix, name.upper())
        return placed(words, declared, target)

    def _unpacked(self, name: str, registers: ArrayLike, arch: object) -> NDArray[Any]:
        declared, said = self._operand(name), archs_of(registers)
        target = arch_row(arch if arch is not None else said[0] if said else "sm_90")
        if arch is not None or said:
            check_layout(registers, declared, target, f"the image of {name.upper()}")
            declared = self._operand(name, target)
        return _pack.unpack(declared, registers, f"registers of {name.upper()}")

    def _operand(self, name: str, target: Arch | None = None) -> Operand:
        row = self.row if target is None else self.row.on(target)
        operand: Operand | None = getattr(row, name)
        if operand is None:
            have = " and ".join(n for n in "abcd" if getattr(row, n) is not None) or "none"
            raise OptionError(
                f"{self.mnemonic} has no matrix operand {name!r} in registers (it has {have}): there is nothing to pack"
            )
        return operand

    def pack_a(self, matrix: ArrayLike, arch: object = None) -> NDArray[np.uint32]:
        """Register image uint32 (..., lanes, registers) of a matrix A (..., m, k).

        The matrix has the dtype of the operand's format (float32 for tf32, ml_dtypes.int4 for s4, bool for b1); sparse
        forms take the stored (..., m, k / 2), f16 m8n8k4 takes (..., 4, m, k).  arch: lay it out as that architecture
        does (default sm_90; it matters for wmma before sm_80, where the image remembers it and a product, store or
        unpacking for another layout raises LayoutError).  Raises ShapeError or FormatError for a matrix that does not
        fit, UnsupportedInstructionError where `arch` lacks the form or its layout there is not known.
        """
        return self._packed("a", matrix, arch)

    def pack_b(self, matrix: ArrayLike, arch: object = None) -> NDArray[np.uint32]:
        """Register image of a matrix B (..., k, n); see `pack_a`."""
        return self._packed("b", matrix, arch)

    def pack_c(self, matrix: ArrayLike, arch: object = None) -> NDArray[np.uint32]:
        """Register image of an accumulator C (..., m, n); see `pack_a`."""
        return self._packed("c", matrix, arch)

    def pack_d(self, matrix: ArrayLike, arch: object = None) -> NDArray[np.uint32]:
        """Register image of a result D (..., m, n); see `pack_a`."""
        return self._packed("d", matrix, arch)

    def unpack_a(self, registers: ArrayLike, arch: object = None) -> NDArray[Any]:
        """Matrix A of a register image, the inverse of `pack_a`; if an element has several copies, the first is read.

        arch: the architecture whose layout it has (default: the one that the image remembers, or sm_90's).
        """
        return self._unpacked("a", registers, arch)

    def unpack_b(self, registers: ArrayLike, arch: object = None) -> NDArray[Any]:
        """Matrix B of a register image; see `unpack_a`."""
        return self._unpacked("b", registers, arch)

    def unpack_c(self, registers: ArrayLike, arch: object = None) -> NDArray[Any]:
        """Accumulator C of a register image; see `unpack_a`."""
        return self._unpacked("c", registers, arch)

    def unpack_d(self, registers: ArrayLike, arch: object = None) -> NDArray[Any]:
        """Result D of a register image; see `unpack_a`."""
        return self._unpacked("d", registers, arch)

    def pack_scale_a(self, scales: ArrayLike, byte: int = 0, thread: int = 0) -> NDArray[np.uint32]:
        """Scale registers uint32 (..., 32) of block scales of A, for a call with byte_a=byte, thread_a=thread.

        scales: (..., M, V) in the dtype of the form's scales (ml_dtypes.float8_e8m0fnu, or float8_e4m3fn for ue4m3), V
        = 1, 2 or 4 blocks of one instruction.  Raises OptionError for a selector outside of the legal set, ShapeError
        and FormatError for scales that don't fit.  (PTX ISA, "Block Scaling for mma.sync".)

        >>> import nbtc, numpy as np, ml_dtypes
        >>> i = nbtc.instruction("mma.sync.aligned.m16n8k32.row.col.kind::mxf8f6f4.block_scale.f32.e4m3.e4m3.f32.ue8m0")
        >>> one = np.ones((16, 1), ml_dtypes.float8_e8m0fnu)
        >>> [hex(v) for v in i.pack_scale_a(one, byte=1)[:4]]
        ['0x7f00', '0x7f00', '0x0', '0x0']
        """
        found: NDArray[np.uint32] = _scales.pack_scale(self.row, "a", scales, byte, thread)
        return found

    def pack_scale_b(self, scales: ArrayLike, byte: int = 0, thread: int = 0) -> NDArray[np.uint32]:
        """Scale registers of block scales of B, (..., V, N); see `pack_scale_a`."""
        found: NDArray[np.uint32] = _scales.pack_scale(self.row, "b", scales, byte, thread)
        return found

    def __call__(
        self,
        a: ArrayLike | None = None,
        b: ArrayLike | None = None,
        c: ArrayLike | None = None,
        meta: ArrayLike | None = None,
        selector: int | None = None,
        arch: object = "sm_90",
        *,
        scale_a: ArrayLike | None = None,
        scale_b: ArrayLike | None = None,
        byte_a: int | None = None,
        thread_a: int | None = None,
        byte_b: int | None = None,
        thread_b: int | None = None,
        strict: bool = False,
        threads: int | None = None,
    ) -> NDArray[np.uint32]:
        """Run the instruction on register images and return that of D.

        a, b, c: uint32 (..., 32, registers), as `pack_a` and the others make them; leading axes broadcast.  meta:
        uint32 (..., 32) for mma.sp, with its selector (default: that of the line looked up, else 0; one that
        contradicts the line raises OptionError); strict=True refuses metadata the ISA leaves undefined.  scale_a,
        scale_b: uint32 (..., 32) scale registers of block-scaled forms, as `pack_scale_a` makes them, with their byte
        and thread selectors (default: those of the line, else 0).  Raises UnsupportedInstructionError when `arch` lacks
        the form or nobody has recorded its arithmetic.

        >>> import nbtc, numpy as np
        >>> i = nbtc.instruction("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32")
        >>> a, b = np.full((8, 16), 2, np.int8), np.full((16, 8), 3, np.int8)
        >>> d = i(i.pack_a(a), i.pack_b(b), i.pack_c(np.ones((8, 8), np.int32)))
        >>> i.unpack_d(d)[0, 0]
        np.int32(97)
        """
        row = self.row
        unscaled = scale_a is scale_b is byte_a is thread_a is byte_b is thread_b is None
        if unscaled and meta is selector is None and not (row.scale or self.immediates):  # all that most calls need
            found: NDArray[np.uint32] | None = _products().lone(row, a, b, c, arch, threads)
            if found is not None:
                return found
        if not row.executable:
            raise parse.refuse(row)
        if row.family not in RUNS:
            other = ELSEWHERE.get(row.family)
            raise UnsupportedInstructionError(
                f"{row.mnemonic} does not work on three register images, so it cannot be called: "
                + (f"use {other} instead" if other else "from Python, where lanes run in step, it has nothing to do")
            )
        if a is None or b is None or c is None:
            missing = [name for name, x in (("a", a), ("b", b), ("c", c)) if x is None]
            raise FormatError(
                f"{row.mnemonic} computes d = a * b + c; {' and '.join(missing)} not given: pass three register "
                "images, as pack_a, pack_b and pack_c make them"
            )
        if row.scale:
            left, right = _scales.selected(self, (scale_a, byte_a, thread_a), (scale_b, byte_b, thread_b))
            from nbtc.ops.mma.scaled import execute as execute_scaled

            return execute_scaled(row, a, b, c, left, right, arch, threads)
        if not unscaled:
            _scales.no_scales(row, scale_a, scale_b, byte_a, thread_a, byte_b, thread_b)
        if self.immediates or selector is None:
            selector = parse.immediate(self, "selector", selector, 0)
        result: NDArray[np.uint32] = _products().execute(
            row, a, b, c, meta=meta, selector=selector, arch=arch, strict=strict, threads=threads
        )
        return result

    def __repr__(self) -> str:
        return f"<nbtc.Instruction {self.mnemonic}>"

    def __str__(self) -> str:
        return self.mnemonic

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Instruction):
            return False
        # not rows: they are made anew when their table changes
        return (self.mnemonic, self.immediates) == (other.mnemonic, other.immediates)

    def __hash__(self) -> int:
        return hash(self.mnemonic)

    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (self.mnemonic, self.immediates)

    def _repr_svg_(self) -> str:
        """The picture a notebook shows: A left, B on top, C and D in the corner; see `nbtc.show.svg`."""
        from nbtc.show import svg

        return svg(self)


def instruction(text: str | Instruction) -> Instruction:
    """The instruction that a mnemonic or a whole PTX line names.

    Other spellings of a form give the same instruction: the shape before the layouts, no .aligned, a state space.  In a
    whole line operand counts, register counts and immediates are checked too, and a call uses the immediates.  Raises
    ParseError for text that the assembler rejects, naming the nearest legal form if one is near.

    >>> import nbtc
    >>> nbtc.instruction("mma.sync.row.col.m8n8k16.s32.s8.s8.s32").mnemonic
    'mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32'
    >>> nbtc.instruction("movmatrix.sync.aligned.m8n8.trans.b16 %r1, %r2;").family
    'movmatrix'
    """
    if isinstance(text, Instruction):
        return text
    found = parse.row(text)
    return _of(found, tuple(parse.immediates(text).items()))


@lru_cache(maxsize=4096)
def _of(row: Row, immediates: tuple[tuple[str, int], ...] = ()) -> Instruction:
    return Instruction(row, immediates)


def _made(mnemonic: str, immediates: tuple[tuple[str, int], ...]) -> Instruction:
    return _of(parse.row(mnemonic), immediates)


def instructions(
    arch: object = None,
    family: str | None = None,
    a: object = None,
    b: object = None,
    c: object = None,
    d: object = None,
    shape: object = None,
    **more: object,
) -> tuple[Instruction, ...]:
    """All instructions that match every criterion given.

    arch: an architecture that has the form ("sm_80", 90).  family: as in `Instruction.family`.  a, b, c, d: formats of
    the operands.  shape: (m, n, k) or "m16n8k16".  Other fields of a row work too: sparse, ordered, saturate, rounding,
    op, a_layout, b_layout, executable, min_arch, unit.  Raises OptionError for a criterion that does not exist.

    >>> import nbtc
    >>> [i.mnemonic for i in nbtc.instructions(arch="sm_75", family="mma", a="f16", d="f32", shape=(16, 8, 8))]
    ['mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32']
    """
    return tuple(_of(r) for r in parse.rows(arch, family, a, b, c, d, shape, **more))


class _Callable(ModuleType):
    """`nbtc.instructions` is this module once anything has imported it, and a function to its users: it is both."""

    def __call__(self, *args: Any, **more: Any) -> tuple[Instruction, ...]:
        return instructions(*args, **more)


sys.modules[__name__].__class__ = _Callable


refuse_in_compiled_code((instruction, instructions), "look it up before: an Instruction is a constant there")
