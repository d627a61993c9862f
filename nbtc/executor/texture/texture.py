"""Rows of textures and surfaces: tex, tld4, txq, suld, sust, suq.  (PTX ISA, "Texture Instructions", "Surface
Instructions".)  Objects are named by their 64-bit handles; mipmaps have one level.
"""

from __future__ import annotations

from typing import Any

from nbtc.compiler.builder import I64, vector
from nbtc.executor.emit.action import Action, yes
from nbtc.executor.emit.errors import ErrorKind
from nbtc.executor.emit.form import slots
from nbtc.executor.emit.lanes import WARP, Lanes
from nbtc.executor.emit.slots import TEXTURE, TEXTURE_TABLE
from nbtc.executor.text.data import Address, Operand, Register
from nbtc.executor.texture import service
from nbtc.executor.transfer.bulk import ServiceWords

L64 = vector(I64, WARP)
DIMS = {"1d": 1, "2d": 2, "3d": 3, "a1d": 1, "a2d": 2, "cube": 3, "acube": 3}
WITH_LAYERS = ("a1d", "a2d", "acube")
BOUNDS = ("trap", "clamp", "zero")
QUERIES = ("width", "height", "depth")
CHANNELS = "rgba"
FAULTS = {service.NO_OBJECT: ErrorKind.NO_OBJECT, service.OUT_OF_BOUNDS: ErrorKind.SURFACE_BOUNDS,
          service.MISALIGNED: ErrorKind.SURFACE_ALIGN}  # fmt: skip


class TextureCall:
    """One call of the service, from its arguments to its results."""

    def __init__(self, lanes: Lanes, operation: int) -> None:
        self.lanes, self.words = lanes, ServiceWords(lanes, service.TOTAL)
        self.words.set(service.OPERATION, operation)
        self.words.set(service.ACTIVE, lanes.b.zext(lanes.active, I64))
        self.words.set(service.TABLE, lanes.v.load(lanes.services, I64, 8, 8 * TEXTURE_TABLE))
        for n in (service.DIMS, service.LAYERED, service.PART, service.BOUNDS, service.COUNT, service.SIZE,
                  service.FAULT):  # fmt: skip
            self.words.set(n, 0)

    def put(self, row: int, value: Any) -> None:
        """One word of every lane."""
        self.lanes.v.store(value, self.words.p, 8, 8 * (service.HEAD + row * WARP))

    def value(self, n: int) -> Any:
        """One of every lane's results."""
        return self.lanes.v.load(self.words.p, L64, 8, 8 * (service.HEAD + (service.VALUES + n) * WARP))

    def place(self, operand: Operand, geometry: str) -> None:
        """The object, and the coordinates in it."""
        lanes = self.lanes
        if not isinstance(operand, Address) or not isinstance(operand.base, Register) or len(operand.rest) > 1:
            lanes.refuse("names its object by a register with a 64-bit handle: [handle, {x, y}]; texture, sampler and "
                         "surface variables of PTX are not emulated")  # fmt: skip
        self.put(service.HANDLE, lanes.b.add(lanes.read(operand.base, "b64", lanes=True), lanes.v.const(L64, 0)))
        if not geometry:
            return
        self.words.set(service.DIMS, DIMS[geometry])
        self.words.set(service.LAYERED, int(geometry in WITH_LAYERS))
        given = lanes.elements(operand.rest[0]) if operand.rest else ()
        wanted = DIMS[geometry] + (geometry in WITH_LAYERS)
        if len(given) < wanted:
            lanes.refuse(f"takes {wanted} coordinates in braces after the handle, not {len(given)}")
        for n, coordinate in enumerate(given[:wanted]):
            word = lanes.read(coordinate, "b32", lanes=True)
            self.put(service.COORDINATES + n, lanes.b.zext(word, L64))

    def run(self) -> None:
        """Call it, and fail where a lane did."""
        lanes, words = self.lanes, self.words
        words.call(lanes, TEXTURE)
        fault = words.get(service.FAULT)
        for number, kind in FAULTS.items():
            with lanes.b.if_then(lanes.b.icmp_unsigned("==", fault, lanes.v.int(number)), likely=False):
                lanes.fail(kind, lanes.b.trunc(words.get(service.LANES), lanes.active.type))

    def results(self, target: Operand) -> None:
        """Give the registers their values."""
        for n, register in enumerate(self.lanes.elements(target)):
            self.lanes.write(register, self.value(n))


def _read(lanes: Lanes) -> None:
    """tex: with one level of a mipmap, .level and .grad choose none."""
    geometry = lanes.op.among(tuple(DIMS))
    target, where, *_ = lanes.operands
    whole = lanes.op.modifiers[-1] == "s32"
    cube = geometry in ("cube", "acube")
    call = TextureCall(lanes, service.FETCH if whole else service.CUBE if cube else service.SAMPLE)
    call.place(where, geometry)
    call.run()
    call.results(target)


def _gather(lanes: Lanes) -> None:
    component, geometry = lanes.op.modifiers[:2]
    target, where, *_ = lanes.operands
    call = TextureCall(lanes, service.GATHER)
    call.place(where, geometry)
    call.words.set(service.PART, CHANNELS.index(component))
    call.run()
    call.results(target)


def _query(lanes: Lanes) -> None:
    target, where = lanes.operands
    call = TextureCall(lanes, service.QUERY)
    call.place(where, "")
    call.words.set(service.PART, QUERIES.index(lanes.op.modifiers[0]))
    call.words.set(service.BOUNDS, int(lanes.op.opcode == "suq"))
    call.run()
    call.results(target)


def _access(lanes: Lanes) -> None:
    """suld, sust: coordinates along x in bytes."""
    loads = lanes.op.opcode == "suld"
    values, where = lanes.operands if loads else reversed(lanes.operands)
    call = TextureCall(lanes, service.LOAD if loads else service.STORE)
    call.place(where, lanes.op.among(tuple(DIMS)))
    bits = int(lanes.op.among(("b8", "b16", "b32", "b64"))[1:])
    registers = lanes.elements(values)
    call.words.set(service.BOUNDS, BOUNDS.index(lanes.op.modifiers[-1]))
    call.words.set(service.COUNT, len(registers))
    call.words.set(service.SIZE, bits // 8)
    if not loads:
        for n, register in enumerate(registers):
            value = lanes.read(register, f"b{max(bits, 16)}", lanes=True)
            call.put(service.VALUES + n, value if bits == 64 else lanes.b.zext(value, L64))
    call.run()
    if loads:
        call.results(values)


GEOMETRIES, SURFACES, TYPES = "|".join(DIMS), "1d|2d|3d|a1d|a2d", "f32|s32|u32"
ACCESS = ("b", SURFACES, "ca|cg|cs|cv|wb|wt?", "v2|v4?", "b8|b16|b32|b64", "|".join(BOUNDS))
ACTIONS = (
    Action("tex", slots("base|level|grad?", GEOMETRIES, "v4", TYPES, "f32"), _read, 1, varying=yes),
    Action("tex", slots("1d|2d|3d|a1d|a2d", "v4", TYPES, "s32"), _read, 1, varying=yes),
    Action("tld4", slots("|".join(CHANNELS), "2d|a2d", "v4", TYPES, "f32"), _gather, 1, varying=yes),
    Action("txq", slots("|".join(QUERIES), "b32"), _query, 1, varying=yes),
    Action("suq", slots("|".join(QUERIES), "b32"), _query, 1, varying=yes),
    Action("suld", slots(*ACCESS), _access, 1, varying=yes),
    Action("sust", slots(*ACCESS), _access),
)
