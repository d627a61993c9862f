"""Parameters of a kernel that its text reaches through a register, by their names.

`mov.b64 %r, k_param_0; add.s64 %r1, %r, 184; ld.param.u64 %r2, [%r1+8]` is what nvcc writes for parts of structures.
With the name in place of the register the text alone tells that the load is in order, and nothing is checked when it
runs: 4 instead of 40 instructions each, of which kernels of FlashAttention-2 have fifty.
"""

from __future__ import annotations

from collections import Counter

from nbtc.executor.rows.uses import use_of
from nbtc.executor.text.data import Address, Function, Immediate, Instruction, Register, Symbol

ADDRESS_BITS = 64
KINDS = ({"b64"}, {"u64"}, {"s64"})


def with_named_parameters(function: Function) -> Function:
    """A kernel whose loads of parameters name them where registers hold their addresses all the time."""
    if not function.entry or function.body is None:
        return function
    known = _addresses(function)
    return function._replace(body=tuple(_named(i, known) for i in function.body)) if known else function


def _addresses(function: Function) -> dict[str, Symbol]:
    """Registers that are written once, with the address of a parameter."""
    body, found = function.body or (), dict[str, Symbol]()
    parameters = {v.name for v in function.prototype.arguments}
    if not any(isinstance(o, Symbol) and o.name in parameters for i in body if i.opcode == "mov" for o in i.operands):
        return found
    writes = Counter(r.name for i in body for r in use_of(i).writes)
    for instruction in body:
        target = instruction.operands[0] if instruction.operands else None
        if instruction.guard is None and isinstance(target, Register) and writes[target.name] == 1:
            symbol = _symbol(instruction, found)
            if symbol is not None and symbol.name in parameters and target.bits == ADDRESS_BITS:
                found[target.name] = symbol
    return found


def _symbol(instruction: Instruction, known: dict[str, Symbol]) -> Symbol | None:
    """The parameter's address that an instruction writes."""
    if set(instruction.modifiers) not in KINDS:
        return None
    match instruction.opcode, instruction.operands[1:]:
        case "mov", (Symbol() as symbol,):
            return symbol
        case "add", (Register(name=name), Immediate(value=value, float_bits=0)) if name in known:
            return Symbol(known[name].name, known[name].offset + value)
    return None


def _named(instruction: Instruction, known: dict[str, Symbol]) -> Instruction:
    if instruction.opcode != "ld" or "param" not in instruction.modifiers[:1] or len(instruction.operands) != 2:
        return instruction
    target, source = instruction.operands
    if not isinstance(source, Address) or not isinstance(source.base, Register) or source.base.name not in known:
        return instruction
    return instruction._replace(operands=(target, source._replace(base=known[source.base.name])))
