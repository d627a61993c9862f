"""Rows of tcgen05: tensor memory, its moves and products, for programs of the sm_100 family.

(PTX ISA, "TensorCore 5th Generation Instructions".)  Tensor memory lies with the host, one a block; each instruction
asks it (`tensor_services`), and is done when it is issued: fences and waits have nothing to do, and a commit arrives at
its mbarrier at once.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I1, I8, I32, I64, vector
from nbtc.compiler.loops import for_lanes
from nbtc.executor.control.host_requests import Ask, text
from nbtc.executor.control.system_calls import ask_once
from nbtc.executor.emit import access_kinds as kinds
from nbtc.executor.emit.action import Action, yes
from nbtc.executor.emit.form import Op, slots
from nbtc.executor.emit.lanes import WARP, Lanes
from nbtc.executor.matrix.matrix import load_image, store_image
from nbtc.executor.memory import reach
from nbtc.executor.scalar import float_select, integers
from nbtc.executor.text.data import Address, Immediate, Operand, Vector
from nbtc.executor.text.matrix_names import isa_row
from nbtc.executor.transfer.bulk import for_targets
from nbtc.executor.transfer.mbarrier import update

L32, L64 = vector(I32, WARP), vector(I64, WARP)
POINTER = I8.as_pointer()
WORD = 8
FAMILY = "tcgen05.mma"
COLLECTOR = ("collector::a::fill", "collector::a::use", "collector::a::lastuse", "collector::a::discard")


def _place(lanes: Lanes, operand: Operand) -> Any:
    """An address in tensor memory: lane << 16 | column."""
    return lanes.b.and_(reach.address(lanes, operand), lanes.v.const(L64, 0xFFFFFFFF))


def _number(lanes: Lanes, operand: Operand) -> Any:
    return lanes.b.zext(lanes.read(operand, "b32", lanes=True), L64)


def _alloc(lanes: Lanes) -> None:
    target, columns = lanes.operands
    address = ask_once(lanes, "alloc", _number(lanes, columns))
    space = lanes.op.among(("shared::cta",)) or "generic"
    found = reach.places(lanes, space, target, 4, writes=True, seen=reach.AccessReport(kinds.STRONG_WRITE))
    first = lanes.v.call("llvm.cttz.i32", I32, lanes.active, ir.Constant(I1, 0))
    with lanes.b.if_then(lanes.b.icmp_unsigned("!=", found.good, ir.Constant(I32, 0))):
        at = lanes.b.inttoptr(lanes.b.extract_element(found.words, first), POINTER)
        lanes.v.store(lanes.b.trunc(address, I32), at, 4)


def _dealloc(lanes: Lanes) -> None:
    address, columns = lanes.operands
    ask_once(lanes, "dealloc", _number(lanes, address), _number(lanes, columns))


def _relinquish(lanes: Lanes) -> None:
    ask_once(lanes, "relinquish")


# --- moves ----------------------------------------------------------------------------------------------------------
def _way(lanes: Lanes) -> str:
    """Shape, count and packing of a move."""
    first = lanes.op.modifiers.index("aligned") + 1
    shape, times = lanes.op.modifiers[first : first + 2]
    packed = int(any(m in ("pack::16b", "unpack::16b") for m in lanes.op.modifiers))
    return f"{lanes.op.modifiers[0]} {shape} {times.removeprefix('x')} {packed}"


def _move_words(lanes: Lanes, address: Operand, rest: list[Operand], image: Any) -> tuple[Any, ...]:
    split = rest[0].value if rest and isinstance(rest[0], Immediate) else 0
    return _place(lanes, address), lanes.b.ptrtoint(image, I64), lanes.v.int(split)


def _load(lanes: Lanes) -> None:
    _load_words(lanes, *lanes.operands)


def _load_words(lanes: Lanes, target: Operand, address: Operand, *rest: Operand) -> None:
    image = lanes.machine.scratch.image(lanes, 4 * WARP * len(lanes.elements(target)))
    ask_once(lanes, f"{_way(lanes)} {len(lanes.elements(target))}", *_move_words(lanes, address, [*rest], image))
    load_image(lanes, target, image, 4)


def _load_and_reduce(lanes: Lanes) -> None:
    """The words, and the least or greatest of a thread's, as min and max of their type have it in any order."""
    target, extreme, address = lanes.operands
    _load_words(lanes, target, address)
    op = Op(lanes.op.among(("min", "max")), tuple(m for m in lanes.op.modifiers if m in ("abs", "NaN", *REDUCED)))
    words = [lanes.read(x, "b32", lanes=True) for x in lanes.elements(target)]
    if op.types == ("f32",):
        found = float_select.minmax(lanes.v, op, *words)
    else:
        found = reduce(lambda x, y: integers.minmax(lanes.v, op, x, y), words)
    lanes.write(extreme, found)


def _store(lanes: Lanes) -> None:
    address, *rest, source = lanes.operands
    count = len(lanes.elements(source))
    image = store_image(lanes, source, count, 4)
    ask_once(lanes, f"{_way(lanes)} {count}", *_move_words(lanes, address, rest, image))


def _copy(lanes: Lanes) -> None:
    address, descriptor = lanes.operands
    shape = ".".join(lanes.op.modifiers[2:])
    look = lanes.machine.instrument
    look.operates(lanes, kinds.TENSORS)
    lanes.host(
        Ask.TENSOR,
        text(lanes, f"cp {shape} {look.site(lanes)}"),
        _place(lanes, address),
        lanes.read(descriptor, "b64", lanes=True),
    )


# --- products -------------------------------------------------------------------------------------------------------
def _multiply(lanes: Lanes) -> None:
    """One product for each active lane (programs let one thread issue it)."""
    row = isa_row(_plain(lanes.instruction.mnemonic))
    if row is None:
        lanes.refuse("no such form")
        return
    d, a, b, idesc, *rest = lanes.operands
    if any(isinstance(o, Vector) for o in rest) or len(rest) != (3 if "block_scale" in row.mnemonic else 1):
        lanes.refuse(
            "lanes of the result left out, and scaled accumulators, are not verified: it takes enable-input-d alone"
        )
    scales = [_place(lanes, o) for o in rest[:-1]] or [lanes.v.const(L64, 0)] * 2
    enabled = lanes.b.zext(lanes.read(rest[-1], "pred", lanes=True), L64)
    from_memory = isinstance(a, Address)
    left = _place(lanes, a) if from_memory else lanes.read(a, "b64", lanes=True)
    high, look = lanes.v.const(L64, 32), lanes.machine.instrument
    look.operates(lanes, kinds.TENSORS)
    lanes.host(
        Ask.TENSOR,
        text(lanes, f"mma {row.mnemonic} {lanes.machine.options.arch} {int(from_memory)} {look.site(lanes)}"),
        _place(lanes, d),
        left,
        lanes.read(b, "b64", lanes=True),
        lanes.b.or_(_number(lanes, idesc), lanes.b.shl(enabled, high)),
        lanes.b.or_(scales[0], lanes.b.shl(scales[1], high)),
    )


def _plain(mnemonic: str) -> str:
    """A mnemonic without what only says how long the hardware keeps A at hand, its scale sizes by number."""
    words = [w for w in mnemonic.split(".") if w not in COLLECTOR]
    kind = next((w for w in words if w.startswith("kind::")), "")
    if "block_scale" in words and words[-1] == "block_scale":
        words += {"kind::mxf8f6f4": ["scale_vec::1X"], "kind::mxf4": ["scale_vec::2X"]}.get(kind, [])
    return ".".join({"block32": BLOCK32.get(kind, ""), "block16": "scale_vec::4X"}.get(w, w) for w in words)


BLOCK32 = {"kind::mxf8f6f4": "scale_vec::1X", "kind::mxf4": "scale_vec::2X", "kind::mxf4nvf4": "scale_vec::2X"}


def _accepts(modifiers: tuple[str, ...]) -> bool:
    row = isa_row(_plain(".".join(("tcgen05", *modifiers))))
    return row is not None and row.family == FAMILY and row.executable


def _commit(lanes: Lanes) -> None:
    """Everything is complete already: the mbarrier (of every block that a mask names) is told.

    Without `.shared::cluster` the low word of a generic address is taken (ptxas 13.5: UMOV, UTCBAR), so that what
    Triton 3.6 gives, an address of shared memory widened to 64 bits, is one too.
    """
    barrier, *rest = lanes.operands
    v, b = lanes.v, lanes.b
    one, none = v.const(L64, 1), v.const(L64, 0)
    found = reach.places(lanes, "shared::cluster", barrier, WORD, True)
    look = lanes.machine.instrument

    def arrive(places: reach.Places) -> None:
        look.mbarrier(lanes, kinds.JOINED, places, b=kinds.TENSORS)
        update(lanes, places, one, none, none)

    if not lanes.op.has("multicast::cluster"):
        arrive(found)
        return
    mask = lanes.read(rest[0], "b16", lanes=True)

    def lane(number: Any) -> None:
        def tell(place: Any) -> None:
            arrive(reach.Places(v.splat(place, WARP), b.shl(ir.Constant(I32, 1), number)))

        for_targets(lanes, mask, number, b.extract_element(found.words, number), tell)

    for_lanes(v, found.good, lane)


def _nothing(lanes: Lanes) -> None:
    """Operations are complete when they are issued."""


GROUP = "cta_group::1|cta_group::2"
ALIGNED = ("sync", "aligned")
SHAPE = "16x64b|16x128b|16x256b|32x32b"
TIMES = "|".join(f"x{1 << n}" for n in range(8))
REDUCED = ("f32", "u32", "s32")
# Of .16x32bx2, which gives the columns of a lane to two threads, nobody has recorded whose extremes they get.
REDUCING = ("ld", "red", *ALIGNED, "32x32b", TIMES.removeprefix("x1|"), "min|max")
ACTIONS = (
    Action("tcgen05", slots("alloc", GROUP, *ALIGNED, "shared::cta?", "b32"), _alloc),
    Action("tcgen05", slots("dealloc", GROUP, *ALIGNED, "b32"), _dealloc),
    Action("tcgen05", slots("relinquish_alloc_permit", GROUP, *ALIGNED), _relinquish),
    Action("tcgen05", slots("ld", *ALIGNED, f"{SHAPE}|16x32bx2", TIMES, "pack::16b?", "b32"), _load, 1, varying=yes),
    Action("tcgen05", slots(*REDUCING, "abs?", "NaN?", "f32"), _load_and_reduce, 2, varying=yes),
    Action("tcgen05", slots(*REDUCING, "u32|s32"), _load_and_reduce, 2, varying=yes),
    Action("tcgen05", slots("st", *ALIGNED, f"{SHAPE}|16x32bx2", TIMES, "unpack::16b?", "b32"), _store),
    Action("tcgen05", slots("cp", GROUP, "128x256b|128x128b|4x256b"), _copy),
    Action("tcgen05", slots("cp", GROUP, "64x128b", "warpx2::02_13|warpx2::01_23"), _copy),
    Action("tcgen05", slots("cp", GROUP, "32x128b", "warpx4"), _copy),
    Action("tcgen05", (), _multiply, accepts=_accepts),
    Action(
        "tcgen05",
        slots("commit", GROUP, "mbarrier::arrive::one", "shared::cluster?", "multicast::cluster?", "b64"),
        _commit,
    ),
    Action("tcgen05", slots("wait::ld|wait::st", *ALIGNED), _nothing),
    Action("tcgen05", slots("fence::before_thread_sync|fence::after_thread_sync"), _nothing),
)
