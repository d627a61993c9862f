"""Rows of wgmma.mma_async, dense and sparse: products of a warpgroup of 128 threads, on sm_90a alone (PTX ISA,
"Asynchronous Warpgroup Level Matrix Instructions").

B always lies in shared memory, A there or in four registers a thread: operand `a` is its register form, operand `b` has
no lane layout.  D is read and written: `c` and `d` are the same operand.
"""

from __future__ import annotations

from collections.abc import Iterator

from nbtc.formats.table import Format
from nbtc.isa import build
from nbtc.isa.build import FP8, fragment_a, fragment_c, metadata
from nbtc.isa.mma_sp import chunk_columns
from nbtc.isa.spec import Operand, Row, named

TARGET, ONLY = "sm_90a", 90
FLOAT_N = tuple(range(8, 257, 8))
INTEGER_N = (8, 16, 24, 32, *range(48, 257, 16))

# k, formats of A and B (every pair), accumulators, legal n, operands that imm-scale and imm-trans apply to
DENSE = (
    (16, "f16", "f16 f32", FLOAT_N, "ab", "ab"),
    (16, "bf16", "f32", FLOAT_N, "ab", "ab"),
    (8, "tf32", "f32", FLOAT_N, "ab", ""),
    (32, FP8, "f16 f32", FLOAT_N, "ab", ""),
    (32, "s8 u8", "s32", INTEGER_N, "", ""),
    (256, "b1", "s32", INTEGER_N, "", ""),
)
# legal selectors of the sparse forms, by their k (twice the dense one)
SELECTORS = {16: (0, 1), 32: (0, 1), 64: (0,)}


def rows() -> Iterator[Row]:
    """Rows of wgmma.mma_async."""
    for k, names, accumulators, sizes, scales, trans in DENSE:
        for a, b in build.pairs(names):
            for acc in accumulators.split():
                for n in sizes:
                    yield from _forms((64, n, k), a, b, named(acc), scales, trans, False)


def sparse_rows() -> Iterator[Row]:
    """Rows of wgmma.mma_async.sp."""
    for k, names, accumulators, sizes, scales, trans in DENSE:
        if names != "b1":
            for a, b in build.pairs(names):
                for acc in accumulators.split():
                    for n in sizes:
                        yield from _forms((64, n, 2 * k), a, b, named(acc), scales, trans, True)


def _forms(
    shape: tuple[int, int, int], a: Format, b: Format, acc: Format, scales: str, trans: str, sparse: bool
) -> Iterator[Row]:
    m, n, k = shape
    oa = fragment_a(a, m, k // 2 if sparse else k)
    od = fragment_c(acc, m, n)
    head = f"wgmma.mma_async{'.sp' if sparse else ''}.sync.aligned.m{m}n{n}k{k}.{acc}.{a}.{b}"
    selectors = SELECTORS[k] if sparse else ()
    suffixes = (".and.popc",) if a.kind == "bit" else ("", ".satfinite") if a.kind == "int" else ("",)
    for suffix in suffixes:
        yield Row(
            head + suffix, "wgmma.mma_async.sp" if sparse else "wgmma.mma_async", TARGET, shape,
            oa, Operand(b, k, n, 0, 0, None), od, od, metadata(m, k // chunk_columns(a)) if sparse else None,
            unit="wgmma", a_layout="row", b_layout="col", saturate=suffix == ".satfinite",
            op="and" if a.kind == "bit" else None, sparse=sparse, selectors=selectors, last=ONLY,
            scales=tuple(scales), trans=tuple(trans), syntax=_syntax(od.registers, selectors, scales, trans),
        )  # fmt: skip


def _syntax(registers: int, selectors: tuple[int, ...], scales: str, trans: str) -> tuple[str, ...]:
    """The operand lists with A in shared memory and in registers; ptxas takes neither fewer immediates nor more."""
    meta = f" e selector={','.join(str(s) for s in selectors)}" if selectors else ""
    scale = "".join(f" scale{s.upper()}=-1,1" for s in scales)
    shared, held = ("".join(f" trans{t.upper()}=0,1" for t in some) for some in (trans, trans.replace("a", "")))
    line = f"{{}} descB{meta} scaleD!{scale}{{}}"
    return tuple(f"d{{{registers}}} " + line.format(a, rest) for a, rest in (("descA", shared), ("a{4}", held)))
