"""Words of PTX: products of a warp, matrices between shared memory and lanes, conversions; mnemonics are constants.

Operands are a thread's own registers: where the Python functions have images (..., 32, registers), a thread has a tuple
of so many words.  (PTX ISA, "Warp Level Matrix Instructions", "cvt".)
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.typing import signature

from nbtc.dialect import words
from nbtc.dialect.vocabulary import registers, rows
from nbtc.dialect.vocabulary.addresses import shared_address
from nbtc.errors import NbtcError
from nbtc.isa.parse import immediate, row
from nbtc.isa.spec import Operand, Row
from nbtc.numba_door.constants import constant_of
from nbtc.ops import convert
from nbtc.ops.memory import matrix_move

HERE, MOVES = "nbtc.ptx", matrix_move.__name__
I8, I16, I32, I64 = (ir.IntType(bits) for bits in (8, 16, 32, 64))


def _mnemonic(kind: Any, label: str) -> str:
    text = constant_of(kind)
    if not isinstance(text, str):
        words.refuse(f"{label}: the mnemonic is written out, in quotes; it is {kind}")
    return text


def _for_python(label: str, **given: Any) -> None:
    """Refuse parameters that only the Python functions have."""
    for name, kind in given.items():
        if kind is not types.none:
            words.refuse(f"{label}: {name}= is for Python; a kernel has one architecture, and threads of its own")


# ------------------------------------------------------------------------------------------------------------ products


def _operands(form: Row) -> tuple[Operand, ...]:
    found = tuple(o for o in (form.a, form.b, form.c, form.d) if o is not None)
    if len(found) != 4 or form.scale:
        words.refuse(f"{form.mnemonic}: products of block scales are not part of kernels; Python runs them")
    return found


def _emit_product(
    form: Row, sizes: Any, given: dict[str, tuple[Any, Any]], more: dict[str, Any], c: Any, b: Any
) -> Any:
    """One product; given: type and value of a, b and c."""
    operands: dict[str, Any] = {
        name: registers.values(c, b, *given[name], *size) for name, size in zip("abc", sizes[:3], strict=True)
    }
    count, f64 = sizes[3]
    kinds = [ir.DoubleType() if f64 else I32] * count
    return registers.packed(
        c, b, registers.result(count, f64), rows.emit(b, form, {"d": kinds}, {**operands, **more}, effect=True)
    )


@words.word(f"{HERE}.mma_sync")
def _mma_sync(context: Any, mnemonic: Any, a: Any, b: Any, c: Any, arch: Any = None, threads: Any = None) -> Any:
    form = rows.find(_mnemonic(mnemonic, "mma_sync"), "mma", "mma_sync")
    _for_python("mma_sync", arch=arch, threads=threads)
    sizes = [registers.of(o) for o in _operands(form)]
    for name, kind, (count, f64) in zip("abc", (a, b, c), sizes, strict=False):
        registers.check(kind, count, f"{form.mnemonic}: {name}", f64)

    def emit(cx: Any, builder: Any, sig: Any, args: Any) -> Any:
        given = dict(zip("abc", zip((a, b, c), args[1:4], strict=True), strict=True))
        return _emit_product(form, sizes, given, {}, cx, builder)

    return signature(registers.result(*sizes[3]), mnemonic, a, b, c, arch, threads), emit


@words.word(f"{HERE}.mma_sp")
def _mma_sp(
    context: Any, mnemonic: Any, a: Any, b: Any, c: Any, meta: Any, selector: Any = None, arch: Any = None,
    strict: Any = None, threads: Any = None,
) -> Any:  # fmt: skip
    text = _mnemonic(mnemonic, "mma_sp")
    form = rows.find(text, "mma.sp", "mma_sp")
    _for_python("mma_sp", arch=arch, strict=strict, threads=threads)
    try:
        chosen = immediate(text, "selector", constant_of(selector), 0)
    except NbtcError as error:
        words.refuse(f"mma_sp: {error}")
    if chosen not in form.selectors:
        words.refuse(f"{form.mnemonic}: selector={selector}: write out one of {', '.join(map(str, form.selectors))}")
    sizes = [registers.of(o) for o in _operands(form)]
    for name, kind, (count, f64) in zip("abc", (a, b, c), sizes, strict=False):
        registers.check(kind, count, f"{form.mnemonic}: {name}", f64)

    def emit(cx: Any, builder: Any, sig: Any, args: Any) -> Any:
        given = dict(zip("abc", zip((a, b, c), args[1:4], strict=True), strict=True))
        more = {"e": registers.word(cx, builder, meta, args[4]), "selector": chosen}
        return _emit_product(form, sizes, given, more, cx, builder)

    result = registers.result(*sizes[3])
    return signature(result, mnemonic, a, b, c, meta, selector, arch, strict, threads), emit


# ------------------------------------------------------------------------------------------------------- matrix moves


def _move(family: str, options: tuple[Any, ...]) -> Row:
    try:
        return matrix_move.form(family, *(constant_of(x) for x in options))
    except NbtcError as error:
        words.refuse(str(error))


def _check_place(label: str, smem: Any, addr: Any) -> None:
    if not isinstance(smem, types.Array):
        words.refuse(f"{label}: shared memory is an array, made with nbtc.shared, not {smem}")
    if not isinstance(addr, types.Integer):
        words.refuse(f"{label}: addr is this lane's byte offset in the array, an integer, not {addr}")


def _row_address(c: Any, b: Any, smem: tuple[Any, Any], addr: tuple[Any, Any]) -> Any:
    return b.add(shared_address(c, b, *smem), c.cast(b, addr[1], addr[0], types.int32))


@words.word(f"{MOVES}.ldmatrix")
def _ldmatrix(
    context: Any, smem: Any, addr: Any, num: Any = 1, trans: Any = False, shape: Any = "m8n8", type: Any = "b16",
    threads: Any = None,
) -> Any:  # fmt: skip
    _check_place("ldmatrix", smem, addr)
    _for_python("ldmatrix", threads=threads)
    form = _move("ldmatrix", (num, trans, shape, type))
    count = form.d.registers if form.d is not None else 0
    result = registers.result(count)

    def emit(c: Any, b: Any, sig: Any, args: Any) -> Any:
        given = {"p": _row_address(c, b, (smem, args[0]), (addr, args[1]))}
        return registers.packed(
            c, b, result, rows.emit(b, form, {"r": [I32] * count}, given, memory=True, space=".shared")
        )

    return signature(result, smem, addr, num, trans, shape, type, threads), emit


@words.word(f"{MOVES}.stmatrix")
def _stmatrix(
    context: Any, smem: Any, addr: Any, regs: Any, num: Any = 1, trans: Any = False, shape: Any = "m8n8",
    type: Any = "b16", threads: Any = None,
) -> Any:  # fmt: skip
    _check_place("stmatrix", smem, addr)
    _for_python("stmatrix", threads=threads)
    form = _move("stmatrix", (num, trans, shape, type))
    count = form.a.registers if form.a is not None else 0
    registers.check(regs, count, f"{form.mnemonic}: regs")

    def emit(c: Any, b: Any, sig: Any, args: Any) -> Any:
        given = {
            "p": _row_address(c, b, (smem, args[0]), (addr, args[1])),
            "r": registers.values(c, b, regs, args[2], count),
        }
        rows.emit(b, form, {}, given, memory=True, space=".shared")
        return c.get_dummy_value()

    return signature(types.none, smem, addr, regs, num, trans, shape, type, threads), emit


@words.word(f"{MOVES}.movmatrix")
def _movmatrix(context: Any, regs: Any, threads: Any = None) -> Any:
    _for_python("movmatrix", threads=threads)
    form = row("movmatrix.sync.aligned.m8n8.trans.b16")
    if not isinstance(types.unliteral(regs), types.Integer):
        words.refuse(f"movmatrix takes one register, an integer, not {regs}")

    def emit(c: Any, b: Any, sig: Any, args: Any) -> Any:
        return rows.emit(b, form, {"d": [I32]}, {"a": registers.word(c, b, regs, args[0])})[0]

    return signature(types.uint32, regs, threads), emit


# ---------------------------------------------------------------------------------------------------------- conversions


def _cvt_register(bits: int, name: str) -> ir.Type:
    """The register of an operand: f32 in one of its own kind, all others as bits."""
    return ir.FloatType() if name == "f32" else ir.IntType(bits)


def _cvt_emit(text: str, given: tuple[Any, ...], kinds: tuple[ir.Type, ir.Type]) -> Any:
    source, result = kinds
    number = {I8: types.uint8, I16: types.uint16}.get(source, types.uint32)

    def emit(c: Any, b: Any, sig: Any, args: Any) -> Any:
        operands = []
        for kind, value in zip(given, args[1:], strict=False):
            held = registers.word(c, b, kind, value) if number == types.uint32 else c.cast(b, value, kind, number)
            operands.append(b.bitcast(held, source))
        if I8 in kinds:
            return _cvt_of_bytes(b, text, kinds, operands)
        [found] = rows.emit(b, row(text), {"d": [result]}, dict(zip("abc", operands, strict=False)), effect=False)
        return b.bitcast(found, I32) if result == ir.FloatType() else found

    return emit


def _cvt_of_bytes(b: Any, text: str, kinds: tuple[ir.Type, ir.Type], operands: list[Any]) -> Any:
    """A form with an 8-bit register, which `mov` makes of one of 32 bits or puts into one (PTX ISA, "mov")."""
    rows.check_arch(row(text))
    result = kinds[1]
    given = ", ".join(f"${n + 1}" for n in range(len(operands)))
    if result == I8:
        body = f"{{ .reg .b8 t; {text} t, {given}; mov.b32 $0, {{t, t, t, t}}; }}"
        return b.trunc(words.inline(b, body, [I32], operands, effect=False)[0], I8)
    whole = [b.zext(x, I32) for x in operands]
    body = f"{{ .reg .b8 t, u, v, w; mov.b32 {{t, u, v, w}}, {given}; {text} $0, t; }}"
    return words.inline(b, body, [result], whole, effect=False)[0]


@words.word(f"{convert.__name__}.cvt")
def _cvt(context: Any, mnemonic: Any, a: Any, b: Any = None, c: Any = None, threads: Any = None) -> Any:
    text = _mnemonic(mnemonic, "cvt")
    _for_python("cvt", threads=threads)
    try:
        form = convert.parse(text)
    except NbtcError as error:
        words.refuse(f"cvt: {error}")
    given = tuple(kind for kind in (a, b, c) if kind is not types.none)
    if len(given) != form.operands:
        words.refuse(f"cvt: {text} takes {form.operands} source operands, {len(given)} were given")
    for kind in given:
        plain = types.unliteral(kind)
        if not isinstance(plain, types.Integer) and (plain != types.float32 or form.source_bits != 32):
            words.refuse(f"cvt: operands of {text} are {form.source_bits}-bit words, not {plain}")
    names = (form.how.source.name, form.how.target.name) if form.how is not None else ("", "")
    kinds = (
        _cvt_register(form.source_bits, names[0] if not form.source_pairs else ""),
        _cvt_register(form.target_bits, names[1] if not form.pairs else ""),
    )
    result = {8: types.uint8, 16: types.uint16}.get(form.target_bits, types.uint32)
    return signature(result, mnemonic, a, b, c, threads), _cvt_emit(text, given, kinds)
