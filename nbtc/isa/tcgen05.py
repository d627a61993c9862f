"""Rows of tcgen05.mma, the tensor-memory products of the sm_100 family (PTX ISA, "tcgen05.mma").

Operand formats and shapes are in a run-time instruction descriptor, so a row has neither.  They parse and list; what
they compute is not recorded.
"""

from __future__ import annotations

from collections.abc import Iterator

from nbtc.isa.spec import Row

PLAIN = "f16 tf32 f8f6f4 i8"
SCALED = (
    ("mxf8f6f4", "scale_vec::1X"),
    ("mxf4", "scale_vec::2X"),
    ("mxf4nvf4", "scale_vec::2X"),
    ("mxf4nvf4", "scale_vec::4X"),
)
LAST = 119  # not in the sm_120 family


def rows() -> Iterator[Row]:
    """All rows of the family."""
    for sparse in ("", ".sp"):
        meta = " meta[]" if sparse else ""
        for group in ("cta_group::1", "cta_group::2"):
            for kind in PLAIN.split():
                yield _row(sparse, f"{group}.kind::{kind}", (f"d[] {{a}} descB{meta} idesc enableD!",))
            for kind, size in SCALED:
                syntax = (f"d[] {{a}} descB{meta} idesc scaleA[] scaleB[] enableD!",)
                yield _row(sparse, f"{group}.kind::{kind}.block_scale.{size}", syntax)


def _row(sparse: str, rest: str, syntax: tuple[str, ...]) -> Row:
    forms = tuple(s.replace("{a}", a) for s in syntax for a in ("a[]", "descA"))
    return Row(
        f"tcgen05.mma{sparse}.{rest}", "tcgen05.mma", "sm_100a", unit="tcgen05", sparse=bool(sparse), executable=False,
        last=LAST, syntax=forms,
    )  # fmt: skip
