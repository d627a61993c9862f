"""What ptxas refuses of instructions that have a row: operands of other types than the form's, names nobody declares.

Each function gives the reason, with what would be legal, or nothing (PTX ISA, "Operand Size Exceeding Instruction-Type
Size", "Type Checking Rules").
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from nbtc.executor.emit.action import FormRow
from nbtc.executor.emit.form import WIDTHS, Form
from nbtc.executor.emit.specials import READERS, VECTORS
from nbtc.executor.rows.signatures import OperandKind, conflict, out_of_range, signatures
from nbtc.executor.text.data import (
    Address,
    Function,
    Immediate,
    Instruction,
    Not,
    Operand,
    Pair,
    PtxModule,
    Register,
    Selected,
    Sink,
    Special,
    Symbol,
    Vector,
)
from nbtc.executor.text.operands import others

RELAXED = ("cvt",)  # its registers may be wider than its types
PACKED = ("f16x2", "bf16x2", "u16x2", "s16x2", "u8x4", "s8x4")
FLOATS = ("f16", "f32", "f64", "bf16")
WHOLE = tuple(f"{kind}{bits}" for kind in "us" for bits in (8, 16, 32, 64))
SPACES = ("global", "shared", "local", "const", "param")
IN_SPACE = ("ld", "ldu", "st", "atom", "red", "cp", "ldmatrix", "stmatrix", "mbarrier", "prefetch")
# Special registers of 64 bits, of any width up to that, and predicates; all others have 32 (PTX ISA chapter 10).
WIDE_SPECIALS = ("%clock64", "%globaltimer", "%current_graph_exec", *(f"%pm{n}_64" for n in range(8)))
ANY_WIDTH, PREDICATE = "%gridid", "%is_explicit_cluster"
SHORT_SPECIALS = ("%tid", "%ntid", "%ctaid", "%nctaid")  # also read as 16 bits, as older text does
NEGATES = "vmad"
LITERALS = {"f32": (32, 64), "f64": (32, 64), "b32": (0, 32), "b64": (0, 64)}  # bits of literals, 0 for whole numbers


class Names(NamedTuple):
    """What a function can name: its own and its module's variables with their state spaces, functions and labels."""

    spaces: Mapping[str, str]
    others: frozenset[str]
    labels: Mapping[str, int]


def names_of(function: Function, module: PtxModule) -> Names:
    """The names that a function's instructions may use."""
    own = (*function.variables, *function.prototype.arguments, *function.prototype.results)
    spaces = {**{name: v.space for name, v in module.variables.items()}, **{v.name: v.space for v in own}}
    others = frozenset((*module.functions, *module.aliases, *function.labels, *function.tables))
    return Names(spaces, others, function.labels)


def undeclared(i: Instruction, names: Names, form: Form | None) -> str:
    """A register, variable or label that is declared nowhere, or lies in another state space than the name says."""
    for operand in i.operands:
        if isinstance(operand, Register | Immediate):
            continue
        for found in others(operand):
            if isinstance(found, Special) and found.name not in READERS and found.name not in VECTORS:
                return (
                    f"{i.mnemonic}: {found.name} is not declared: no .reg of this function names it, and it is "
                    "not a special register that nbtc has"
                )
            name = found.name if isinstance(found, Symbol) and i.opcode != "call" else ""
            if name and name not in names.spaces and name not in names.others:
                kinds = _kinds(form) if form is not None else ()
                if i.opcode == "bra":
                    return f"{i.mnemonic}: {name} is not declared: no label of this function has that name"
                return f"{i.mnemonic}: {name} is not declared" + (
                    f": write .reg .{kinds[0].type} {name};" if kinds else ""
                )
    return _elsewhere(i, names.spaces) if i.opcode in IN_SPACE else ""


def _elsewhere(i: Instruction, spaces: Mapping[str, str]) -> str:
    """A variable in another state space than the instruction reaches."""
    named = [space for m in i.modifiers if (space := m.split("::")[0]) in SPACES]
    addresses = [o for o in i.operands if isinstance(o, Address)]
    for n, address in enumerate(addresses):
        name = address.base.name if isinstance(address.base, Symbol) else ""
        space = spaces.get(name, "")
        if space in SPACES and n < len(named) and space != named[n]:
            return f"{i.mnemonic}: {name} lies in .{space}, and the name says .{named[n]}"
        if space in ("const", "param") and not named:
            return f"{i.mnemonic}: {name} lies in .{space}, which generic addresses reach after cvta alone"
    return ""


def _kinds(form: Form) -> tuple[OperandKind, ...]:
    """The types of a form's operands in the order of the text."""
    wider = form.opcode in RELAXED
    kinds = [OperandKind(kind, wider) for kind in (*form.results[:1], *form.sources) if kind != "cc"]
    if form.results[1:] == ("pred",) and form.sources[0] not in ("f16", "bf16"):  # ptxas takes p|q of their pairs alone
        alone = form.results[0] == "pred"  # a comparison may be without its first result, lop3 only beside the second
        kinds[0] = kinds[0]._replace(second="pred", sink=alone, sink_beside=True)
    return tuple(kinds)


def _lists(i: Instruction, row: FormRow) -> tuple[tuple[OperandKind, ...], ...]:
    """The lists of operands that an instruction may have; none where nothing is known of them."""
    form = row.form
    if form is None:
        return signatures(i.mnemonic)
    kinds = _kinds(form)
    if form.selectors:  # of the video instructions, whose rows have bits and which take no float
        kinds = tuple(k._replace(type=k.type.replace("b32", "u32")) for k in kinds)
    return tuple(kinds[: len(kinds) - left_out] for left_out in range(form.optional, -1, -1))


def mistyped(i: Instruction, row: FormRow, names: Names) -> str:
    """Operands that are too few, too many, or of another type."""
    rule = conflict(i.mnemonic) or _negated(i) or out_of_range(i)
    if rule:
        return f"{i.mnemonic}: {rule}"
    if i.opcode == "mov" and len(i.operands) == 2 and i.modifiers[0] not in ("v2", "v4"):
        why = _moved(i)
        return why and f"{i.mnemonic}: {why}"
    lists = _lists(i, row)
    selects = row.form is not None and row.form.selectors
    operands = [o.register if selects and isinstance(o, Selected) else o for o in i.operands]
    fitting = [kinds for kinds in lists if len(kinds) == len(i.operands)]
    if lists and not fitting:
        have = len(i.operands)
        return f"{i.mnemonic}: {have} operands; this form has {' or '.join(_say(kinds) for kinds in lists)}"
    reasons = [_first(operands, kinds, row.results, names) for kinds in fitting]
    return f"{i.mnemonic}: {reasons[0]}" if reasons and all(reasons) else ""


def _negated(i: Instruction) -> str:
    """A minus sign before a register, which one instruction alone has."""
    negated = next((o for o in i.operands if isinstance(o, Selected) and o.selector[:1] == "-"), None)
    if negated is None or i.opcode == NEGATES:
        return ""
    return f"- stands before registers of {NEGATES} alone: neg gives -{negated.register.name}"


def _say(kinds: Sequence[OperandKind]) -> str:
    words = {
        "A": "an address",
        "M": "an address",
        "D": "a descriptor or address",
        "n": "a constant",
        "L": "a label",
        "x": "one more",
    }
    return f"{len(kinds)}: {', '.join(words.get(k.type, k.type) for k in kinds)}" if kinds else "none"


def _first(operands: Sequence[Operand], kinds: Sequence[OperandKind], results: int, names: Names) -> str:
    """The first operand that is not as its kind says."""
    for n, (operand, kind) in enumerate(zip(operands, kinds, strict=True)):
        why = _differs(operand, kind, n < results, names)
        if why:
            return why
    return ""


def _differs(operand: Operand, kind: OperandKind, result: bool, names: Names) -> str:
    """Why an operand is none of a kind."""
    if kind.type == "x":
        return ""
    if kind.type == "D":
        kind = OperandKind("M" if isinstance(operand, Address) else "b64")
    if kind.type == "M" and isinstance(operand, Address) and getattr(operand.base, "bits", 32) != 32:
        return f"{getattr(operand.base, 'name', '')} has 64 bits, and addresses in tensor memory lie in .b32"
    if kind.type in ("A", "M"):
        return _no_address(operand, kind.elements)
    if kind.type == "L":
        good = isinstance(operand, Symbol) and operand.name in names.labels
        return "" if good else "its operand is a label of this function"
    if kind.type == "n":
        good = isinstance(operand, Immediate) and not operand.float_bits
        if good and kind.values and operand.value not in kind.values:  # type: ignore[union-attr]
            return f"this operand is {operand.value} and must be {' or '.join(map(str, kind.values))}"  # type: ignore[union-attr]
        return "" if good else "this operand is an integer constant"
    if kind.type == "_":
        return "" if isinstance(operand, Sink) else "its result is _: nobody can have it"
    if isinstance(operand, Sink):
        return "" if kind.sink else f"_ can't stand in place of a .{kind.type}"
    if isinstance(operand, Pair):
        if not kind.second:
            return "a second result, after |, is none of this form's"
        if isinstance(operand.first, Sink) and isinstance(operand.second, Sink):
            return "one of two results is a register"
        first = _differs(operand.first, kind._replace(second="", sink=kind.sink or kind.sink_beside), result, names)
        return first or _differs(operand.second, OperandKind(kind.second, sink=True), result, names)
    return _elements_differ(operand, kind, result)


def _elements_differ(operand: Operand, kind: OperandKind, result: bool) -> str:
    elements: tuple[Operand, ...] = operand.elements if isinstance(operand, Vector) else (operand,)
    if isinstance(operand, Vector) != bool(kind.elements) and not (kind.braces and len(elements) == 1):
        return f"this operand is {_vector(kind)}"
    if kind.elements and len(elements) != kind.elements:
        return f"a vector of {len(elements)} where the form has {_vector(kind)}"
    if len({e.bits for e in elements if isinstance(e, Register)}) > 1:
        return "the registers of a vector are equally wide"
    if isinstance(operand, Vector) and (why := _sunk(elements, result)):
        return why
    return next((why for e in elements if (why := _element(e, kind, result))), "")


def _sunk(elements: Sequence[Operand], result: bool) -> str:
    """Elements of a vector that are `_`."""
    sinks = sum(isinstance(e, Sink) for e in elements)
    if sinks and not result:
        return "_ stands for results alone, and this vector is read"
    return "one of its elements is a register" if sinks and sinks == len(elements) else ""


def _vector(kind: OperandKind) -> str:
    return f"a vector of {kind.elements} .{kind.type}" if kind.elements else f"a single .{kind.type}"


def _element(operand: Operand, kind: OperandKind, result: bool) -> str:
    """Why a register or constant is none of a type."""
    if result and not isinstance(operand, Register | Sink):
        return "a result is a register"
    if isinstance(operand, Immediate):
        return _literal(operand, kind.type)
    if isinstance(operand, Symbol):
        if not kind.symbol:
            return f"{operand.name} is an address, which mov copies into a register: other instructions read that"
        return f"an address is not a .{kind.type}" if kind.type in (*FLOATS, *PACKED, "pred") else ""
    if isinstance(operand, Special):
        good = operand.name == "WARP_SZ" and kind.type not in FLOATS
        return "" if good else f"mov copies {operand.name} into a register; other instructions can't read it"
    if isinstance(operand, Not):
        return _element(operand.register, kind, result) if kind.type == "pred" else "! stands before predicates alone"
    if isinstance(operand, Address | Vector | Pair | Selected):
        return f"this operand is a .{kind.type}"
    return _register(operand, kind) if isinstance(operand, Register) else ""


def _literal(operand: Immediate, kind: str) -> str:
    """Whole numbers stand for integers, bits and predicates, floats for .f32 and .f64, and for bits as wide as they."""
    good = LITERALS.get(kind, () if kind in (*FLOATS, *PACKED) else (0,))
    if operand.float_bits in good:
        return ""
    if not good:
        return f"no constant stands for a .{kind}: mov it into a register"
    return f"a constant of a .{kind} is " + ("a whole number" if 0 in good else "a float: 0f3F800000")


def _register(operand: Register, kind: OperandKind) -> str:
    have, want, bits = operand.type, kind.type, WIDTHS[kind.type]
    if have == want:
        return ""
    if have in PACKED and want in FLOATS:
        return f"{operand.name} is a .{have} register and should be a .{want} or .b{bits}"
    if want in PACKED and operand.bits == bits and have != f"b{bits}":
        return f"{operand.name} is a .{have} register and should be a .b{bits}, which {want} takes alone"
    if (have == "pred") != (want == "pred"):
        return f"{operand.name} is a .{have} register and should be a .{want}" + (
            "; selp makes a number of a predicate" if have == "pred" else "; setp makes a predicate of a number"
        )
    if operand.bits < bits or (operand.bits > bits and not kind.wider):
        return f"{operand.name} is a .{have} register, of {operand.bits} bits; .{want} has {bits}"
    float_of_another_kind = have in FLOATS and (want in WHOLE or want in FLOATS)
    if float_of_another_kind or (have in WHOLE and want in FLOATS):
        return f"{operand.name} is a .{have} register and should be a .{want} or .b{bits}"
    return ""


def _no_address(operand: Operand, coordinates: int) -> str:
    if not isinstance(operand, Address):
        return "this operand is an address: write it in [ ]"
    have = len(operand.rest[0].elements) if operand.rest and isinstance(operand.rest[0], Vector) else 0
    if have != coordinates:
        return f"an address with {have} coordinates where the form has {coordinates}"
    base = operand.base
    if isinstance(base, Register) and base.type in (*FLOATS, *PACKED, "pred"):
        return f"{base.name} is a .{base.type} register, and addresses lie in .b64, .u64 or .s64"
    return ""


def _moved(i: Instruction) -> str:
    """Why a mov is none: of a register, constant, special register, address, or between a register and its parts."""
    target, source = i.operands
    kind = OperandKind(i.modifiers[-1], symbol=True)
    bits = WIDTHS[kind.type]
    if isinstance(target, Vector) or isinstance(source, Vector):
        whole, parts = (source, target) if isinstance(target, Vector) else (target, source)
        if isinstance(whole, Vector) or kind.type[0] != "b":
            return "it divides or joins one register of a .b type"
        why = _parts(parts.elements, bits, parts is target)  # type: ignore[union-attr]
        if why or not isinstance(whole, Special):
            return why or _element(whole, kind, whole is target)
        return _special(whole.name, target, kind.type)
    why = _element(target, kind, True)
    if why:
        return why
    if isinstance(source, Special) and source.name != "WARP_SZ":
        return _special(source.name, target, kind.type)
    return _element(source, kind, False)


def _parts(elements: Sequence[Operand], bits: int, result: bool) -> str:
    widths = [e.bits for e in elements if isinstance(e, Register)]
    if len(elements) not in (1, 2, 4) or any(w * len(elements) != bits for w in widths):
        return f"2 or 4 registers that have {bits} bits together"
    return _sunk(elements, result)


def _special(name: str, target: Operand, kind: str) -> str:
    if name in VECTORS:
        return f"{name} is a vector: mov.v4.u32 copies it, mov.u32 a part such as {name}.x"
    wide = 64 if name in WIDE_SPECIALS else 32
    if name == PREDICATE or kind == "pred":
        return (
            "" if name == PREDICATE and kind == "pred" else f"{name} is {'a' if name == PREDICATE else 'no'} predicate"
        )
    if kind in FLOATS:
        return f"{name} is a whole number: write mov.u{wide}"
    short = WIDTHS[kind] == 16 and name.split(".")[0] in SHORT_SPECIALS and getattr(target, "type", "") == "u16"
    good = WIDTHS[kind] == wide or short or name == ANY_WIDTH
    return "" if good else f"{name} has {wide} bits: write mov.u{wide}"
