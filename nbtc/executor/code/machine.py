"""The code of a kernel's warps: an LLVM module, which calls the functions of `helpers` and is run by one of them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from llvmlite import ir

from nbtc.compiler.builder import I1, I8, I32, vector
from nbtc.compiler.machine_code.split import SplitProgram
from nbtc.errors import ProgramError
from nbtc.executor.code import helpers, scheduler
from nbtc.executor.code.frame import Frame
from nbtc.executor.code.ramp_values import lanes_of
from nbtc.executor.code.scratch import Scratch
from nbtc.executor.code.warp_code import LANES, TURN, WarpCode
from nbtc.executor.control import barriers, calls
from nbtc.executor.emit.fields import load_field
from nbtc.executor.emit.instrument import NOTHING, Instrument
from nbtc.executor.emit.lanes import Lanes, is_vector
from nbtc.executor.emit.specials import VARYING_SPECIALS
from nbtc.executor.emit.values import const
from nbtc.executor.kernel import ramps
from nbtc.executor.kernel.flow import Block, Graph, graph
from nbtc.executor.kernel.link import Linked, const_bytes
from nbtc.executor.kernel.ramps import Ramp, Ramps
from nbtc.executor.kernel.uniform import FunctionFacts, FunctionSetting, facts
from nbtc.executor.rows.uses import waits
from nbtc.executor.text.data import Function, Instruction, Special

if TYPE_CHECKING:
    from nbtc.executor.matrix.product_run import ProductRun

POINTER = I8.as_pointer()
VOID = ir.VoidType()
STEADY = frozenset({"%tid", "%ntid", "%ctaid", "%nctaid", "%warpid"})  # special registers that never change
_NOWHERE = (0, "", None)  # line, mnemonic and source of no instruction


class BlockShape(NamedTuple):
    """What the code takes for granted about thread blocks.

    full: every warp has 32 threads.  flat: blocks extend along x alone.  rows: a warp lies in one row of x.
    """

    full: bool
    flat: bool
    rows: bool

    @classmethod
    def of(cls, block: tuple[int, int, int]) -> BlockShape:
        """The shape of a block's extents."""
        x, y, z = block
        return cls(x * y * z % LANES == 0, y == z == 1, y == z == 1 or x % LANES == 0)

    @property
    def shared_specials(self) -> frozenset[str]:
        """Special registers of a thread's place that all lanes of a warp share."""
        return frozenset({"%tid.y", "%tid.z"}) if self.rows else frozenset()


class Options(NamedTuple):
    """How a program is compiled: the architecture whose arithmetic it has, whether accesses are checked, and whether
    plain products and sums are fused as ptxas does; which instrument observes it (`build.instrument_named`)."""

    arch: str
    checked: bool = True
    contract: bool = True
    instrument: str = ""


class Site(NamedTuple):
    """A place of the program that an error can name."""

    function: str
    line: int
    mnemonic: str
    file: str
    source_line: int


def _of_pairs(i: Instruction) -> bool:
    """Whether an instruction may tell an mbarrier in the other block of a pair."""
    return i.opcode == "cp" and "cta_group::2" in i.modifiers


class Machine:
    """Builds the module of one kernel."""

    turn = TURN

    def __init__(self, linked: Linked, shape: BlockShape, options: Options, instrument: Instrument = NOTHING) -> None:
        self.linked, self.shape, self.options, self.instrument = linked, shape, options, instrument
        self.sites: list[Site] = []
        self._site_of: dict[tuple[str, int], int] = {}  # by function and an instruction's identity
        self.scratch = Scratch()
        self.asks = False  # the host for anything
        self.joins = not instrument.observes  # neighbouring accesses
        self.in_pairs = any(_of_pairs(i) for f in linked.functions for i in f.body or ())
        self.graphs = {f.name: graph(f, waits) for f in linked.functions}
        self.facts: dict[str, FunctionFacts] = {}
        self.frames: dict[str, Frame] = {}
        yielding = False
        for f in linked.functions:  # callees first
            special = shape.shared_specials
            self.facts[f.name] = facts(
                f, self.graphs[f.name], FunctionSetting(special, f.name in linked.recursive, yielding)
            )
            yielding = yielding or self._takes_turns(f.name)
        kernel = linked.kernel.name
        self.lanes_end_early = any(self._may_leave_some(self.graphs[name], self.facts[name]) for name in self.graphs)
        self.suspends = instrument.suspends or any(self._takes_turns(name) for name in self.facts)
        setting = helpers.HelperSetting(options, self.suspends, linked.reserved_bytes)
        self.helpers = helpers.helpers_of(setting, type(instrument))
        self.module = SplitProgram("program", self.helpers.module)
        self.loops = self.suspends or any(g.outer for g in self.graphs.values())
        self._build(kernel)

    @cached_property
    def products(self) -> ProductRun:
        """Products that wait for the next one."""
        from nbtc.executor.matrix.product_run import ProductRun

        return ProductRun()

    @property
    def parts_in_loops(self) -> bool:
        """Whether lanes may go different ways in a loop."""
        return any(self.graphs[name].loop[b] >= 0 for name, facts in self.facts.items() for b in facts.divergent)

    def _takes_turns(self, name: str) -> bool:
        """Whether lanes in a function may wait for others, or for other blocks of their cluster to be there."""
        blocks = self.graphs[name].blocks
        needs = any(waits(i) or i.opcode == "mapa" for b in blocks for i in b.instructions)
        return bool(self.facts[name].spins) or needs

    def _may_leave_some(self, g: Graph, f: FunctionFacts) -> bool:
        """Whether some lanes may end while others of their group go on."""
        return any(
            (
                block.leaves
                and block.instructions
                and block.instructions[-1].guard is not None
                and (b in f.divergent or block.instructions[-1].guard.register.name in f.varies)
            )
            or (block.leaves and b in f.divergent)
            for b, block in enumerate(g.blocks)
        )

    def _build(self, kernel: str) -> None:
        base, bases, dense = 0, {}, set()
        for function in self.linked.functions:
            g, f = self.graphs[function.name], self.facts[function.name]
            bases[function.name] = base
            dense |= {base + b for b in f.divergent}
            dense |= {base + t for b, block in enumerate(g.blocks) if self._parts(block, f, b) for t in block.targets}
            base += g.end
        code = WarpCode(self, self.suspends, sorted(dense))
        for function in self.linked.functions:
            name = function.name
            self.frames[name] = Frame(code, function, self.graphs[name], self.facts[name], bases[name])
        for frame in self.frames.values():
            frame.emit()
        for frame in self.frames.values():
            if not frame.function.entry:
                calls.emit_ways_out(frame)
        for frame in self.frames.values():
            frame.registers.close()
        code.close(bases[kernel])

    def _parts(self, block: Block, f: FunctionFacts, b: int) -> bool:
        """Whether lanes that leave a block may have to wait where it leads."""
        last = block.instructions[-1] if block.instructions else None
        return b in f.divergent or (last is not None and (last.guard is not None or last.opcode in ("brx", "call")))

    # --- for the emitters -------------------------------------------------------------------------------------------
    def site(self, lanes: Lanes) -> int:
        """The number of an instruction's place, the same for all that it does."""
        key = lanes.frame.function.name, id(lanes.instruction)
        if key not in self._site_of:
            self._site_of[key] = self.place(lanes.frame.function, lanes.instruction)
        return self._site_of[key]

    def place(self, function: Function, instruction: Instruction | None) -> int:
        """The number of a new place: an instruction, or a function as a whole."""
        line, mnemonic, source = (
            (instruction.line, instruction.mnemonic, instruction.source) if instruction else _NOWHERE
        )
        self.sites.append(Site(function.name, line, mnemonic, *(source or ("", 0))))
        return len(self.sites) - 1

    def emit_failure(self, lanes: Lanes, kind: int, mask: Any, addresses: Any) -> None:
        """Record an error of the first lane of a mask."""
        v, b = lanes.v, lanes.b
        lane = v.call("llvm.cttz.i32", I32, mask, ir.Constant(I1, 1))
        address = v.int(0) if addresses is None else b.extract_element(lanes.spread(addresses), lane)
        site = ir.Constant(I32, self.site(lanes))
        self.helpers.record(v, lanes.launch, (lanes.block, lanes.warp), (site, ir.Constant(I32, kind), lane, address))

    def refuse(self, instruction: Instruction, why: str) -> NoReturn:
        """Raise for what can't be compiled."""
        raise ProgramError(f"{self.linked.kernel.name}: line {instruction.line}: {instruction.mnemonic}: {why}")

    def thread_index(self, code: WarpCode, axis: str) -> Any:
        """%tid of an axis."""
        v, b = code.v, code.b
        first = code.first
        if self.shape.flat and axis != "x":
            return ir.Constant(I32, 0)
        if self.shape.rows and axis == "x":
            return lanes_of(v, self.first_thread(code), 1)
        x, y = (load_field(v, "launch", code.launch, f"block_{a}") for a in "xy")
        if self.shape.rows:
            row = b.udiv(first, x)
            return b.urem(row, y) if axis == "y" else b.udiv(row, y)
        linear = b.add(v.splat(first, LANES), ir.Constant(vector(I32, LANES), list(range(LANES))))
        xs, ys = v.splat(x, LANES), v.splat(y, LANES)
        if axis == "x":
            return b.urem(linear, xs)
        row = b.udiv(linear, xs)
        return b.urem(row, ys) if axis == "y" else b.udiv(row, ys)

    def first_thread(self, code: WarpCode) -> Any:
        """%tid.x of lane 0 where a warp lies in one row."""
        if self.shape.flat:
            return code.first
        return code.b.urem(code.first, load_field(code.v, "launch", code.launch, "block_x"))

    def ramps_of(self, function: Function, g: Graph, f: FunctionFacts) -> Ramps:
        """Registers that are kept as ramps: none where an instrument sees each access, or lanes come one by one."""
        return ramps.find(g, f, self.special_ramp) if self.joins and function.entry else ramps.NONE

    def special_ramp(self, special: Special) -> Ramp | None:
        """What is known of a special register."""
        if special.name == "%laneid":
            return Ramp(32, 1, zeros=-1 & 0xFFFFFFFF)
        if special.name == "%tid.x" and self.shape.rows:
            return Ramp(32, 1, zeros=LANES - 1)  # warps begin at multiples
        varies = special.name in VARYING_SPECIALS and special.name not in self.shape.shared_specials
        steady = special.name.partition(".")[0] in STEADY
        return Ramp(32, 0) if steady and not varies else None

    def within(self, lanes: Lanes, address: Any, space: str) -> Any:
        """Whether a host address belongs to "const", "param" or, as neither, "global" memory."""
        size = sum(v.bytes + v.align for v in self.linked.kernel.prototype.arguments)
        spaces = {"const": ("variables", const_bytes(self.linked.module)), "param": ("parameters", size)}

        def inside(name: str) -> Any:
            field, length = spaces[name]
            base = lanes.get("launch", field)
            base = lanes.spread(base) if is_vector(address) else base
            offset = lanes.b.sub(address, base)
            return lanes.b.icmp_unsigned("<", offset, const(lanes.v, offset, length))

        if space in spaces:
            return inside(space)
        return lanes.b.not_(lanes.b.or_(inside("const"), inside("param")))

    def end_lanes(self, frame: Frame, mask: Any, last: bool) -> None:
        """Lanes of a group end the kernel; if nothing follows, the warp goes on with other groups or ends."""
        b, v, code = frame.b, frame.v, frame.code
        if self.suspends:
            scheduler.lanes_end(v, code, mask)
            self.instrument.ends(frame, mask)
            b.call(self.helpers.function("threads_ended", VOID, (POINTER,), barriers.threads_ended), [code.block])
        if last:
            code.finish(frame.alone)
        else:
            b.store(b.and_(b.load(code.mask), b.not_(mask)), code.mask)

    def call_host(self, lanes: Lanes, what: int, words: tuple[Any, ...]) -> Any:
        """Call the launch's callback with words of each lane."""
        self.asks = True
        v, b = lanes.v, lanes.b
        buffer = lanes.field("warp", "scratch")
        for i, word in enumerate(words):
            v.store(lanes.spread(word), buffer, 8, i * 8 * LANES)
        kind = ir.FunctionType(I32, [POINTER, POINTER, POINTER, I32, I32, POINTER])
        function = b.inttoptr(lanes.get("launch", "callback"), kind.as_pointer())
        return b.call(function, [lanes.launch, lanes.block, lanes.warp, ir.Constant(I32, what), lanes.active, buffer])
