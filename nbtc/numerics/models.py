"""One row per (unit, architecture, format): how its dot products are summed, and who says so.

A fused row is the T(L, F, EF, OUT) of a tensor core: blocks of `block` products and the accumulator are aligned to
their largest exponent, truncated to `fraction` bits below it, summed exactly, and rounded once.  `floor32`/`floor16` is
the exponent that a zero term counts as, with an f32 or f16 accumulator.  `out` is the rounding to f32 ("rz24" or
"rz14"; f16 results are always "rne11").  The other kinds are named in `Kind`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from nbtc.compiler.cache import added_rows
from nbtc.errors import UnsupportedInstructionError, UnvalidatedModelWarning, warn
from nbtc.formats.table import Format
from nbtc.numerics import sources


class Kind(IntEnum):
    """The kinds of arithmetic, as numbered inside kernels."""

    FUSED = 0  # T(L, F, EF, OUT), blocks in ascending k
    EMULATED_FP8 = 1  # fp8 mma.sync on f16 units: two T over interleaved halves of a step, then one IEEE addition of c
    SCALAR_FMA = 2  # f16 m8n8k4 without a tensor core: short f32 fma chains
    FMA64 = 3  # IEEE double fma chain
    INTEGER = 4  # exact sum, then wrap or clamp to s32
    BITS = 5  # popcount of xor or and
    SCALED = 6  # the fused sum with a power of two for the row and one for the column
    GROUPED = 7  # exact sums of 16 products, each scaled, then aligned by the exponents of the scales alone


# index of each entry of a kernel's parameter vector
KIND, A_FORMAT, B_FORMAT, ACC_FORMAT, BLOCK, FRACTION, FLOOR, OUT, STEP, SATURATE, ROUNDING, BIT_OP, C_FORMAT = range(
    13
)
PARAMS = 13
OUTS = {"rz24": 0, "rz14": 1, "rne11": 2}
ROUNDINGS = {"rn": 0, "rz": 1, "rm": 2, "rp": 3}
BIT_OPS = {"xor": 0, "and": 1}


@dataclass(frozen=True)
class Model:
    """The arithmetic of one unit of one architecture for one format family.

    evidence: "recorded" (bit-compared with recordings of that GPU, any input class), "public vectors" (bit-compared
    with published results of that GPU on ordinary inputs), or "literature" (published models agree; no vectors here).
    c_as_given: an f16 C of a form with f32 results is aligned as the f16 it is, whose subnormals have the exponent -14;
    elsewhere it is converted first, and they are normal numbers.  source: the publication or repository that decides a
    row without recordings of nbtc's own, and what in it (`sources`).
    """

    id: str
    kind: Kind
    evidence: str
    block: int = 0
    fraction: int = 0
    floor32: int = 0
    floor16: int = 0
    out: str = "rz24"
    c_as_given: bool = False
    source: str = ""

    @property
    def validated(self) -> bool:
        """True when results of the very GPU back the row."""
        return self.evidence != "literature"


def _fused(id: str, evidence: str, block: int, fraction: int) -> Model:
    """A fused row.  The floor follows from F: EF = -108 - F (f32), 4 - F (f16), published, and recorded on sm_90.

    The two fp8 rows of 13 places are no exception that shows: their floors are those of 24 and 25 places.
    """
    return Model(id, Kind.FUSED, evidence, block, fraction, -108 - fraction, 4 - fraction)


_H, _P, _L = "recorded", "public vectors", "literature"
_VOLTA = replace(_fused("sm_70 f16", _P, 4, 23), c_as_given=True)
_SM89_FP8 = Model("sm_89 fp8", Kind.FUSED, _P, 16, 13, -132, -20, "rz14")
_SM90_FP8 = Model("sm_90 wgmma fp8", Kind.FUSED, _H, 32, 13, -133, -21, "rz14")

# (architecture, unit, format family) -> row.  Unit "quad" is f16 m8n8k4, four products a warp.
_SOURCE: dict[tuple[str, str, str], Model] = {
    ("sm_70", "mma", "f16"): _VOLTA,
    ("sm_70", "quad", "f16"): _VOLTA,
    ("sm_75", "mma", "f16"): _fused("sm_75 f16", _L, 8, 24),
    ("sm_75", "quad", "f16"): replace(_VOLTA, id="sm_75 f16 m8n8k4", evidence=_L),
    ("sm_80", "mma", "f16"): _fused("sm_80 f16", _P, 8, 24),
    ("sm_80", "mma", "bf16"): _fused("sm_80 bf16", _P, 8, 24),
    ("sm_80", "mma", "tf32"): _fused("sm_80 tf32", _P, 4, 24),
    ("sm_80", "quad", "f16"): Model("f16 m8n8k4 without tensor core", Kind.SCALAR_FMA, _L),
    ("sm_89", "mma", "f16"): _fused("sm_89 f16", _P, 8, 24),
    ("sm_89", "mma", "bf16"): _fused("sm_89 bf16", _P, 8, 24),
    ("sm_89", "mma", "tf32"): _fused("sm_89 tf32", _P, 4, 24),
    ("sm_89", "mma", "fp8"): _SM89_FP8,
    ("sm_89", "quad", "f16"): Model("f16 m8n8k4 without tensor core", Kind.SCALAR_FMA, _L),
    ("sm_90", "mma", "f16"): _fused("sm_90 f16", _H, 16, 25),
    ("sm_90", "mma", "bf16"): _fused("sm_90 bf16", _H, 16, 25),
    ("sm_90", "mma", "tf32"): _fused("sm_90 tf32", _H, 8, 25),
    ("sm_90", "wmma", "tf32"): _fused("sm_90 wmma tf32", _H, 4, 25),
    ("sm_90", "mma", "fp8"): replace(_fused("sm_90 fp8 mma", _H, 16, 25), kind=Kind.EMULATED_FP8),
    ("sm_90", "wgmma", "fp8"): _SM90_FP8,
    ("sm_90", "quad", "f16"): Model("f16 m8n8k4 without tensor core", Kind.SCALAR_FMA, _H),
    ("sm_100", "mma", "f16"): _fused("sm_100 f16", _P, 16, 25),
    ("sm_100", "mma", "bf16"): _fused("sm_100 bf16", _P, 16, 25),
    ("sm_100", "mma", "tf32"): _fused("sm_100 tf32", _P, 8, 25),
    ("sm_100", "wmma", "tf32"): _fused("sm_100 wmma tf32", _L, 4, 25),
    ("sm_100", "mma", "fp8"): replace(_fused("sm_100 fp8 mma", _P, 16, 25), kind=Kind.EMULATED_FP8),
    ("sm_100", "quad", "f16"): Model("f16 m8n8k4 without tensor core", Kind.SCALAR_FMA, _L),
    ("sm_120", "mma", "f16"): _fused("sm_120 f16", _L, 16, 25),
    ("sm_120", "mma", "bf16"): _fused("sm_120 bf16", _L, 16, 25),
    ("sm_120", "mma", "tf32"): _fused("sm_120 tf32", _L, 8, 25),
    ("sm_120", "wmma", "tf32"): _fused("sm_120 wmma tf32", _L, 4, 25),
    ("sm_120", "mma", "fp8"): _fused("sm_120 fp8", _L, 32, 25),
    ("sm_120", "mma", "fp6"): _fused("sm_120 fp6", _L, 32, 25),
    ("sm_120", "mma", "fp4"): _fused("sm_120 fp4", _L, 32, 25),
    ("sm_120", "quad", "f16"): Model("f16 m8n8k4 without tensor core", Kind.SCALAR_FMA, _L),
}
# the units of sm_100's tcgen05 and of sm_120's block scales: one arithmetic, in the same published model
_T05 = {"f16": 16, "bf16": 16, "tf32": 8, "fp8": 32, "fp6": 32, "fp4": 32}
_SOURCE |= {("sm_100", "tcgen05", f): _fused(f"sm_100 tcgen05 {f}", _L, block, 25) for f, block in _T05.items()}
_SOURCE |= {("sm_100", "tcgen05", f): Model("sm_100 tcgen05 integer", Kind.INTEGER, _L) for f in ("s8", "u8")}
for _arch in ("sm_100", "sm_120"):
    _mx = replace(_fused(f"{_arch} mxf8f6f4", _L, 32, 25), kind=Kind.SCALED)
    _SOURCE |= {(_arch, "scaled", f): _mx for f in ("fp8", "fp6", "fp4")}
    # A zero counts as 2**-139 in the published model, not as the others' rule has it; two ue8m0 scales reach 2**-254
    _SOURCE[_arch, "grouped", "fp4"] = Model(f"{_arch} mxf4", Kind.GROUPED, _L, 16, 35, -139)
_ROWS = added_rows.Rows(
    "models",
    {
        key: row if row.evidence == _H else replace(row, source=sources.of(*key[:2], row.kind.name))
        for key, row in _SOURCE.items()
    },
)
_BORROWS = ("mma", "wmma", "wgmma")  # units without a row of their own have that of "mma"
_NARROW = {8: "fp8", 6: "fp6", 4: "fp4"}
_EXACT = {"int": Model("integer", Kind.INTEGER, _H), "bit": Model("popcount", Kind.BITS, _H)}
_SPARSE_RECORDED = frozenset({"sm_90"})  # elsewhere sparse forms use the dense row, which nobody has compared
_F64_EVIDENCE = {"sm_90": _H}  # elsewhere IEEE itself is the evidence: literature
_WARNED: set[str] = set()


def register(arch: str, unit: str, family: str, row: Model) -> None:
    """Add a row at run time (a new architecture is a new row)."""
    _ROWS[arch, unit, family] = row


def changes() -> int:
    """How often the table was changed: what was decided by an older one must be decided again."""
    return added_rows.changes("models", "architectures")


def family(fmt: Format) -> str:
    """The key of a multiplicand format in the table: float formats of 8, of 6 and of 4 bits share rows."""
    return _NARROW.get(fmt.bits, fmt.name) if fmt.kind == "float" else fmt.name


def model(
    arch: str, unit: str, fmt: Format, *, label: str | None = None, validated: bool = True, sparse: bool = False
) -> Model:
    """The row for an architecture's numerics name, a unit and a multiplicand format.

    unit: "mma", "wgmma", "wmma", "quad", "tcgen05", or with block scales "scaled" and "grouped".

    label and validated: the architecture the user named and whether its own recordings back the row (sm_87 uses the
    numbers of sm_80); False warns like a row from the literature, and so do sparse forms without recordings.
    Raises UnsupportedInstructionError where no row exists.
    """
    if fmt.kind in _EXACT and (arch, unit, fmt.name) not in _ROWS:
        return _EXACT[fmt.kind]
    if fmt.name == "f64":
        row = Model("f64 fma chain", Kind.FMA64, _F64_EVIDENCE.get(arch, _L))
    else:
        key = family(fmt)
        found = _ROWS.get((arch, unit, key)) or (_ROWS.get((arch, "mma", key)) if unit in _BORROWS else None)
        if found is None:
            have = sorted({a for a, _, f in _ROWS if f == key}, key=lambda s: int(s[3:]))
            raise UnsupportedInstructionError(
                f"{label or arch} has no arithmetic for {fmt.name} multiplicands ({unit}); "
                f'{fmt.name} is known on {", ".join(have) or "no architecture"}: pass arch="{(have or ["sm_90"])[-1]}"'
            )
        row = found
    if not (row.validated and validated) or (sparse and arch not in _SPARSE_RECORDED):
        _warn(row, label or arch, unit)
    return row


def _warn(row: Model, label: str, unit: str) -> None:
    key = f"{label} {unit} {row.id}"
    if key not in _WARNED:
        basis = row.evidence if not row.validated else "another chip"
        warn(
            f'numerics model "{row.id}" used for {label} ({unit}) rests on {basis}: '
            "no recording of this very hardware backs it here",
            UnvalidatedModelWarning,
        )
        _WARNED.add(key)  # after it: where warnings are errors, every call raises


def params(
    row: Model,
    a: Format,
    b: Format,
    acc: Format,
    step: int,
    *,
    c: Format | None = None,
    saturate: bool = False,
    rounding: str = "rn",
    op: str = "xor",
) -> NDArray[np.int64]:
    """The parameter vector that kernels read: `row` for formats a, b and accumulator acc, `step` products a step.

    c: the format that C has, if not the accumulator's; kernels take it converted, and align it as the row says.
    """
    f16_acc = acc.name == "f16"
    p = np.zeros(PARAMS, np.int64)
    p[KIND] = row.kind
    p[A_FORMAT], p[B_FORMAT], p[ACC_FORMAT] = a.code, b.code, acc.code
    p[BLOCK] = min(row.block, step) if row.kind in (Kind.FUSED, Kind.SCALED) else row.block
    if row.kind == Kind.EMULATED_FP8:
        p[BLOCK] = step // 2
    p[FRACTION], p[FLOOR] = row.fraction, row.floor16 if f16_acc else row.floor32
    p[OUT] = OUTS["rne11" if f16_acc else row.out]
    p[STEP], p[SATURATE], p[ROUNDING], p[BIT_OP] = step, saturate, ROUNDINGS[rounding], BIT_OPS[op]
    p[C_FORMAT] = c.code if c is not None and row.c_as_given else acc.code
    return p
