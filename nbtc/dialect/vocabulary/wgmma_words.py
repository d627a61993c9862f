"""Words of warpgroups: descriptors of tiles in shared memory, products, fences and groups (PTX ISA, "wgmma")."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.core.typing import signature

from nbtc.dialect import words
from nbtc.dialect.vocabulary import registers, rows
from nbtc.dialect.vocabulary.addresses import shared_address
from nbtc.errors import NbtcError
from nbtc.fragments.smem_descriptors import SWIZZLES, Descriptor
from nbtc.isa.lines import slots
from nbtc.isa.parse import row
from nbtc.isa.spec import Row
from nbtc.numba_door.constants import constant_of

HERE = "nbtc.wgmma"
SWIZZLE_BIT = 62  # lowest bit of the descriptor's swizzle mode
I1, I32, I64 = ir.IntType(1), ir.IntType(32), ir.IntType(64)
OPTIONS = {"scale_a": "scaleA", "scale_b": "scaleB", "trans_a": "transA", "trans_b": "transB"}


def _bytes_of(c: Any, b: Any, kind: Any, value: Any) -> Any:
    """A number of bytes, or where an array begins, as 64 bits."""
    if isinstance(kind, types.Array):
        return b.zext(shared_address(c, b, kind, value), I64)
    return c.cast(b, value, kind, types.uint64)


@words.word(f"{HERE}.Descriptor")
def _descriptor(
    context: Any, start: Any, leading: Any, stride: Any, base_offset: Any = 0, swizzle: Any = "none"
) -> Any:  # fmt: skip
    mode = SWIZZLES.get(constant_of(swizzle))
    if mode is None:
        words.refuse(f"Descriptor: swizzle is one of {', '.join(map(repr, SWIZZLES))}, written out; it is {swizzle}")
    for name, kind in (("start", start), ("leading", leading), ("stride", stride), ("base_offset", base_offset)):
        array = name == "start" and isinstance(kind, types.Array)
        if not array and not isinstance(kind, types.Integer):
            words.refuse(
                f"Descriptor: {name} is a number of bytes{', or a shared array' * (name == 'start')}, not {kind}"
            )

    def emit(c: Any, b: Any, sig: Any, args: Any) -> Any:
        word = ir.Constant(I64, mode.code << SWIZZLE_BIT)
        for (low, width, step), kind, value in zip(Descriptor.FIELDS.values(), sig.args, args, strict=False):
            units = b.udiv(_bytes_of(c, b, kind, value), ir.Constant(I64, step))
            field = b.and_(units, ir.Constant(I64, (1 << width) - 1))
            word = b.or_(word, b.shl(field, ir.Constant(I64, low)))
        return word

    return signature(types.uint64, start, leading, stride, base_offset, swizzle), emit


# ------------------------------------------------------------------------------------------------------------ products


def _row(mnemonic: Any) -> Row:
    text = constant_of(mnemonic)
    if not isinstance(text, str):
        words.refuse(f"wgmma: the mnemonic is written out, in quotes; it is {mnemonic}")
    try:
        form = row(text)
    except NbtcError as error:
        words.refuse(f"wgmma: {error}")
    if form.family not in ("wgmma.mma_async", "wgmma.mma_async.sp"):
        words.refuse(f"wgmma takes wgmma.mma_async forms; {form.mnemonic} is one of {form.family}")
    return form


def _immediates(form: Row, first: str, given: dict[str, Any], selector: Any) -> dict[str, Any]:
    """The constants of a product, as many as the longest operand list has; others may only have their defaults."""
    names = {s.name for syntax in form.syntax if first in (slots(syntax)[1].name,) for s in slots(syntax)}
    found: dict[str, Any] = {}
    for name, kind in given.items():
        value, default = constant_of(kind), 1 if name.startswith("scale") else 0
        if not isinstance(value, int) or value not in ((-1, 1) if name.startswith("scale") else (0, 1)):
            words.refuse(f"{form.mnemonic}: {name} is an immediate, {'1 or -1' if default else '0 or 1'}; it is {kind}")
        if OPTIONS[name] in names:
            found[OPTIONS[name]] = value
        elif value != default:
            words.refuse(
                f"{form.mnemonic} with {'descriptors' if first == 'descA' else 'A in registers'} has no {name}"
            )
    if form.sparse:
        found["selector"] = constant_of(selector)
        if found["selector"] not in form.selectors:
            words.refuse(f"{form.mnemonic}: selector={selector}: write out one of {form.selectors}")
    return found


@words.word("nbtc.ptx.wgmma")
def _wgmma(
    context: Any, mnemonic: Any, d: Any, a: Any, b_desc: Any, smem: Any = None, scale_d: Any = 1, scale_a: Any = 1,
    scale_b: Any = 1, trans_a: Any = 0, trans_b: Any = 0, meta: Any = None, selector: Any = 0, arch: Any = None,
    threads: Any = None,
) -> Any:  # fmt: skip
    form = _row(mnemonic)
    if form.d is None or form.a is None or form.sparse == isinstance(meta, types.NoneType):
        words.refuse(f"{form.mnemonic}: sparse forms take meta=, a 32-bit word, and others take none")
    count, size = form.d.registers, form.a.registers
    fresh = isinstance(d, types.NoneType)
    if not fresh:
        registers.check(d, count, f"{form.mnemonic}: d")
    by_address = isinstance(types.unliteral(a), types.Integer)
    if not by_address:
        registers.check(a, size, f"{form.mnemonic}: a")
    first = "descA" if by_address else "a"
    given = {"scale_a": scale_a, "scale_b": scale_b, "trans_a": trans_a, "trans_b": trans_b}
    immediates = _immediates(form, first, given, selector)
    result = registers.result(count)

    def emit(c: Any, b: Any, sig: Any, args: Any) -> Any:
        zero = ir.Constant(I32, 0)
        before = [zero] * count if fresh else registers.values(c, b, d, args[1], count)
        operands: dict[str, Any] = {
            first: c.cast(b, args[2], a, types.uint64) if by_address else registers.values(c, b, a, args[2], size),
            "descB": c.cast(b, args[3], b_desc, types.uint64),
            "scaleD": ir.Constant(I1, 0) if fresh else c.cast(b, args[5], scale_d, types.boolean),
            **immediates,
        }
        if form.sparse:
            operands["e"] = registers.word(c, b, meta, args[10])
        found = rows.emit(b, form, {"d": [I32] * count}, operands, memory=True, tied=before)
        return registers.packed(c, b, result, found)

    return signature(
        result, mnemonic, d, a, b_desc, smem, scale_d, scale_a, scale_b, trans_a, trans_b, meta, selector, arch, threads
    ), emit


# -------------------------------------------------------------------------------------------------- fences and groups


def _plain(name: str, mnemonic: str) -> None:
    form = row(mnemonic)

    def typing(context: Any, sequence: Any = None) -> Any:
        if not isinstance(sequence, types.NoneType):
            words.refuse(f"{name}: a sequence is for Python; in a kernel the hardware keeps it")

        def emit(c: Any, b: Any, sig: Any, args: Any) -> Any:
            rows.emit(b, form, {}, {}, memory=True)
            return c.get_dummy_value()

        return signature(types.none, sequence), emit

    typing.__name__ = name
    words.word(f"{HERE}.{name}")(typing)


_plain("fence", "wgmma.fence.sync.aligned")
_plain("commit_group", "wgmma.commit_group.sync.aligned")
_plain("fence_proxy_async", "fence.proxy.async")


@words.word(f"{HERE}.wait_group")
def _wait_group(context: Any, n: Any, sequence: Any = None) -> Any:
    pending, form = constant_of(n), row("wgmma.wait_group.sync.aligned")
    if not isinstance(pending, int) or not 0 <= pending <= 7:
        words.refuse(f"wait_group: how many groups may be pending is a constant, 0 to 7; it is {n}")

    def emit(c: Any, b: Any, sig: Any, args: Any) -> Any:
        rows.emit(b, form, {}, {"n": pending}, memory=True)
        return c.get_dummy_value()

    return signature(types.none, n, sequence), emit
