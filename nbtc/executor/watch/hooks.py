"""Calls to the checked mode in a program's code."""

from __future__ import annotations

from functools import reduce
from typing import Any

from llvmlite import ir

from nbtc.compiler.builder import I32, I64, VectorBuilder, vector
from nbtc.executor.emit import access_kinds as kinds
from nbtc.executor.emit.action import FormRow
from nbtc.executor.emit.fields import load_field
from nbtc.executor.emit.form import Op
from nbtc.executor.emit.instrument import Instrument, Touch
from nbtc.executor.emit.lanes import Lanes, is_vector
from nbtc.executor.emit.slots import WATCH
from nbtc.executor.memory.resolve import POINTER
from nbtc.executor.text.data import Function, Immediate, Instruction
from nbtc.executor.watch import events, mbarriers, products, registers, service, unused, words
from nbtc.executor.watch.accesses import forget, touch_lanes, touch_line
from nbtc.executor.watch.definedness import ALL, NONE, Definedness, is_deferred, truth

LANES = 32
MASKED = ("bar", "shfl", "vote", "match", "redux", "elect")  # with a mask of lanes as last operand
VOID = ir.VoidType()
SPACES = {"global": words.GLOBAL, "shared": words.SHARED, "generic": words.GENERIC}


def _slot(kernel: Any) -> int:
    """Where a kernel stands in the table of services."""
    return WATCH + service.KERNELS.index(kernel)


def _word(v: VectorBuilder, x: Any) -> Any:
    if isinstance(x, int):
        return v.int(x)
    if isinstance(x.type, ir.PointerType):
        return v.b.ptrtoint(x, I64)
    return x if x.type == I64 else v.b.zext(x, I64)


class CheckedMode(Instrument):
    """The checked mode."""

    observes = True
    suspends = True

    def __init__(self) -> None:
        self.known: dict[str, registers.Sets] = {}
        self.definedness: dict[Any, Definedness] = {}  # by frame
        self.users: dict[int, unused.Predicates] = {}  # of a load's `id`
        self.services: set[int] = {_slot(events.event)}  # which every block's beginning calls

    def _call(self, v: VectorBuilder, services: Any, kernel: Any, arguments: list[Any]) -> None:
        """Call one of the checked mode's kernels with 64-bit words."""
        b, slot = v.b, _slot(kernel)
        self.services.add(slot)
        address = v.load(services, I64, 8, 8 * slot)
        kind = ir.FunctionType(VOID, [I64] * len(arguments))
        b.call(b.inttoptr(address, kind.as_pointer()), [_word(v, x) for x in arguments])

    def prepared(self, function: Function) -> Function:
        """With what tells which lanes use what they load."""
        changed, users = unused.prepared(function)
        self.users |= users
        return changed

    def _users(self, lanes: Lanes) -> Any:
        """The active lanes that use what a load brings."""
        b, found = lanes.b, NONE
        if id(lanes.instruction) not in self.users:
            return lanes.active
        for predicate, exchanged in self.users[id(lanes.instruction)]:
            mask = truth(lanes, predicate)
            if exchanged:
                mask = b.select(b.icmp_unsigned("!=", mask, NONE), ALL, NONE)
            found = b.or_(found, mask)
        return b.and_(found, lanes.active)

    def _event(self, lanes: Lanes, what: int, a: Any = 0, b: Any = 0, site: int = 0) -> None:
        """Tell of an event."""
        self._call(lanes.v, lanes.services, events.event, [what, lanes.block, lanes.warp, a, b, site])

    def access(self, lanes: Lanes, touch: Touch, addresses: Any, site: int, values: Any = None) -> None:
        """Look at every lane's access; lanes that write one value to one address count as one."""
        if touch.space not in SPACES or touch.kind == kinds.NONE:
            return
        kind = touch.kind
        if kind == kinds.READ and first_guess(lanes):
            kind = kinds.STRONG_READ
        mask = self._users(lanes)
        if (touch.parameter and kind == kinds.READ) or kind == kinds.COPY_SOURCE:
            with lanes.b.if_then(self._counts(lanes, mask, touch.parameter), likely=not touch.parameter):
                self._look(lanes, touch._replace(kind=kind), addresses, mask, site, values)
        else:
            self._look(lanes, touch._replace(kind=kind), addresses, mask, site, values)

    def _counts(self, lanes: Lanes, mask: Any, parameter: bool) -> Any:
        """Whether an access that others cannot race with, of a parameter or of no lane, does anything but be one more.

        No launch may touch a parameter's memory but by loading it.  As any other access, such a load begins an epoch
        if the warp's lanes have waited for each other, and is counted once there is a suspicion.
        """
        v, b = lanes.v, lanes.b
        state = b.inttoptr(lanes.get("launch", "watch"), POINTER)
        counted = v.load(state, I64, 8, words.SUSPECTED)
        rest = v.load(registers.record(lanes), I64, 8, words.WAITED) if parameter else b.zext(mask, I64)
        return b.icmp_unsigned("!=", b.or_(counted, rest), v.int(0))

    def _look(self, lanes: Lanes, touch: Touch, addresses: Any, mask: Any, site: int, values: Any) -> None:
        """Compare an access with earlier ones, and remember it."""
        v, b, space, kind = lanes.v, lanes.b, SPACES[touch.space], touch.kind
        if not is_vector(addresses) and values is not None and not any(is_vector(x) for x in values):
            mask = b.and_(mask, b.sub(ir.Constant(I32, 0), mask))
        state = b.inttoptr(lanes.get("launch", "watch"), POINTER)
        buffer = v.at(state, words.ADDRESSES)
        v.store(lanes.spread(addresses), buffer, words.WORD)
        given: Any = 0
        if values is not None:
            if touch.bytes > words.MOST_BYTES:
                lanes.refuse(f"stores {touch.bytes} bytes a lane, checked launches at most {words.MOST_BYTES}")
            given = v.at(state, words.VALUES)
            for n, x in enumerate(values):
                v.store(lanes.spread(x), given, words.WORD, n * LANES * touch.element)
        defers = kind == kinds.READ and touch.space != "global" and is_deferred(lanes.instruction)
        what = kind | (touch.order | kinds.DEFERS * defers) << 8 | space << 16 | touch.element << 24
        site = min(site, words.MOST_SITES - 1)
        arguments = [lanes.block, lanes.warp, buffer, mask, what, touch.bytes, site, given]
        self._call(v, lanes.services, touch_lanes, arguments)
        if defers:
            self._unwritten(lanes, touch)
        elif kind == kinds.WRITE:
            self._keep_unwritten(lanes, touch, buffer)

    def site(self, lanes: Lanes) -> int:
        """It is remembered with every access."""
        return _site(lanes)

    def operates(self, lanes: Lanes, groups: int) -> None:
        """It gets an epoch of its own."""
        self._event(lanes, events.OPERATE, lanes.v.int(groups))

    def line(self, lanes: Lanes, lane: Any, address: Any, size: Any, kind: int) -> None:
        """Look at its cells."""
        arguments = [lanes.block, lanes.warp, lane, address, size, kind, _site(lanes)]
        self._call(lanes.v, lanes.services, touch_line, arguments)

    def mbarrier(self, lanes: Lanes, what: int, found: Any, a: Any = None, b: Any = None) -> None:
        """Look whether it is used rightly, and who comes to know what."""
        places = self._stored(lanes, [found.words])
        if what == kinds.UPDATED and lanes.op.opcode == "mbarrier" and lanes.op.has("relaxed"):
            what = kinds.RELAXED
        elif what == kinds.UPDATED and lanes.op.has("bulk"):
            what = kinds.BROUGHT
        words_a, words_b = (0 if x is None else x if isinstance(x, int) else self._stored(lanes, x) for x in (a, b))
        arguments = [what, lanes.block, lanes.warp, places, found.good, words_a, words_b, _site(lanes)]
        self._call(lanes.v, lanes.services, mbarriers.mbarriers, arguments)

    def _stored(self, lanes: Lanes, values: list[Any]) -> Any:
        """Vectors of a word a lane, in memory one after the other."""
        row = vector(I64, LANES)
        rows = lanes.frame.code.scratch(ir.ArrayType(row, len(values)))
        for n, x in enumerate(values):
            wide = x if x.type == row else lanes.b.zext(x, row)
            lanes.b.store(wide, lanes.b.gep(rows, [ir.Constant(I32, 0), ir.Constant(I32, n)]))
        return rows

    def product(self, lanes: Lanes, a: Any, b: Any, columns: int, flags: int) -> None:
        """Look at the operands' rows, and remember which registers it uses."""
        bits = registers.unfenced(lanes, self._sets(lanes), self._complaint(lanes, words.PRODUCT_UNFENCED))
        arguments = [lanes.block, lanes.warp, a, b, columns, flags, bits, _site(lanes)]
        self._call(lanes.v, lanes.services, products.product, arguments)

    def begins(self, v: VectorBuilder, block: Any, reserved: int) -> None:
        """Its words are set."""
        launch = v.b.inttoptr(load_field(v, "block", block, "launch"), POINTER)
        services = v.b.inttoptr(load_field(v, "launch", launch, "services"), POINTER)
        self._call(v, services, events.event, [events.BEGIN, block, 0, reserved, 0, 0])

    def arrives(self, lanes: Lanes, barrier: Any, new: Any, count: Any) -> None:
        """Look whether it is used rightly, and begin a new epoch."""
        aligned = int(lanes.op.opcode == "bar" or lanes.op.has("aligned"))
        site = lanes.machine.site(lanes)
        arguments = [lanes.block, lanes.warp, barrier, new, count, site, aligned]
        self._call(lanes.v, lanes.services, events.arrive, arguments)

    def leaves(self, lanes: Lanes, barrier: Any, released: Any) -> None:
        """What its warps did before is known."""
        self._event(lanes, events.LEAVE, barrier, released)

    def ends(self, frame: Any, mask: Any) -> None:
        """Look whether others wait for these threads."""
        last = frame.current.instructions[-1] if frame.current.instructions else frame.function.body[-1]
        lanes = Lanes(frame, last, _op(last), mask, False)
        self._event(lanes, events.END, 0, 0, lanes.machine.site(lanes))

    def _sets(self, lanes: Lanes) -> registers.Sets:
        function = lanes.frame.function
        found = self.known.get(function.name)
        if found is None:
            found = self.known[function.name] = registers.sets_of(function)
        return found

    def _unwritten(self, lanes: Lanes, touch: Touch) -> None:
        """Note which registers of a load came of unwritten words."""
        definedness, record = self._definedness(lanes), registers.record(lanes)
        if lanes.op.opcode == "ldmatrix":
            definedness.rows(lanes, record)
        else:
            definedness.loaded(lanes, record, touch.element)

    def _keep_unwritten(self, lanes: Lanes, touch: Touch, addresses: Any) -> None:
        """What a store writes that comes of unwritten words by way of a product is unwritten, too."""
        kept, b, none = self._definedness(lanes).kept(lanes), lanes.b, ir.Constant(I32, 0)
        if not kept:
            return
        some = reduce(b.or_, (mask for _, mask in kept))
        with b.if_then(b.icmp_unsigned("!=", some, none), likely=False):
            for n, mask in kept:
                arguments = [lanes.block, addresses, mask, n * touch.element, touch.element]
                self._call(lanes.v, lanes.services, forget, arguments)

    def _definedness(self, lanes: Lanes) -> Definedness:
        found = self.definedness.get(lanes.frame)
        if found is None:
            found = self.definedness[lanes.frame] = Definedness(lanes.frame.function)
        return found

    def _complaint(self, lanes: Lanes, hazard: int) -> Any:
        """Code that reports a hazard of some sets, with a product they are of."""
        sets = self._sets(lanes)

        def complain(bits: Any) -> None:
            other: Any = lanes.v.int(0)
            for n, product in enumerate(sets.products):
                place = lanes.v.int(lanes.machine.place(lanes.frame.function, product))
                is_it = lanes.b.icmp_unsigned("!=", lanes.b.and_(bits, lanes.v.int(1 << n)), lanes.v.int(0))
                other = lanes.b.select(is_it, place, other)
            self._event(lanes, events.REGISTERS, hazard, other, _site(lanes))

        return complain

    def instruction(self, lanes: Lanes, row: FormRow) -> None:
        """Fences, groups, barriers of warps and clusters, by their names."""
        op = lanes.op
        name = ".".join((op.opcode, *op.modifiers))
        unwritten = self._definedness(lanes).carry(lanes, row)
        if unwritten is not None:
            with lanes.b.if_then(lanes.b.icmp_unsigned("!=", unwritten, ir.Constant(I32, 0)), likely=False):
                self._event(lanes, events.USED, unwritten, 0, _site(lanes))
        sets = self._sets(lanes)
        if sets.products and not registers.is_product(lanes.instruction):
            registers.touched(lanes, sets, self._complaint(lanes, words.PRODUCT_PENDING))
        if op.has("sync") and op.opcode not in ("bar", "barrier"):
            lanes.v.store(lanes.v.int(1), registers.record(lanes), 8, words.WAITED)
        if op.has("sync") and op.opcode in MASKED and (op.opcode != "bar" or op.has("warp")):
            self._named(lanes)
        if name.startswith("wgmma.fence"):
            self._event(lanes, events.PRODUCT_FENCE)
        elif op.opcode in ("fence", "membar"):
            about = events.FENCE_MBARRIERS if op.has("mbarrier_init") else events.FENCE
            self._event(lanes, events.FENCE_PROXY if op.has("proxy") else about)
        elif name.startswith("barrier.cluster.arrive"):
            self._event(lanes, events.CLUSTER_ARRIVE, lanes.active, int(op.has("aligned")), _site(lanes))
        elif name.startswith(("cp.async.commit_group", "cp.async.bulk.commit_group", "wgmma.commit_group")):
            self._event(lanes, events.COMMIT, _kind(name))
        elif name.startswith("cp.async.wait_all"):
            self._event(lanes, events.WAIT, kinds.COPIES, lanes.v.int(events.ALL_GROUPS))
        elif ".wait_group" in name:
            count = lanes.operands[0]
            most = int(count.value) if isinstance(count, Immediate) else 0
            self._event(lanes, events.WAIT_READ if op.has("read") else events.WAIT, _kind(name), most)

    def _named(self, lanes: Lanes) -> None:
        """Look whether the lanes that are here are among those that their masks name."""
        b, mask = lanes.b, lanes.operands[-1]
        if isinstance(mask, Immediate) and mask.value & 0xFFFFFFFF == 0xFFFFFFFF:
            return
        named = lanes.read(mask, "b32")
        if is_vector(named):
            own = ir.Constant(vector(I32, LANES), [1 << n for n in range(LANES)])
            none = ir.Constant(vector(I32, LANES), None)
            named = lanes.mask(b.icmp_unsigned("!=", b.and_(named, own), none))
        others = b.and_(lanes.active, b.not_(named))
        with b.if_then(b.icmp_unsigned("!=", others, ir.Constant(I32, 0)), likely=False):
            self._event(lanes, events.REGISTERS, words.MASK_WITHOUT, 0, _site(lanes))

    def done(self, lanes: Lanes, row: FormRow) -> None:
        """Barriers of warps and clusters, once they are passed."""
        op = lanes.op
        if op.opcode == "bar" and op.has("warp"):
            self._event(lanes, events.MEET)
        elif op.opcode == "barrier" and op.has("cluster") and op.has("wait"):
            self._event(lanes, events.CLUSTER_LEAVE, lanes.active)


def first_guess(lanes: Lanes) -> bool:
    """Whether a load is of the word that a compare-and-swap of the same function names, or of what it compares with.

    Loops that change a word by compare-and-swap begin with a plain load of it; if that is out of date, they try again.
    """
    if lanes.op.opcode != "ld":
        return False
    target, address, *_ = lanes.operands
    swaps = (i for i in lanes.frame.function.body or () if i.opcode == "atom" and "cas" in i.modifiers)
    return any(i.operands[1] == address or i.operands[2] == target for i in swaps)


def _site(lanes: Lanes) -> int:
    return min(lanes.machine.site(lanes), words.MOST_SITES - 1)


def _op(instruction: Instruction) -> Op:
    """The split name of an instruction."""
    return Op(instruction.opcode, instruction.modifiers)


def _kind(name: str) -> int:
    """Which kind of groups a name is about."""
    return kinds.PRODUCTS if name.startswith("wgmma") else kinds.BULKS if ".bulk." in name else kinds.COPIES
