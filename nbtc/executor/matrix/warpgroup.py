"""Rows of wgmma in programs.

(PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions".)  A product is done when it is issued, each warp's rows
apart.  What the four warps of a warpgroup wait for at a fence and before they leave products is told in
`warpgroup_order`; the commit has nothing to do.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I1, I32, I64
from nbtc.errors import NbtcError
from nbtc.executor.emit.action import Action, yes
from nbtc.executor.emit.errors import ErrorKind
from nbtc.executor.emit.form import slots
from nbtc.executor.emit.lanes import Lanes
from nbtc.executor.matrix import warpgroup_order
from nbtc.executor.matrix.matrix import image_of, load_image, store_image
from nbtc.executor.matrix.product_split import P
from nbtc.executor.matrix.warpgroup_product import WarpgroupEmitter, warpgroup_product
from nbtc.executor.matrix.warpgroup_slice import Flags
from nbtc.executor.memory.reach import first_lane
from nbtc.executor.text.data import Immediate, Operand, Register, Vector
from nbtc.executor.text.matrix_names import isa_row
from nbtc.isa.spec import Row
from nbtc.ops.wgmma.product import signs

FAMILIES = ("wgmma.mma_async", "wgmma.mma_async.sp")


def _immediates(lanes: Lanes, row: Row, given: list[Operand], registers: bool) -> Flags:
    """What the immediates after scale-d say: scales of A and B, then transpositions of A (unless in registers), B."""
    numbers = []
    for operand in given:
        if not isinstance(operand, Immediate):
            lanes.refuse("scales and transpositions of wgmma are constants")
        numbers.append(_signed(operand.value))
    scales = dict(zip(row.scales, numbers, strict=False))
    rest = numbers[len(row.scales) :]
    names = [t for t in row.trans if not (registers and t == "a")]
    turned = dict(zip(names, rest, strict=False))
    if len(numbers) != len(row.scales) + len(names):
        wanted = [*(f"imm-scale-{s}" for s in row.scales), *(f"imm-trans-{t}" for t in names)]
        lanes.refuse(f"after scale-d this form has {', '.join(wanted) or 'no operands'}; {len(numbers)} are given")
    if any(s not in (1, -1) for s in scales.values()) or any(t not in (0, 1) for t in turned.values()):
        lanes.refuse("scales of wgmma are 1 or -1, transpositions 0 or 1")
    a, b = signs(row, (scales.get("a", 1), scales.get("b", 1)))
    return Flags(registers, turned.get("a") == 1, turned.get("b") == 1, a == -1, b == -1)


def _signed(value: int) -> int:
    """An immediate that may have been read as an unsigned word."""
    return -1 if value in (-1, (1 << 32) - 1, (1 << 64) - 1) else value


def _multiply(lanes: Lanes) -> None:
    row = isa_row(lanes.instruction.mnemonic)
    if row is None:
        lanes.refuse("no such form")
        return
    d, a, b, *rest = lanes.operands
    meta, selector = None, 0
    if row.sparse:
        meta, chosen, *rest = rest
        if not isinstance(chosen, Immediate):
            lanes.refuse("the sparsity selector is a constant")
        selector = int(chosen.value)
    keep, *immediates = rest
    flags = _immediates(lanes, row, immediates, isinstance(a, Vector))
    _, columns, _ = row.shape or (0, 0, 0)
    try:
        emitter = WarpgroupEmitter(
            warpgroup_product(row.mnemonic, lanes.machine.options.arch, selector), columns, flags
        )
    except NbtcError as error:
        lanes.refuse(str(error))
        return
    _call(lanes, emitter, (d, a, b, meta, keep))


def _call(lanes: Lanes, emitter: WarpgroupEmitter, operands: tuple[Any, ...]) -> None:
    d, a, b, meta, keep = operands
    v, registers = lanes.v, emitter.registers
    image = image_of(lanes, d, registers, 4)
    in_registers = emitter.flags.registers
    image_a = store_image(lanes, a, 4, 4) if in_registers else ir.Constant(P, None)
    word_a = v.int(0) if in_registers else _word(lanes, a)
    notes = ir.Constant(P, None) if meta is None else store_image(lanes, meta, 1, 4)
    row = lanes.b.shl(lanes.b.and_(lanes.get("warp", "index"), ir.Constant(I32, 3)), ir.Constant(I32, 4))
    size = lanes.b.zext(lanes.get("launch", "shared_bytes"), I64)
    f = lanes.helper(emitter.name, I1, emitter.ARGUMENTS, emitter.build)
    arguments = [lanes.get("block", "shared"), size, word_a, _word(lanes, b), row, _flag(lanes, keep), image_a, notes]
    made = 8 * emitter.form.row.sparse | 2 * emitter.flags.trans_b | emitter.flags.trans_a
    warpgroup_order.issued(lanes)
    lanes.machine.instrument.product(lanes, word_a, arguments[3], emitter.columns, made)
    kept = lanes.machine.scratch.kept(lanes, emitter.kept)
    outside = lanes.b.call(f, [*arguments, image, lanes.services, kept, *_product_number(lanes)])
    with lanes.b.if_then(outside, likely=False):
        lanes.fail(ErrorKind.SHARED_BOUNDS, lanes.active)
    if lanes.frame.registers.image(d, registers) is None:
        load_image(lanes, d, image, 4)


def _product_number(lanes: Lanes) -> list[Any]:
    """Which product of which warpgroup this is: launch, block, and warpgroup with the count of its products (i64)."""
    b = lanes.b
    group = b.zext(b.lshr(lanes.get("warp", "index"), ir.Constant(I32, 2)), I64)
    count = b.zext(lanes.get("warp", "products"), I64)
    both = b.or_(b.shl(group, lanes.v.int(32)), count)
    return [lanes.get("launch", "number"), lanes.get("block", "index"), both]


def _word(lanes: Lanes, operand: Operand) -> Any:
    """A descriptor: one i64 for the warp."""
    return first_lane(lanes, lanes.read(operand, "b64"))


def _flag(lanes: Lanes, operand: Operand) -> Any:
    """scale-d: a predicate, or a constant."""
    if isinstance(operand, Register):
        return first_lane(lanes, lanes.read(operand, "pred"))
    return ir.Constant(I1, int(getattr(operand, "value", 0) != 0))


def _nothing(lanes: Lanes) -> None:
    """Order that is kept anyway."""


def _accepts(modifiers: tuple[str, ...]) -> bool:
    row = isa_row(".".join(("wgmma", *modifiers)))
    return row is not None and row.family in FAMILIES and row.executable


ACTIONS = (
    Action("wgmma", (), _multiply, 1, varying=yes, accepts=_accepts),
    Action("wgmma", slots("fence", "sync", "aligned"), warpgroup_order.fence, waits=yes),
    Action("wgmma", slots("commit_group", "sync", "aligned"), _nothing),
    Action("wgmma", slots("wait_group", "sync", "aligned"), warpgroup_order.wait, waits=yes),
)
