"""Which algorithm cuBLAS chooses for a product, and the order in which that sums.

`library_choices.txt.xz` holds answers of cuBLAS' own heuristic (`cublasLtMatmulAlgoGetHeuristic`, cuBLAS 13.1 on an
H200, for tf32 in part and for float32 on an H100) to 10 million questions, with the workspace that PyTorch gives: 32
MiB, and 1 MiB to `addmm` and `_scaled_mm`.
For each of 64,352 recorded products whose kernel a profiler named, the answer is the kernel that ran.  A line of the
file has operation, format, layout and two of M, N and K (in a batch all three), then the third (the batch) from which
a choice holds on, with the choice: a chain and into how many parts K is divided.
"""

from __future__ import annotations

import lzma
import re
from bisect import bisect_right
from functools import cache
from importlib.resources import files
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc.gemm.cublas.fused import PREFIX, fused_order, lone
from nbtc.gemm.cublas.segments import segments

Size = tuple[int, int, int, int]  # batch (0: none), M, N, K
Kind = tuple[str, str, str]  # operation, format, layout

# Elements of 16 bytes, by which lines are aligned or not, and of the 128 bytes that parts of K are whole numbers of
OCTETS = {"f32": 4, "tf32": 4, "bf16": 8, "f16": 8, "e4m3": 16}
LINE = {"f32": 32, "tf32": 32, "bf16": 64, "f16": 64, "e4m3": 128}
AGREEING = 5  # nearest lines that must have a choice; of 23,000 random shapes with whole lines 98.9 % then have it
UNKNOWN = ("auto", "gemv", "other")  # kernels that divide some tiles in a way not known, and those without tensor cores

# cuBLAS' kernels for products of one row, by their custom option: the order, and the largest K of the 552 products
# recorded on an H100, with operands that tf32 does not hold, which had its bits.  The others have orders not known.
ONE_ROW = {
    "gemv11": ("fma:lanes16serial:each512", 8192),
    "gemv12": ("fma:lanes16serial:each256", 512),
    "gemv73": ("fma:lanes16", 8192),
    "gemv74": ("fma:runs32", 512),
    "gemv48": ("fma:runs2", 50),
    "gemv72": ("fma:runs16", 256),
    "gemv75": ("fma:lanes32", 18944),
    "gemv78": ("fma:runs8", 65),
    "gemv83": ("fma:lanes32", 4864),
    "gemv91": ("fma:lanes16", 512),
    "gemv92": ("fma:runs32", 1600),
    "gemv93": ("fma:lanes32", 18944),
    "gemv94": ("fma:runs2", 64),
    "gemv97": ("fma:lanes4", 1536),
    "gemv100": ("fma:runs16", 1024),
    "gemv101": ("fma:lanes16", 11008),
    "gemv115": ("fma:lanes4", 5120),
}


class Algorithm(NamedTuple):
    """chain: the order within a part; "auto:..." a tf32 kernel that may divide tiles (`segments`), "gemv..." one for a
    single row, "fma..." one without tensor cores (`fused_order`), "other" one whose order is not known.  parts: how
    many cuBLAS asks for.
    """

    chain: str
    parts: int = 1

    @property
    def described(self) -> bool:
        """Whether anything is known of the kernel."""
        return (
            self.chain.startswith("auto:")
            or self.chain in ONE_ROW
            or not self.chain.startswith(("auto", "gemv", "other"))
        )

    def found(self, name: str, layout: str, size: Size) -> tuple[str, bool]:
        """The name of the order of a product, and whether it is sure.

        >>> Algorithm("gemv75").found("tf32", "nt", (0, 1, 768, 768))
        ('fma:lanes32', True)
        >>> Algorithm("other").found("f16", "nt", (0, 1, 7, 9))
        ('seq', False)
        """
        if not self.described:
            return lone(name), False
        if self.chain.startswith("auto:"):
            return segments(self.chain, layout, size)
        if self.chain in ONE_ROW:
            order, longest = ONE_ROW[self.chain]
            return order, self.parts == 1 and size[3] <= longest
        return self.order(name, layout, size[3]), True

    def order(self, name: str, layout: str, k: int) -> str:
        """The name of the order for K, which may fill fewer parts than asked for.

        CUTLASS' kernels give a part whole lines of 128 bytes where K is whole lines of an operand in memory, else whole
        16 bytes; cuBLAS' own kernels always whole lines.

        >>> Algorithm("resfirst64", 7).order("f16", "nt", 1000), Algorithm("seq", 3).order("bf16", "nt", 8192)
        ('split7x144:resfirst64', 'split3x2752')
        """
        line = LINE[name]
        own = self.chain == "seq" and name != "tf32"
        unit = line if own or (layout != "tn" and k % line == 0) else OCTETS[name]
        if self.chain.startswith(PREFIX):
            return fused_order(self.chain, self.parts, k, unit)
        part = -(-k // (self.parts * unit)) * unit
        if part >= k:
            return self.chain
        split = f"split{-(-k // part)}x{part}"
        if self.chain == "seq":
            return split
        before, _, rest = self.chain.rpartition("resfirst")
        return f"{before}{split}:resfirst{rest}"


class Algorithms(NamedTuple):
    """Choices along one of M, K or the batch: from each of `starts` on that of the same place."""

    starts: list[int]
    choices: list[Algorithm]

    def at(self, value: int) -> Algorithm:
        return self.choices[max(0, bisect_right(self.starts, value) - 1)]


@cache
def _text() -> str:
    """The table: lines of values that were asked for, then those of one kind after the other."""
    packed = files("nbtc").joinpath("data", "library_choices.txt.xz").read_bytes()
    return "\n" + lzma.decompress(packed).decode()


def _of(head: str) -> list[tuple[list[str], str]]:
    """The lines that begin with some words: their other words, and the rest."""
    text, start = _text(), f"\n{head} "
    if (first := text.find(start)) < 0:
        return []
    found = text[first : text.index("\n", text.rfind(start) + 1)]
    heads = (line.partition("|") for line in found.replace(start, "\n").split("\n")[1:])
    return [(words.split(), rest) for words, _, rest in heads]


@cache
def _values() -> dict[str, list[int]]:
    """The values that were asked for."""
    return {words[0]: [int(x) for x in rest.split()] for words, rest in _of("values")}


@cache
def _lines(kind: Kind) -> dict[tuple[int, ...], str]:
    """The lines of a kind as text, which is parsed when it is needed."""
    op, name, layout = kind
    own = {tuple(map(int, words)): rest for words, rest in _of(" ".join(kind))}
    if own and name == "f16":  # the file leaves out what is as in bfloat16
        own = {f: x for f, x in _lines((op, "bf16", layout)).items() if not any(size % 8 for size in f)} | own
    return own


def _line(text: str) -> Algorithms:
    """
    >>> _line("1:seq 16:resfirst64/3").at(20)
    Algorithm(chain='resfirst64', parts=3)
    """
    found = re.findall(r"(\d+):([^\s/]+)(?:/(\d+))?", text)
    return Algorithms(
        [int(start) for start, _, _ in found], [Algorithm(chain, int(parts or 1)) for _, chain, parts in found]
    )


def along(kind: Kind, size: Size) -> tuple[tuple[int, ...], int]:
    """The sizes that stay the same on a line, and the one that changes: the batch, K where A is transposed, or M.

    >>> along(("mm", "bf16", "tn"), (0, 768, 3072, 2048)), along(("mm", "bf16", "nt"), (0, 4, 3072, 768))
    (((768, 3072), 2048), ((3072, 768), 4))
    """
    batch, m, n, k = size
    if kind[0] == "bmm":
        return (m, n, k), batch
    return ((m, n), k) if kind[2] == "tn" else ((n, k), m)


def chosen(kind: Kind, size: Size) -> tuple[Algorithm, str] | None:
    """The choice for a size on a line that was asked for, with why it is known; None off those lines.

    >>> chosen(("mm", "bf16", "nt"), (0, 1, 4096, 14336))[1]
    "cuBLAS' heuristic chose it"
    """
    fixed, value = along(kind, size)
    text = _lines(kind).get(fixed)
    if text is None:
        return None
    line, asked = _line(text), _values()[_asked(kind, fixed)]
    place = bisect_right(asked, value)
    if asked[place - 1] == value:
        return line.at(value), "cuBLAS' heuristic chose it"
    if 0 < place < len(asked) and line.at(asked[place - 1]) == line.at(asked[place]):
        return line.at(value), "cuBLAS' heuristic chose it for the next smaller and larger size"
    return None


def _asked(kind: Kind, fixed: tuple[int, ...]) -> str:
    """Which values were asked for on a line."""
    return "batch" if kind[0] == "bmm" else "odd" if any(x % 8 for x in fixed) else "whole"


def nearest(kind: Kind, size: Size) -> tuple[list[Algorithm], tuple[int, ...]] | None:
    """The choices of the nearest lines whose operands are aligned alike, and the sizes of the nearest of them.

    >>> nearest(("mm", "bf16", "nt"), (0, 3, 4104, 14336))[1]
    (4096, 14336)
    """
    fixed, value = along(kind, size)
    if (alike := _by_alignment(kind).get(_alignment(kind, fixed))) is None:
        return None
    doublings = np.abs(np.log2(alike) - np.log2(fixed)).sum(1)
    near = [tuple(map(int, alike[at])) for at in np.argsort(doublings, kind="stable")[:AGREEING]]
    return [_line(_lines(kind)[other]).at(value) for other in near], near[0]


def _alignment(kind: Kind, fixed: tuple[int, ...]) -> tuple[int, ...]:
    """The largest power of two that divides the length of each matrix' lines, up to 16 bytes."""
    name, layout = kind[1:]
    m, n, k = fixed if len(fixed) == 3 else (*fixed, 0) if layout == "tn" else (0, *fixed)
    lengths = m if layout[0] == "t" else k, k if layout[1] == "t" else n, n
    return tuple(min(OCTETS[name], x & -x) for x in lengths)


@cache
def _by_alignment(kind: Kind) -> dict[tuple[int, ...], NDArray[np.int64]]:
    """The sizes of lines of a kind, by how their operands are aligned, in ascending order."""
    found: dict[tuple[int, ...], list[tuple[int, ...]]] = {}
    for fixed in sorted(_lines(kind)):
        found.setdefault(_alignment(kind, fixed), []).append(fixed)
    return {alignment: np.array(sizes) for alignment, sizes in found.items()}
