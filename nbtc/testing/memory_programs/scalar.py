"""Statements without memory: instructions of every type, packing, carry chains, predicates."""

from __future__ import annotations

from functools import cache

from nbtc.executor.emit.form import WIDTHS, Form
from nbtc.executor.rows.forms import by_opcode
from nbtc.executor.rows.introductions import introductions
from nbtc.executor.rows.signatures import conflict
from nbtc.testing.memory_programs.writer import KEPT, PREFIXES, Writer, bits_of, braces

# Opcodes by how often they are taken: integers that addresses are made of, others, and selection.
OFTEN = (
    "add",
    "sub",
    "mul",
    "mad",
    "and",
    "or",
    "xor",
    "shl",
    "shr",
    "min",
    "max",
    "setp",
    "selp",
    "cvt",
    "cvt",
    "cvt",
)
SELDOM = ("neg", "abs", "div", "rem", "sad", "mul24", "mad24", "dp4a", "dp2a", "not", "cnot", "shf", "lop3", "bfe",
          "bfi", "bfind", "brev", "clz", "popc", "szext", "bmsk", "prmt", "set", "slct", "testp", "fma", "copysign",
)  # fmt: skip
INTEGERS = frozenset(f"{kind}{bits}" for kind in "bus" for bits in (16, 32, 64))
NO_CONSTANTS = ("neg", "abs", "not", "cnot", "popc", "clz", "brev", "bfind", "testp", "cvt")
# Programs don't have what ptxas makes something else of than the text says (docs/hardware.md): signed fields from a
# constant position of 32 on, guards of testp, products by a power of two, two NaNs in a sum of doubles, and equal
# operands of these.
DIFFERENT = ("min", "max", "copysign")
SUMS = ("add", "sub", "mul", "fma", "mad")
FINITE = 0xBFFFFFFFFFFFFFFF
PAIRS = ("f16x2", "bf16x2")  # of which comparisons have two results
CONVERTED = {f"{kind}{bits}" for kind in "us" for bits in (8, 16, 32, 64)}  # from and to registers that may be wider
ROUNDINGS = {"rn", "rz", "rm", "rp"}


@cache
def _rows(opcode: str, arch: str) -> tuple[Form, ...]:
    """The rows of an opcode that programs take: without carry, and sums of floats with their rounding alone, because
    what is left to a compiler may be fused."""
    return tuple(
        form for form in by_opcode()[opcode]
        if "cc" not in (*form.sources, *form.results) and not form.selectors and not _free(form)
        and not {"b8", "b128", "f32x2"} & {*form.sources, *form.results}
        and not (opcode in ("min", "max") and len(form.sources) > 2)  # newer
        and not _beside_bf16(form)
    )  # fmt: skip


def _free(form: Form) -> bool:
    """Whether a sum or product of floats is rounded as the compiler likes, or a function approximate."""
    named = {choice for slot in form.slots for choice in slot}
    floats = not {*form.sources} <= INTEGERS
    loose = form.opcode in ("add", "sub", "mul", "mad") and floats
    return (loose and not any(ROUNDINGS.issuperset(slot) for slot in form.slots)) or bool(named & {"approx", "full"})


def _beside_bf16(form: Form) -> bool:
    """Conversions between bf16 and what ptxas has no registers for, or newer targets alone have."""
    types = {*form.sources, *form.results}
    others = {"u8", "s8", "e4m3x2", "e5m2x2", "e2m3x2", "e3m2x2", "e2m1x2", "ue8m0x2"}
    return form.opcode == "cvt" and bool({"bf16", "bf16x2"} & types and others & types)


@cache
def known(mnemonic: str, arch: str) -> bool:
    """Whether an architecture has an instruction."""
    return not conflict(mnemonic) and all(row.has(int(arch.removeprefix("sm_")), "") for row in introductions(mnemonic))


def instruction(w: Writer) -> None:
    """One of the scalar rows, with registers and constants."""
    while True:
        form = w.rng.choice(_rows(w.pick(*(OFTEN if w.chance(0.7) else SELDOM)), w.arch))
        choice = [w.pick(*slot) for slot in form.slots]
        mnemonic = ".".join((form.opcode, *filter(None, choice)))
        if known(mnemonic, w.arch):
            break
    operands = [operand(w, form, n) for n in range(len(form.sources) - form.optional)]
    while form.opcode in DIFFERENT and not {*form.sources} <= INTEGERS and operands[0] == operands[1]:
        operands[1] = operand(w, form, 1)
    if form.opcode in SUMS and form.sources[-1] == "f64":
        operands[1:] = [_no_nan(w, x) for x in operands[1:]]
    if form.opcode in ("div", "rem") and form.sources[0] in INTEGERS:
        operands[1] = _divisor(w, form.sources[1])
    targets = [_target(w, form, kind) for kind in form.results]
    lone = form.sources[0] in ("f16", "bf16") or (form.sources[0] not in PAIRS and w.chance(0.7))
    if len(targets) == 2 and form.opcode == "setp" and lone:
        targets.pop()
    elif len(targets) == 2 and targets[0] == targets[1]:
        targets[1] = w.new(PREFIXES[1])
    plain = form.opcode == "testp"
    w.put(f"{mnemonic} {'|'.join(targets)}, {', '.join(operands)};", *targets, plain=plain)


def _no_nan(w: Writer, x: str) -> str:
    """A double that is no NaN: one with the upper bit of its exponent clear."""
    if x.startswith("0d"):
        return f"0d{int(x[2:], 16) & FINITE:016X}"
    name = w.new(PREFIXES[64])
    w.put(f"and.b64 {name}, {x}, {FINITE:#x};", name)
    return name


def _target(w: Writer, form: Form, kind: str) -> str:
    """A register for a result; those of a conversion may be wider."""
    bits = max(16, WIDTHS[kind]) if kind != "pred" else 1
    if _widens(form, kind) and w.chance(0.3):
        bits = w.pick(*(b for b in (16, 32, 64) if b >= bits))
    return w.result(bits)


def _widens(form: Form, kind: str) -> bool:
    """Whether a register may be wider than its type."""
    return form.opcode == "cvt" and kind in CONVERTED and "bf16" not in (*form.sources, *form.results)


def operand(w: Writer, form: Form, n: int) -> str:
    """A register, or a constant where one may stand."""
    kind = form.sources[n]
    if kind == "pred":
        return str(w.pick("", "!" if form.opcode in ("setp", "set") else "")) + w.register(1)
    if form.opcode == "lop3" and n == 3:
        return hex(w.rng.randrange(256))
    bits = max(16, WIDTHS[kind])
    if _widens(form, kind) and w.chance(0.3):
        bits = w.pick(*(b for b in (16, 32, 64) if b >= bits))
    last = n or len(form.sources) == 1
    if kind in INTEGERS and last and form.opcode not in NO_CONSTANTS and w.chance(0.35):
        if form.opcode in ("shl", "shr", "shf", "bfe", "bfi") and kind == "u32" and n:
            steps = (0, 1, 2, 3, 4, 5, 8, 12, 15, 16, 24, 31, 32, 33, 40, 63, 64, 65, 200)
            return str(w.pick(*(s for s in steps if form.opcode != "bfe" or s < 32)))
        return w.literal(kind)
    if kind == "f32" and n and form.opcode not in (*NO_CONSTANTS, "mul") and w.chance(0.2):
        return f"0f{w.number(32):08X}"
    if kind == "f64" and n and form.opcode not in NO_CONSTANTS and w.chance(0.2):
        return f"0d{w.number(64):016X}"
    return w.register(bits)


def _divisor(w: Writer, kind: str) -> str:
    """A number that is not 0."""
    bits = WIDTHS[kind]
    if w.chance(0.5):
        return str(w.pick(1, 2, 3, 5, 7, 8, 10, 12, 16, 33, 100))
    name = w.new(PREFIXES[bits])
    w.put(f"or.b{bits} {name}, {w.register(bits)}, {w.pick(1, 2, 4)};", name)
    return name


def move(w: Writer) -> None:
    """A copy, a constant, or a special register."""
    way = w.rng.random()
    if way < 0.3:
        special = w.pick("%tid.x", "%tid.x", "%laneid", "%ctaid.x", "%ntid.x", "%tid.y", "%tid.z", "%nctaid.x")
        name = w.result(32)
        w.put(f"mov.u32 {name}, {special};", name)
        return
    bits = w.pick(16, 32, 32, 64)
    name = w.result(bits)
    source = w.literal(f"b{bits}") if way < 0.6 else w.register(bits)
    w.put(f"mov.{w.pick('b', 'u', 's')}{bits} {name}, {source};", name)


def packing(w: Writer) -> None:
    """Registers joined into a wider one, or one divided."""
    bits, parts = w.pick((32, 2), (64, 2), (64, 4))
    part = bits // parts
    if w.chance(0.5):
        name = w.result(bits)
        w.put(f"mov.b{bits} {name}, {braces([w.register(part) for _ in range(parts)])};", name)
        return
    names = w.results(part, parts)
    shown = ["_" if w.chance(0.1) else n for n in names]
    if any(n != "_" for n in shown):
        w.put(f"mov.b{bits} {braces(shown)}, {w.register(bits)};", *(n for n in shown if n != "_"))


def carry_chain(w: Writer) -> None:
    """A sum, difference or product of several words."""
    bits = w.pick(32, 32, 64)
    opcode = w.pick("add", "sub", "mad")
    length = w.rng.randrange(2, 5)
    for n in range(length):
        name = w.result(bits)
        more = ".cc" if n < length - 1 or w.chance(0.1) else ""
        kind = f"{w.pick('u', 's')}{bits}"
        a, b, c = (w.register(bits) if w.chance(0.8) else w.literal(kind) for _ in range(3))
        a = w.register(bits)
        carry = "" if n == 0 else "c"
        if opcode == "mad":
            text = f"mad{carry}.{w.pick('lo', 'hi')}{more}.{kind} {name}, {a}, {b}, {c};"
        else:
            text = f"{opcode}{carry}{more}.{kind} {name}, {a}, {b};"
        w.put(text, name, plain=True)
        if w.chance(0.3):
            move(w)


def predicate(w: Writer, source: str = "") -> str:
    """A new predicate; of a number, if one is given."""
    name = w.new(PREFIXES[1])
    a = source or w.register(32)
    kind = f"{w.pick('u', 's')}{bits_of(a)}"
    b = w.literal(kind) if w.chance(0.4) else w.register(bits_of(a))
    w.put(f"setp.{w.pick('lt', 'le', 'gt', 'ge', 'eq', 'ne')}.{kind} {name}, {a}, {b};", name)
    return name


def predicates(w: Writer) -> None:
    """Operations on predicates themselves."""
    name, way = w.result(1), w.rng.randrange(4)
    if way == 0:
        w.put(f"not.pred {name}, {w.register(1)};", name)
    elif way == 1:
        w.put(f"mov.pred {name}, {w.register(1)};", name)
    else:
        w.put(f"{w.pick('and', 'or', 'xor')}.pred {name}, {w.register(1)}, {w.register(1)};", name)


def fold(w: Writer) -> None:
    """A register changes one that is kept."""
    w.fold_one(w.pick(*w.scope[-8:]))


def kept(bits: int) -> list[str]:
    """The registers of a width that are stored at the end."""
    return [f"{PREFIXES[bits]}{n}" for n in range(KEPT[bits])]


STATEMENTS = ((8, instruction), (1, move), (2, packing), (1, carry_chain), (1, predicates), (1, fold))
