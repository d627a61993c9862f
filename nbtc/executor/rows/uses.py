"""Which registers an instruction reads and writes, and what its row says about them."""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import cache, lru_cache
from typing import NamedTuple

from nbtc.errors import ParseError
from nbtc.executor.emit.action import FormRow
from nbtc.executor.emit.form import Op
from nbtc.executor.rows import actions, forms
from nbtc.executor.text.data import Group, Instruction, Register, Special, Symbol
from nbtc.executor.text.operands import others, registers
from nbtc.isa.parse import families
from nbtc.isa.parse import row as parse_row

CARRY = Register("%cc", "pred")  # the condition code register, which no operand names
NOT_EMULATED = {
    "sured": "reductions on surfaces are not emulated: use red or atom on global memory",
    "istypep": "texture, sampler and surface variables of PTX are not emulated: pass 64-bit handles of objects",
}


LIKE = 0.66  # of difflib's ratio: a name of three letters with one more, one less or two exchanged is alike
JUDGED = (9, 0)  # the PTX ISA whose names the rows are known to have: newer text may have more
# Names of which the rows have a part: another form may be a legal one.
PARTS = re.compile(
    r"(call|clusterlaunchcontrol|multimem)\b.*|cp\..*im2col.*"
    r"|tcgen05\.(mma\.(sp|ws|kind)|mma\..*ashift|shift|cp\..*b8x16|ld\.red).*"
)


@cache
def row_of(mnemonic: str) -> FormRow | None:
    """The row of a mnemonic, or None when nothing implements it."""
    opcode, *modifiers = mnemonic.split(".")
    found = forms.find(mnemonic)
    if found is not None:
        return FormRow(found[0], found[1], None)
    action = actions.find(opcode, tuple(modifiers))
    return None if action is None else FormRow(None, Op(opcode, tuple(modifiers)), action)


def waits(instruction: Instruction) -> bool:
    """Whether lanes may have to wait at an instruction."""
    row = row_of(instruction.mnemonic)
    return row is not None and row.action is not None and row.action.waits(instruction)


def refusal(mnemonic: str) -> str:
    """Why a mnemonic has no row: the opcode is unknown, or the modifiers it can't take, or can't take together.

    >>> refusal("dp4a.ftz.s32.s32")
    'dp4a.ftz.s32.s32: dp4a has no form with .ftz; it takes .u32 .s32'
    >>> refusal("mull.wide.u32")
    'mull.wide.u32: no instruction of this name is implemented; did you mean mul?'
    >>> refusal("mma.sync.aligned.m16n8k17.row.col.f32.f16.f16.f32")[-113:]
    "Nearest legal form: 'mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32' (instead of 'm16n8k17' it has 'm16n8k16')"
    """
    opcode, *modifiers = mnemonic.split(".")
    own, acting = forms.by_opcode().get(opcode, ()), actions.rows_of(opcode)
    if not own and not acting:
        return f"{mnemonic}: {NOT_EMULATED.get(opcode) or _no_name(opcode)}"
    if not own and any(family.split(".")[0] == opcode for family in families()):  # its own tables know what is near
        try:
            parse_row(mnemonic)
        except ParseError as error:
            return str(error)
    slots = [slot for form in own for slot in form.slots] + [slot for action in acting for slot in action.slots]
    known = dict.fromkeys(m for slot in slots for m in slot if m)
    if not known:
        return f"{mnemonic}: {opcode} has no such form"
    unknown = " ".join(f".{m}" for m in modifiers if m not in known) or "these modifiers in this order"
    return f"{mnemonic}: {opcode} has no form with {unknown}; it takes {' '.join(f'.{m}' for m in known)}"


def _no_name(opcode: str) -> str:
    """That no row has an opcode, and which one may have been meant."""
    names = {*forms.by_opcode(), *actions.opcodes(), *(family.split(".")[0] for family in families())}
    near = get_close_matches(opcode, sorted(names), n=1, cutoff=LIKE)
    return "no instruction of this name is implemented" + "".join(f"; did you mean {name}?" for name in near)


def no_such(mnemonic: str, version: tuple[int, int]) -> str:
    """Why no PTX ISA has a name that has no row, or nothing where it may be one that is not emulated.

    >>> no_such("frob.b32", (8, 0))
    'frob.b32: no instruction of this name is implemented'
    >>> no_such("sured.b.add.2d.u32.trap", (8, 0)), no_such("frob.b32", (9, 9))
    ('', '')
    """
    opcode = mnemonic.split(".")[0]
    if version > JUDGED or PARTS.fullmatch(mnemonic) or opcode in NOT_EMULATED:
        return ""
    if any(family.split(".")[0] == opcode for family in families()):
        try:
            parse_row(mnemonic)
        except ParseError as error:
            return str(error)
        return ""
    return refusal(mnemonic)


class RegisterUse(NamedTuple):
    """What an instruction reads and writes."""

    reads: tuple[Register, ...]
    writes: tuple[Register, ...]
    names: tuple[Special | Symbol, ...]
    row: FormRow | None


@lru_cache(maxsize=1 << 13)  # a compilation asks six times for each instruction
def use_of(instruction: Instruction) -> RegisterUse:
    """Registers read and written by an instruction, guard and carry included; an unknown one writes nothing."""
    row = row_of(instruction.mnemonic)
    results = row.results if row else 0
    if instruction.opcode == "call" and isinstance(instruction.operands[0], Group):
        results = 1
    targets, sources = instruction.operands[:results], instruction.operands[results:]
    writes = [r for operand in targets for r in registers(operand)]
    reads = [r for operand in sources for r in registers(operand)]
    if instruction.guard is not None:
        reads.append(instruction.guard.register)
    if row and row.form is not None:
        reads += [CARRY] * ("cc" in row.form.sources)
        writes += [CARRY] * ("cc" in row.form.results)
    names = tuple(name for operand in sources for name in others(operand))
    return RegisterUse(tuple(reads), tuple(writes), names, row)
