"""What ptxas refuses of instructions that have a row: operands of other types than the form's, names nobody declares.

Each function gives the reason, with what would be legal, or nothing (PTX ISA, "Operand Size Exceeding Instruction-Type
Size", "Type Checking Rules").
"""

from __future__ import annotations

import re

from nbtc.executor.emit.action import Row
from nbtc.executor.emit.form import WIDTHS, Form
from nbtc.executor.emit.specials import READERS, VECTORS
from nbtc.executor.text.data import Function, Instruction, Module, Operand, Register, Special, Symbol
from nbtc.executor.text.operands import others

RELAXED = ("cvt",)  # its registers may be wider than its types
PACKED = ("f16x2", "bf16x2", "u16x2", "s16x2")
FLOATS = ("f16", "f32", "f64", "bf16")
WHOLE = tuple(f"{kind}{bits}" for kind in "us" for bits in (8, 16, 32, 64))

# Forms by opcode and a modifier (none: all of them), and the first target that has them (PTX ISA, "Target ISA Notes").
SINCE = (
    ("cp", "async", 80), ("cp", "bulk", 90), ("redux", "", 80), ("mbarrier", "", 80), ("ldmatrix", "", 75),
    ("movmatrix", "", 75), ("stmatrix", "", 90), ("cvt", "bf16", 80), ("cvt", "bf16x2", 80), ("cvt", "tf32", 80),
    ("cvt", "e4m3x2", 89), ("cvt", "e5m2x2", 89), ("wgmma", "", 90), ("elect", "", 90), ("mapa", "", 90),
)  # fmt: skip


def too_new(i: Instruction, module: Module, form: Form | None) -> str:
    """An instruction that the text's `.target` does not have yet."""
    found = re.match(r"sm_(\d+)", module.target)
    needed = [s for opcode, m, s in SINCE if i.opcode == opcode and (not m or m in i.modifiers)]
    first = max([*needed, form.since if form else 0])
    if (int(found[1]) if found else 0) < first:
        return f"{i.mnemonic}: for targets from sm_{first} on, and the text's is {module.target}"
    return ""


def undeclared(i: Instruction, function: Function, module: Module, form: Form | None) -> str:
    """A register or variable that is declared nowhere."""
    for operand in i.operands:
        for found in others(operand):
            if isinstance(found, Special) and found.name not in READERS and found.name not in VECTORS:
                return (
                    f"{i.mnemonic}: {found.name} is not declared: no .reg of this function names it, and it is no "
                    "special register that is implemented"
                )
    if form is None:
        return ""
    own = (*function.variables, *function.prototype.arguments, *function.prototype.results)
    known = {v.name for v in own} | {*module.variables, *module.functions, *function.labels}
    for operand in i.operands:
        if isinstance(operand, Symbol) and operand.name not in known:
            return f"{i.mnemonic}: {operand.name} is not declared: write .reg .{_kinds(form)[0]} {operand.name};"
    return ""


def _kinds(form: Form) -> tuple[str, ...]:
    """The types of a form's operands in the order of the text."""
    return tuple(kind for kind in (*form.results[:1], *form.sources) if kind != "cc")


def mistyped(i: Instruction, row: Row) -> str:
    """An operand of a scalar form whose register has another type."""
    form = row.form
    if form is None or form.selectors or i.opcode in RELAXED:
        return ""
    kinds = _kinds(form)
    if not len(kinds) - form.optional <= len(i.operands) <= len(kinds):
        fewest = len(kinds) - form.optional
        wanted = f"{len(kinds)}" if not form.optional else f"{fewest} to {len(kinds)}"
        return f"{i.mnemonic}: {len(i.operands)} operands; this form has {wanted}: {', '.join(kinds)}"
    for operand, kind in zip(i.operands, kinds, strict=False):
        why = _differs(operand, kind)
        if why:
            return f"{i.mnemonic}: {why}"
    return ""


def _differs(operand: Operand, kind: str) -> str:
    if not isinstance(operand, Register) or operand.type == kind:
        return ""
    have = operand.type
    if kind in PACKED and operand.bits == WIDTHS[kind] and have != f"b{operand.bits}":
        return f"{operand.name} is a .{have} register and should be a .b{operand.bits}, which {kind} takes alone"
    if (have == "pred") != (kind == "pred"):
        return f"{operand.name} is a .{have} register and should be a .{kind}" + (
            "; selp makes a number of a predicate" if have == "pred" else "; setp makes a predicate of a number"
        )
    if operand.bits != WIDTHS[kind]:
        return f"{operand.name} is a .{have} register, of {operand.bits} bits; .{kind} has {WIDTHS[kind]}"
    if (have in FLOATS and kind in WHOLE) or (have in WHOLE and kind in FLOATS):
        return f"{operand.name} is a .{have} register and should be a .{kind} or .b{WIDTHS[kind]}"
    return ""
