"""Rows of mma.sync, mma.sp and wmma.mma: registers to images, a product, and back.

(PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions".)  Decoded operands are kept while the registers they
come from live (`scratch`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from llvmlite import ir

from nbtc.compiler.builder import I64
from nbtc.errors import NbtcError
from nbtc.executor.control.system_calls import ask_once
from nbtc.executor.emit.action import Action
from nbtc.executor.emit.lanes import Lanes
from nbtc.executor.matrix.product_records import LANES, REGISTER, VECTOR
from nbtc.executor.matrix.product_run import Factor, execute
from nbtc.executor.matrix.product_split import P
from nbtc.executor.matrix.products import Product, ProductImages, product
from nbtc.executor.text.data import Immediate, Instruction, Operand, Vector
from nbtc.executor.text.matrix_names import isa_row
from nbtc.isa.spec import Row

FAMILIES = {"mma": ("mma", "mma.sp"), "wmma": ("wmma.mma",)}


def image_of(lanes: Lanes, operand: Operand, count: int, size: int) -> Any:
    """The address of an operand's registers as a [register][lane] image: where they live, or a copy."""
    kept = lanes.frame.registers.image(operand, count)
    return store_image(lanes, operand, count, size) if kept is None else kept


def store_image(lanes: Lanes, operand: Operand, count: int, size: int, image: Any = None) -> Any:
    """Registers of a warp as a [register][lane] image; its address, given or in memory of this instruction."""
    registers = lanes.elements(operand)
    if len(registers) != count:
        lanes.refuse(f"an operand of {len(registers)} registers where the form has {count}")
    if image is None:
        image = lanes.machine.scratch.image(lanes, LANES * count * size)
    for n, register in enumerate(registers):
        lanes.v.store(lanes.read(register, f"b{8 * size}", lanes=True), image, VECTOR, LANES * size * n)
    return image


def load_image(lanes: Lanes, operand: Operand, image: Any, size: int) -> None:
    """The inverse of `store_image`."""
    kind = ir.VectorType(ir.IntType(8 * size), LANES)
    for n, register in enumerate(lanes.elements(operand)):
        lanes.write(register, lanes.v.load(image, kind, VECTOR, LANES * size * n))


def _factor(lanes: Lanes, form: Product, side: int, operand: Operand) -> Factor:
    """An operand's image (where its registers live, or a copy) and where it is, or is to be, decoded."""
    code, count, v = form.records, form.counts[side], lanes.v
    if code is None:
        return Factor(image_of(lanes, operand, count, form.size), (), False)
    role, slices = form.role(side), form.slices(side)
    kept = lanes.frame.registers.image(operand, count)
    before, size = 0 if kept is not None else REGISTER * count, code.size_b if role else code.size_a
    key = f"{role} {code.operand_keys[role]} {len(slices)}"
    memory, good = lanes.machine.scratch.record(lanes, key, operand, before + size * len(slices))
    image = memory if kept is None else kept
    if not good and kept is None:
        store_image(lanes, operand, count, form.size, image)
    return Factor(image, tuple(v.at(memory, before + size * n) for n in range(len(slices))), not good)


def _product(lanes: Lanes, selector: int) -> Product:
    try:
        return product(lanes.instruction.mnemonic, lanes.machine.options.arch, selector)
    except NbtcError as error:
        return lanes.refuse(str(error))


class Parts(NamedTuple):
    """Operands of a product by role."""

    d: Operand
    a: Operand
    b: Operand
    c: Operand
    meta: Operand | None
    selector: int


def _parts(lanes: Lanes, row: Row) -> Parts:
    d, a, b, c, *more = lanes.operands
    if not row.sparse:
        return Parts(d, a, b, c, None, 0)
    meta, selector = more
    if not isinstance(selector, Immediate):
        lanes.refuse("the sparsity selector is a constant")
    return Parts(d, a, b, c, meta, int(selector.value))


def multiply(lanes: Lanes) -> None:
    """One product of the warp."""
    row = isa_row(lanes.instruction.mnemonic)
    if row is None:
        lanes.refuse("no such matrix product")
        return
    if row.scale:
        multiply_scaled(lanes, row)
        return
    parts = _parts(lanes, row)
    form = _product(lanes, parts.selector)
    a, b = (_factor(lanes, form, side, o) for side, o in enumerate((parts.a, parts.b)))
    sums = _sums_in_c(parts) if form.adds_c_last else {}
    c = (store_image if sums else image_of)(lanes, parts.c, form.counts[2], form.size)
    meta = ir.Constant(P, None) if parts.meta is None else store_image(lanes, parts.meta, 1, 4)
    count = form.counts[3]
    read = (parts.a, parts.b) if form.in_place else (parts.a, parts.b, parts.c)
    kept = None if sums or parts.d in read else lanes.frame.registers.image(parts.d, count)
    d = lanes.machine.scratch.image(lanes, LANES * count * form.size) if kept is None else kept
    images = ProductImages(a.image, b.image, c, meta, d)
    if sums:
        _add_in_order(lanes, form, (a, b), images, sums)
    else:
        lanes.machine.products.add(lanes, form, (a, b), images)
    if kept is None:  # not where its operands live: what needs the fallback reads them again
        load_image(lanes, parts.d, d, form.size)


def _sums_in_c(parts: Parts) -> dict[int, int]:
    """The registers of C that D has before them: their numbers in C, and in D."""
    if not (isinstance(parts.c, Vector) and isinstance(parts.d, Vector)):
        return {}
    d, c = parts.d.elements, parts.c.elements
    return {n: d.index(x) for n, x in enumerate(c) if x in d[:n]}


def _add_in_order(
    lanes: Lanes, form: Product, factors: tuple[Factor, Factor], images: ProductImages, sums: dict[int, int]
) -> None:
    """A product whose C is added by one instruction for each register, of which some read what others before wrote.

    The PTX ISA has no such order, but ptxas makes those instructions without a copy of C (golden/overlaps.npz).
    """
    execute(lanes, form, factors, images)
    a, b = factors
    decoded = a._replace(raw=False), b._replace(raw=False)
    for n, earlier in sums.items():
        words = lanes.v.load(images.d, ir.VectorType(ir.IntType(32), LANES), VECTOR, REGISTER * earlier)
        lanes.v.store(words, images.c, VECTOR, REGISTER * n)
        execute(lanes, form, decoded, images)


def multiply_scaled(lanes: Lanes, row: Row) -> None:
    """One block-scaled product of the warp, by the host."""
    d, a, b, c, scale_a, at_a, scale_b, at_b = lanes.operands
    places = (*lanes.elements(at_a), *lanes.elements(at_b))
    chosen = [o.value for o in places if isinstance(o, Immediate)]
    if len(chosen) != len(places):
        lanes.refuse("which byte and which thread hold the scales are constants here")
    images = [store_image(lanes, o, len(lanes.elements(o)), 4) for o in (a, b, c)]
    result = lanes.machine.scratch.image(lanes, LANES * 4 * len(lanes.elements(d)))
    scales = store_image(lanes, Vector((scale_a, scale_b)), 2, 4)
    words = " ".join(("scaled", row.mnemonic, lanes.machine.options.arch, *map(str, chosen)))
    ask_once(lanes, words, *(lanes.b.ptrtoint(p, I64) for p in (*images, result, scales)))
    load_image(lanes, d, result, 4)


def _accepts(opcode: str) -> Any:
    def accepts(modifiers: tuple[str, ...]) -> bool:
        row = isa_row(".".join((opcode, *modifiers)))
        return row is not None and row.family in FAMILIES[opcode] and row.executable

    return accepts


def _always(instruction: Instruction) -> bool:
    return True


ACTIONS = tuple(Action(opcode, (), multiply, 1, varying=_always, accepts=_accepts(opcode)) for opcode in FAMILIES)
