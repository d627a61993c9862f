"""Large integer, bit and f64 products: words packed into panels, six rows a tile."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from nbtc.formats.table import Format
from nbtc.gemm import words_kernel as micro
from nbtc.gemm.fused_engine import contiguous
from nbtc.gemm.threads import Crew
from nbtc.numerics.pack import byte_sums, column_bytes, nibble_words, pack_column_words, pack_row_words, row_bytes

ROW_BLOCK = 16 * micro.ROWS
SHARE = 256  # rows or columns a packing task takes
COLUMNS, DEPTH = 1024, 512  # columns of B packed at once; words of depth in a packed block


class WordsProduct:
    """d += A * B of words (M, K) and (K, N): int8 and b1 in uint32, f64 in float64.  d: flat int32 or float64."""

    def __init__(self, op: int, rounding: int, crew: Crew) -> None:
        self.crew = crew
        self.kernel = micro.rows_kernel(op, rounding)
        self.width = 32 if op == micro.FMA else 64
        self.elements = {micro.FMA: 1, micro.DOT: 4}.get(op, 32)  # of a word

    def run(self, a: NDArray[Any], b: NDArray[Any], d: NDArray[Any]) -> None:
        """a (M, K), b (K, N) in any layout; d (M, N) C order, holding the start values."""
        columns, depth = b.shape[1], b.shape[0]
        for j in range(0, columns, COLUMNS):
            for k in range(0, depth, DEPTH):
                self._super(a, b, d, j, k, min(COLUMNS, columns - j), min(DEPTH, depth - k))

    def _super(self, a: Any, b: Any, d: Any, j: int, k: int, columns: int, depth: int) -> None:
        packed = np.empty(-(-columns // self.width) * self.width * depth, b.dtype)
        step = 4 * self.width
        pack = [
            lambda q=q: pack_column_words(
                contiguous(b[k : k + depth, j + q : j + min(columns, q + step)]), packed[q * depth :], self.width
            )
            for q in range(0, columns, step)
        ]
        self.crew.run(pack)
        block = min(ROW_BLOCK, max(micro.ROWS, -(-a.shape[0] // (self.crew.threads * micro.ROWS)) * micro.ROWS))
        rows = range(0, a.shape[0], block)
        share = (
            columns if len(rows) >= self.crew.threads else -(-columns // self.crew.threads // step) * step or columns
        )
        work = [
            (i, min(block, a.shape[0] - i), q, min(share, columns - q)) for i in rows for q in range(0, columns, share)
        ]
        tasks = [lambda w=w: self._rows(a, packed, d, j, k, depth, *w) for w in work]
        self.crew.run(tasks, a.shape[0] * columns * depth * self.elements // len(tasks))

    def _rows(self, a: Any, packed: Any, d: Any, j: int, k: int, depth: int, i: int, rows: int, q: int, n: int) -> None:
        av = np.empty(-(-rows // micro.ROWS) * micro.ROWS * depth, a.dtype)
        pack_row_words(contiguous(a[i : i + rows, k : k + depth]), av, micro.ROWS)
        flat, ld = d.reshape(-1), d.shape[1]
        scratch = np.zeros(micro.ROWS * self.width, d.dtype)
        self.kernel(av, packed[q * depth :], flat, i * ld + j + q, ld, rows, n, depth, scratch)


def int8_words(
    a: NDArray[np.uint8], b: NDArray[np.uint8], formats: tuple[Format, Format], crew: Crew
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int32], NDArray[np.int32]]:
    """Words of signed A and unsigned B, and what each row and column must add so that sums are of the true bytes.

    With A' = A - x and B' = B + y (x, y = 128 where a sign had to change): A B = A'B' - y sum(A') + x sum(B') - x y K.
    """
    x, y = (0 if formats[0].signed else 128), (128 if formats[1].signed else 0)
    m, k, n = a.shape[0], a.shape[1], b.shape[1]
    aw, bw = np.empty((m, -(-k // 4)), np.uint32), np.empty((-(-k // 4), n), np.uint32)
    rows, columns = np.zeros(m, np.int32), np.zeros(n, np.int32)
    deep = SHARE
    tasks = [
        lambda i=i: row_bytes(contiguous(a[i : i + deep]), aw[i : i + deep], rows[i : i + deep], np.uint32(x))
        for i in range(0, m, deep)
    ]
    tasks += [
        lambda j=j: column_bytes(
            contiguous(b[:, j : j + deep]), bw[:, j : j + deep], columns[j : j + deep], np.uint32(y)
        )
        for j in range(0, n, deep)
    ]
    crew.run(tasks)
    with np.errstate(over="ignore"):
        rows = -np.int32(y) * rows
        columns = np.int32(x) * columns - np.int32(x * y) * np.int32(k)
    return aw, bw, rows, columns


def int4_words(
    a: NDArray[np.uint32], b: NDArray[np.uint32], formats: tuple[Format, Format], crew: Crew
) -> tuple[NDArray[np.uint32], NDArray[np.uint32], NDArray[np.int32], NDArray[np.int32]]:
    """As `int8_words`, from packed words: 4-bit A fits a signed byte as it is, signed B is raised by 8."""
    aw = np.empty((a.shape[0], 2 * a.shape[1]), np.uint32)
    bw = np.empty((2 * b.shape[0], b.shape[1]), np.uint32)
    rows, columns = np.zeros(a.shape[0], np.int32), np.zeros(b.shape[1], np.int32)
    raised = formats[1].signed

    def one_a(i: int) -> None:
        nibble_words(contiguous(a[i : i + SHARE]), aw[i : i + SHARE], True, formats[0].signed, False)
        if raised:
            byte_sums(aw[i : i + SHARE], rows[i : i + SHARE])

    def one_b(i: int) -> None:
        nibble_words(contiguous(b[i : i + SHARE]), bw[2 * i : 2 * (i + SHARE)], False, raised, True)

    tasks = [lambda i=i: one_a(i) for i in range(0, a.shape[0], SHARE)]
    crew.run(tasks + [lambda i=i: one_b(i) for i in range(0, b.shape[0], SHARE)])
    with np.errstate(over="ignore"):
        return aw, bw, -np.int32(8) * rows, columns
