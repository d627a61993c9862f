"""Rows of tcgen05.mma, the tensor-memory products of the sm_100 family (PTX ISA, "tcgen05.mma").

Operand formats and shapes are in a run-time instruction descriptor, so a row has neither; `KINDS` says which a kind of
dense product takes.  Rows of sparse products parse and list: what they compute is not known.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

from nbtc.isa.build import FLOATS_8_TO_4
from nbtc.isa.mma import UNITS
from nbtc.isa.spec import Row

PLAIN = "f16 tf32 f8f6f4 i8"
SCALED = (
    ("mxf8f6f4", "scale_vec::1X"),
    ("mxf4", "scale_vec::2X"),
    ("mxf4nvf4", "scale_vec::2X"),
    ("mxf4nvf4", "scale_vec::4X"),
)
LAST = 119  # not in the sm_120 family


@dataclass(frozen=True)
class KindOf:
    """What a kind of tcgen05.mma takes: K of a dense product, groups of formats that A and B may mix, accumulators.

    codes: of the formats in an instruction descriptor.
    """

    k: int
    formats: tuple[str, ...]
    accumulators: tuple[str, ...]
    codes: tuple[tuple[str, int], ...]

    def takes(self, a: str, b: str, acc: str) -> bool:
        """Whether it multiplies a by b into acc."""
        known = any(a in group.split() and b in group.split() for group in self.formats)
        # f16 results of bf16 operands are in no table of the ISA
        return known and acc in self.accumulators and not (acc == "f16" and "bf16" in (a, b))


_NARROW = (("e4m3", 0), ("e5m2", 1), ("e2m3", 3), ("e3m2", 4), ("e2m1", 5))
KINDS = {
    "f16": KindOf(16, ("f16", "bf16"), ("f32", "f16"), (("f16", 0), ("bf16", 1))),
    "tf32": KindOf(8, ("tf32",), ("f32",), (("tf32", 2),)),
    "f8f6f4": KindOf(32, (FLOATS_8_TO_4,), ("f32", "f16"), _NARROW),
    "i8": KindOf(32, ("s8 u8",), ("s32",), (("u8", 0), ("s8", 1))),
    "mxf8f6f4": KindOf(32, (FLOATS_8_TO_4,), ("f32",), _NARROW),
    "mxf4": KindOf(64, ("e2m1",), ("f32",), (("e2m1", 1),)),
    "mxf4nvf4": KindOf(64, ("e2m1",), ("f32",), (("e2m1", 1),)),
}
UNITS_OF = {kind: unit for kind, unit in UNITS.items() if kind != "f8f6f4"}  # with block scales as mma.sync's
TILE = (128, 256)  # the largest product of one CTA


@cache
def product(row: Row) -> Row:
    """A dense row with the shape of its largest product of one CTA, as chains of it need one."""
    return replace(row, shape=(*TILE, KINDS[row.kind].k))


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
    kind = rest.split("kind::")[1].split(".")[0]
    return Row(
        f"tcgen05.mma{sparse}.{rest}", "tcgen05.mma", "sm_100a", unit=UNITS_OF.get(kind, "tcgen05"),
        sparse=bool(sparse), executable=not sparse, kind=kind, last=LAST, syntax=forms,
    )  # fmt: skip
