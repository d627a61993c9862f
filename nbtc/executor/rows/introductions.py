"""What a text's `.target` and `.version` have: which instructions, which special registers.

The rows lie in data/introductions.csv.  A name is matched by all patterns, because what an instruction needs is the
most that any part of its name needs: `mbarrier.try_wait.acquire` is newer than mbarrier, and newer than try_wait.
"""

from __future__ import annotations

import csv
import re
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from nbtc.executor.rows.patterns import PatternTable
from nbtc.executor.text.data import Instruction, PtxModule, Sink, Special

ALL_FEATURES = "af"  # suffixes of targets that have all features of an architecture or of a family
NEWEST = 10**6  # above every target's number
# Targets and the version of the PTX ISA that first names them (PTX ISA, "Release Notes"; so do ptxas 13.0 and 12.8).
TARGETS = {
    "sm_72": (6, 1), "sm_75": (6, 3), "sm_80": (7, 0), "sm_86": (7, 1), "sm_87": (7, 4), "sm_89": (7, 8),
    "sm_90": (7, 8), "sm_90a": (8, 0), "sm_100": (8, 6), "sm_100a": (8, 6), "sm_100f": (8, 8), "sm_103": (8, 8),
    "sm_103a": (8, 8), "sm_103f": (8, 8), "sm_110": (9, 0), "sm_110a": (9, 0), "sm_110f": (9, 0), "sm_120": (8, 7),
    "sm_120a": (8, 7), "sm_120f": (8, 8), "sm_121": (8, 8), "sm_121a": (8, 8), "sm_121f": (8, 8),
}  # fmt: skip


class Introduction(NamedTuple):
    """One row: targets from `first` to `last`, specific: with all features alone, and a version of the PTX ISA."""

    first: int
    specific: bool
    last: int
    version: tuple[int, int]

    def has(self, number: int, suffix: str) -> bool:
        """Whether a target has what the row names."""
        return self.first <= number <= self.last and (not self.specific or (suffix != "" and suffix in ALL_FEATURES))

    @property
    def targets(self) -> str:
        """The targets, for a message."""
        if self.specific:
            return f"sm_{self.first}a" + ("" if self.last == self.first else " or a newer target with all features")
        return f"sm_{self.first} or later"


def _row(first: str, last: str, version: str) -> Introduction:
    major, minor = version.split(".")
    least, most = int(first.rstrip("a") or 0), int(last or NEWEST)
    return Introduction(least, first.endswith("a"), most, (int(major), int(minor)))


@cache
def _rows() -> PatternTable[Introduction]:
    text = files("nbtc").joinpath("data/introductions.csv").read_text()
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    return PatternTable((line.pop("pattern"), _row(**line)) for line in csv.DictReader(lines))


@cache
def introductions(mnemonic: str) -> tuple[Introduction, ...]:
    """The rows of an instruction's name.

    >>> [(row.first, row.version) for row in introductions("mbarrier.try_wait.shared::cta.b64")]
    [(80, (7, 0)), (90, (7, 8)), (0, (7, 8))]
    """
    return tuple(_rows().matching(mnemonic))


# What operands need beyond the name: cluster registers, a third operand, a sink, elements of a vector.
_SPECIALS = PatternTable(
    (
        ("%(n?cluster|is_explicit_cluster).*", _row("90", "", "7.8")),
        ("%aggr_smem_size", _row("90", "", "8.1")),
        ("%reserved_smem.*", _row("80", "", "7.6")),
    )
)
_THREE_INPUTS = _row("100", "", "8.8")
_IGNORED = _row("80", "", "7.5")  # a predicate that leaves the source out
_COUNT = _row("90", "", "7.8")  # without .noComplete
_SINK = _row("80", "", "7.1")  # as the result


def _of_operands(i: Instruction) -> list[tuple[str, Introduction]]:
    """What is newer than the instruction's name, with a word for it."""
    found = [(o.name, row) for o in i.operands if isinstance(o, Special) for row in _SPECIALS.matching(o.name)]
    number = len(i.operands)
    if i.opcode in ("min", "max") and i.modifiers[-1] == "f32" and number == 4:
        found.append((f"{i.opcode} of three inputs", _THREE_INPUTS))
    if i.opcode == "cp" and i.modifiers[:2] in (("async", "ca"), ("async", "cg")) and number > 3:
        found += [("a predicate as the last operand", _IGNORED)] * (getattr(i.operands[3], "type", "") == "pred")
    if i.opcode == "mbarrier" and i.modifiers[0] in ("arrive", "arrive_drop") and "noComplete" not in i.modifiers:
        found += [("a count without .noComplete", _COUNT)] * (number == 3)
        found += [("_ as the result", _SINK)] * isinstance(i.operands[0], Sink)
    return found


@cache
def _number(target: str) -> tuple[int, str]:
    found = re.fullmatch(r"sm_(\d+)([a-z]?)", target)
    return (int(found[1]), found[2]) if found else (0, "")


def unknown_target(module: PtxModule) -> str:
    """A target that the text's version of the PTX ISA does not name yet."""
    first = TARGETS.get(module.target, (0, 0))
    if module.version < first:
        return (
            f".target {module.target} needs .version {_text(first)} or later, but the text says {_text(module.version)}"
        )
    return ""


def too_new(i: Instruction, module: PtxModule) -> str:
    """An instruction that the text's `.target` or `.version` does not have yet."""
    number, suffix = _number(module.target)
    for what, row in [*((i.mnemonic, row) for row in introductions(i.mnemonic)), *_of_operands(i)]:
        if not row.has(number, suffix):
            return _say(i, what, f"needs {row.targets}, but the text's .target is {module.target}")
        if module.version < row.version:
            return _say(
                i, what, f"needs .version {_text(row.version)} or later, but the text says {_text(module.version)}"
            )
    return ""


def _say(i: Instruction, what: str, why: str) -> str:
    return f"{i.mnemonic}: {'' if what == i.mnemonic else what + ': '}{why}"


def _text(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
