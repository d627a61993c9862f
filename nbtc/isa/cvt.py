"""Rows of the cvt forms around tensor cores, and cvt.pack (PTX ISA, "cvt" and "cvt.pack")."""

from __future__ import annotations

from collections.abc import Iterator

from nbtc.isa.build import later
from nbtc.isa.spec import Row

NEW = "sm_100a"  # fp6, fp4, ue8m0, and bf16 to and from formats of 8 bits and fewer
STOCHASTIC_LAST = 103  # roundings with random bits are not in the sm_110 and sm_120 families

# target and source, how many source operands, roundings, first target; each with .relu and .satfinite as it takes them
ONE, TWO = "d a", "d a b"
HALVES = (
    ("f16.f32", ONE, "sm_70"),
    ("f16x2.f32", TWO, "sm_80"),
    ("bf16.f32", ONE, "sm_80"),
    ("bf16x2.f32", TWO, "sm_80"),
)
PAIRS = ("f16x2", "bf16x2")
SMALL = (  # formats of 8 bits and fewer, and since when they are made of two f32 or a pair of f16 and made f16 again
    ("e4m3x2", "sm_89"),
    ("e5m2x2", "sm_89"),
    ("e2m1x2", NEW),
    ("e2m3x2", NEW),
    ("e3m2x2", NEW),
)
PACKS = (
    ("s16 u16", "s32", TWO, "sm_72"),
    ("s8 u8", "s32.b32", "d a b c", "sm_72"),
    ("s4 u4 s2 u2", "s32.b32", "d a b c", "sm_75"),
)


def rows() -> Iterator[Row]:
    """All rows of the family."""
    yield from _halves()
    yield from _tf32()
    yield from _small()
    yield from _scales()
    yield from _stochastic()
    yield _row("cvt.f32.bf16", ONE, "sm_80")
    yield _row("cvt.f32.f16", ONE, "sm_70")
    for targets, source, syntax, target in PACKS:
        for t in targets.split():
            yield _row(f"cvt.pack.sat.{t}.{source}", syntax, target)


def _row(name: str, syntax: str, target: str) -> Row:
    return Row(name, "cvt", target, syntax=(syntax,))


def _halves() -> Iterator[Row]:
    for rounding in ("rn", "rz"):
        for relu in ("", ".relu"):
            for saturate in ("", ".satfinite"):
                for types, syntax, target in HALVES:
                    since = later(target, "sm_80") if relu else target
                    yield _row(f"cvt.{rounding}{relu}{saturate}.{types}", syntax, since)
    for rounding in ("rm", "rp"):
        yield _row(f"cvt.{rounding}.f16.f32", ONE, "sm_70")


def _tf32() -> Iterator[Row]:
    for rounding in ("rn", "rz"):
        for saturate, target in (("", "sm_90"), (".satfinite", "sm_100")):
            for relu in ("", ".relu"):
                yield _row(f"cvt.{rounding}{saturate}{relu}.tf32.f32", ONE, target)
    for saturate in ("", ".satfinite"):
        yield _row(f"cvt.rna{saturate}.tf32.f32", ONE, "sm_80")


def _small() -> Iterator[Row]:
    for small, target in SMALL:
        for relu in ("", ".relu"):
            yield _row(f"cvt.rn.satfinite{relu}.{small}.f32", TWO, target)
            for pair in PAIRS:
                since = NEW if pair == "bf16x2" else target
                yield _row(f"cvt.rn.satfinite{relu}.{small}.{pair}", ONE, since)
                yield _row(f"cvt.rn{relu}.{pair}.{small}", ONE, since)


def _scales() -> Iterator[Row]:
    for rounding in ("rz", "rp"):
        for saturate in ("", ".satfinite"):
            yield _row(f"cvt.{rounding}{saturate}.ue8m0x2.f32", TWO, NEW)
            yield _row(f"cvt.{rounding}{saturate}.ue8m0x2.bf16x2", ONE, NEW)
    yield _row("cvt.rn.bf16x2.ue8m0x2", ONE, NEW)


def _stochastic() -> Iterator[Row]:
    """Rounding by random bits: how they meet the bits cut off is not known, so these parse and refuse to run."""
    for relu in ("", ".relu"):
        for saturate in ("", ".satfinite"):
            for pair in PAIRS:
                yield _random(f"cvt.rs{relu}{saturate}.{pair}.f32", "d a b rbits")
        for four in ("e2m1x4", "e2m3x4", "e3m2x4", "e4m3x4", "e5m2x4"):
            yield _random(f"cvt.rs{relu}.satfinite.{four}.f32", "d a{4} rbits")


def _random(name: str, syntax: str) -> Row:
    return Row(name, "cvt", NEW, executable=False, last=STOCHASTIC_LAST, syntax=(syntax,))
