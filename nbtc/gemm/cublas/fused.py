"""Orders of cuBLAS' kernels without tensor cores, which sum float32 by fused multiply-adds, by the names of the table.

Found on an H100 by probes (a large number, minus it, and ones elsewhere) and by products of numbers that tf32 does not
hold: 6,139 float32 products, and the tf32 products that cuBLAS gives to these kernels.
`tests/gemm/test_fused_orders.py` has some of them.
"""

from __future__ import annotations

STEP = 8  # elements of K in a step of these kernels
PREFIX = "fma"
PLAIN = "f32"  # operands that are not rounded to tf32

# Kernels for a side of at most 16, not transposed: into how many parts they divide K, and after how many elements of a
# part a chain is added to the part's sum
NARROW = {"fma:halves": (2, 256), "fma:quarters": (4, 128)}


def lone(name: str) -> str:
    """The order of one chain over operands of a format.

    >>> lone("f32"), lone("tf32")
    ('fma', 'seq')
    """
    return PREFIX if name == PLAIN else "seq"


def fused_order(chain: str, parts: int, k: int, unit: int) -> str:
    """The name of the order of a chain of the table that begins with "fma".

    "fma:slices8": steps are dealt to parts in turn; "fma:folded8": the same, added by halves.  "fma:parts": parts are
    whole units.  "fma:parts8": parts are whole steps, as many each as K's whole steps fill; what is left is a part of
    its own.  Other names are orders.

    >>> fused_order("fma:slices8", 4, 300, 4), fused_order("fma:parts", 4, 300, 4), fused_order("fma:parts8", 4, 34, 4)
    ('fma:slice32/4', 'fma:split4x76', 'fma:split5x8')
    >>> fused_order("fma:halves", 1, 640, 4), fused_order("fma:slices8", 4, 8, 4)
    ('fma:split2x320:each256', 'fma')
    """
    if chain in NARROW:
        count, each = NARROW[chain]
        return f"fma:split{-(-k // -(-k // count))}x{-(-k // count)}:each{each}"
    if chain == "fma:slices8":
        count = min(parts, -(-k // STEP))
        return f"fma:slice{STEP * count}/{count}" if count > 1 else PREFIX
    if chain == "fma:folded8":
        return f"fma:slice{STEP * parts}/{parts}:folded" if k > STEP else PREFIX
    if chain == "fma:parts":
        return _split(k, -(-k // (parts * unit)) * unit)
    if chain == "fma:parts8":
        return _split(k, max(1, -(-(k // STEP) // parts)) * STEP)
    return chain


def _split(k: int, part: int) -> str:
    return PREFIX if part >= k else f"fma:split{-(-k // part)}x{part}"
