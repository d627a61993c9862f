"""Random PTX programs of warpgroups' products: descriptors of any strides and swizzles, operands and results in flight.

What an executor does when a product is issued, committed or waited for must not show: results depend on the order of
the steps alone, since no step reads or replaces what a product in flight uses.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbtc import ptx
from nbtc.fragments.smem_descriptors import SWIZZLES, Descriptor
from nbtc.instructions import Instruction, instructions
from nbtc.isa.spec import Operand

GROUP = 128  # threads of a warpgroup
IMAGE = 40 << 10  # bytes of shared memory: what is within reach of most strides, and what a block may declare
PATTERN = 1024  # bytes: where the pattern of every swizzle starts over
SETS, WORDS = 3, 4  # sets of registers that hold A, and registers of each
MOST_RESULTS = 144  # registers of D: with two warpgroups a thread has 255
COLUMNS = (8, 16, 24, 32, 48, 64, 128)  # of the forms: compiling wider ones takes long
STEPS = (16, 64, 128, 256, 512, 1024)  # bytes of LBO and SBO
# an address of shared memory as descriptors have it: above, a GPU's addresses have the block's rank in its cluster
FIELD = "shr.u32 %s, %s, 4; and.b32 %s, %s, 0x3FFF;"
NEVER = 99  # of a loop's rounds


def held(form: Instruction) -> tuple[Operand, Operand, Operand]:
    """A, B and D of a product."""
    if form.a is None or form.b is None or form.d is None:
        raise LookupError(f"{form.mnemonic} lacks an operand")
    return form.a, form.b, form.d


def result(form: Instruction) -> Operand:
    """D of a product."""
    return held(form)[2]


class Product(NamedTuple):
    """A `wgmma.mma_async`.

    d: number of the accumulator.  a: the number of a set of registers, or the tile's descriptor, as b is, which counts
    from the image.  not_in: the round of the loop in which D is not added.  immediates: selector, signs and majors.
    """

    form: Instruction
    d: int
    a: int | Descriptor
    b: Descriptor
    not_in: int
    selector: int
    scales: tuple[int, ...]
    trans: tuple[int, ...]

    @property
    def keywords(self) -> dict[str, int]:
        """The immediates as arguments of `nbtc.ptx.wgmma`."""
        row = self.form.row
        held = [name for name in row.trans if name != "a" or isinstance(self.a, Descriptor)]
        found = {f"scale_{n}": x for n, x in zip(row.scales, self.scales, strict=True)}
        found |= {f"trans_{n}": x for n, x in zip(held, self.trans, strict=True)}
        return found | ({"selector": self.selector} if row.sparse else {})

    def lines(self) -> list[str]:
        """Its PTX; `from` is the image's address in units of descriptors."""
        row, found = self.form.row, [f"add.u64 %db, %from, {self.b.encode():#x};"]
        a = "{" + ", ".join(f"%a{self.a}_{n}" for n in range(WORDS)) + "}"
        if isinstance(self.a, Descriptor):
            found.append(f"add.u64 %da, %from, {self.a.encode():#x};")
            a = "%da"
        d = "{" + ", ".join(f"%d{self.d}_{n}" for n in range(result(self.form).registers)) + "}"
        meta = f"%meta, {self.selector}, " if row.sparse else ""
        more = "".join(f", {x}" for x in (*self.scales, *self.trans))
        return [*found, f"setp.ne.u32 %more, %round, {self.not_in};",
                f"{self.form.mnemonic} {d}, {a}, %db, {meta}%more{more};"]  # fmt: skip


class Step(NamedTuple):
    """What all warps of a warpgroup do.

    kind: "product"; "commit"; "wait" for all but `number` groups; "show" an accumulator; "fill" a set of A's registers
    with its next words; "delay" the warp of that number.
    """

    kind: str
    number: int = 0
    product: Product | None = None


class WarpgroupProgram(NamedTuple):
    """PTX with one kernel `k`, and what it does.

    In each of `rounds` every warpgroup (or, if `shared`, the block) gets a new image of `image` bytes and takes the
    steps.  The kernel takes pointers to the images (block, warpgroup, round, bytes), to words of A (block, thread,
    round, those of each "fill"), of metadata and of D at first (block, thread, ...), and of what is shown.
    """

    text: str
    blocks: int
    groups: int
    shared: bool
    rounds: int
    image: int
    accumulators: tuple[Instruction, ...]
    steps: tuple[Step, ...]

    @property
    def threads(self) -> int:
        """Threads of a block."""
        return GROUP * self.groups

    @property
    def images(self) -> tuple[int, ...]:
        """The shape of the images."""
        return self.blocks, 1 if self.shared else self.groups, self.rounds, self.image

    @property
    def filled(self) -> tuple[int, ...]:
        """The shape of A's words."""
        return self.blocks, self.threads, self.rounds, sum(s.kind == "fill" for s in self.steps), WORDS

    @property
    def first(self) -> tuple[int, ...]:
        """The shape of the words of D at first."""
        return self.blocks, self.threads, sum(result(d).registers for d in self.accumulators)

    @property
    def shown(self) -> tuple[int, ...]:
        """The shape of what is shown."""
        shows = (result(self.accumulators[s.number]).registers for s in self.steps if s.kind == "show")
        return self.blocks, self.threads, self.rounds, sum(shows)


def results(program: WarpgroupProgram, images: Any, filled: Any, meta: Any, first: Any) -> NDArray[np.uint32]:
    """What a program shows, by `nbtc.ptx.wgmma`: arrays as the program takes them."""
    batch = program.blocks, program.groups
    split = np.cumsum([result(d).registers for d in program.accumulators])[:-1]
    d = [x.copy() for x in np.split(first.reshape(*batch, GROUP, -1), split, axis=-1)]
    words = filled.reshape(*batch, GROUP, *program.filled[2:])
    notes, shown, held = meta.reshape(*batch, GROUP), [], dict[int, Any]()
    for turn in range(program.rounds):
        smem, fills = np.ascontiguousarray(images[:, :, turn]), 0
        for step in program.steps:
            if step.kind == "fill":
                held[step.number], fills = np.ascontiguousarray(words[..., turn, fills, :]), fills + 1
            elif step.kind == "show":
                shown.append(d[step.number])
            elif step.product is not None:
                x = step.product
                more = {"meta": notes} if x.form.row.sparse else {}
                a = held[x.a] if isinstance(x.a, int) else x.a.encode()
                d[x.d] = ptx.wgmma(x.form.mnemonic, d[x.d], a, x.b.encode(), smem, scale_d=int(turn != x.not_in),
                                   threads=1, **x.keywords, **more)  # fmt: skip
    return np.concatenate(shown, axis=-1).reshape(program.shown)


class _Writer:
    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.groups = int(self.one(1, 1, 2))
        self.shared = self.groups > 1 and self.rng.random() < 0.4
        self.image = IMAGE if self.shared else IMAGE // self.groups
        self.rounds = int(self.rng.integers(1, 4))
        self.accumulators: list[Instruction] = []
        self.steps: list[Step] = []
        self.groups_in_flight: list[list[Product]] = []
        self.tiles: list[Descriptor] = []
        known: dict[tuple[str, str], list[Instruction]] = {}  # by their formats, of which some have many forms
        for family in ("wgmma.mma_async", "wgmma.mma_async.sp"):
            for form in instructions(family=family, arch="sm_90"):
                if form.executable and form.shape and form.shape[1] in COLUMNS:
                    a, b, _ = held(form)
                    known.setdefault((a.format.name, b.format.name), []).append(form)
        kinds = list(known.values())
        some = [kinds[n] for n in self.rng.integers(len(kinds), size=int(self.one(1, 1, 2)))]
        self.forms = [forms[self.rng.integers(len(forms))] for forms in some for _ in range(2)]

    def one(self, *of: Any) -> Any:
        """One of these."""
        return of[self.rng.integers(len(of))]

    # --- tiles ------------------------------------------------------------------------------------------------------
    def tile(self, form: Instruction, operand: str, major: str) -> Descriptor:
        """A descriptor within the image, one of those before if it is: products then share tiles."""
        if self.rng.random() < 0.3:
            for found in self.tiles:
                if self.fits(found, form, operand, major):
                    return found
        while True:
            swizzle, base = self.one("none", *SWIZZLES), self.one(0, 0, 0, 1, 5)
            start = 16 * int(self.rng.integers(0, 96))
            if swizzle != "none" and self.rng.random() < 0.5:
                start &= -PATTERN
            found = Descriptor(start, self.one(*STEPS), self.one(*STEPS), base, swizzle)
            if self.fits(found, form, operand, major):
                self.tiles.append(found)
                return found

    def fits(self, tile: Descriptor, form: Instruction, operand: str, major: str) -> bool:
        """Whether all elements are in the image; dense ones, of which sparse A has half."""
        x = held(form)["ab".index(operand)]
        rows, k = (x.rows, x.cols) if operand == "a" else (x.cols, x.rows)
        mn, along = np.arange(rows)[:, None], np.arange(k)[None, :]
        return int(tile.address(mn, along, x.format, major).max()) + 16 <= self.image

    # --- steps ------------------------------------------------------------------------------------------------------
    def in_flight(self) -> list[Product]:
        """Products that nothing has waited for, those of the group that is being made among them."""
        return [p for group in self.groups_in_flight for p in group]

    def accumulator(self, form: Instruction) -> int | None:
        """D of a product: in flight only products of one form add to it; None where there is no room."""
        busy = {p.d for p in self.in_flight() if p.form is not form}
        same = [n for n, x in enumerate(self.accumulators) if x is form and n not in busy]
        alike = [n for n, x in enumerate(self.accumulators) if x.d == form.d and n not in busy]
        size = sum(result(x).registers for x in self.accumulators)
        if size + result(form).registers <= MOST_RESULTS and (not alike or self.rng.random() < 0.35):
            self.accumulators.append(form)
            return len(self.accumulators) - 1
        found = same if same and self.rng.random() < 0.8 else alike
        return int(self.one(*found)) if found else None

    def product(self) -> Product | None:
        """The next product, if a register is free for it."""
        form = self.one(*self.forms)
        d = self.accumulator(form)
        if d is None:
            return None
        row, in_registers = form.row, self.rng.random() < 0.5
        held = [n for n in row.trans if n != "a" or not in_registers]
        trans = {n: int(self.rng.integers(2)) for n in held}
        major = {n: "mn" if trans.get(n) else "k" for n in "ab"}
        a = int(self.rng.integers(SETS)) if in_registers else self.tile(form, "a", major["a"])
        return Product(
            form, d, a, self.tile(form, "b", major["b"]), int(self.one(NEVER, NEVER, 0, 1)),
            int(self.one(*(row.selectors or (0,)))), tuple(int(self.one(1, 1, -1)) for _ in row.scales),
            tuple(trans.values()),
        )  # fmt: skip

    def group(self) -> None:
        """Products that are committed together, or none; registers of A that nothing in flight uses may be filled."""
        before = {p.a for p in self.in_flight()}
        group: list[Product] = []
        self.groups_in_flight.append(group)
        for _ in range(self.rng.integers(0 if self.rng.random() < 0.1 else 1, 4)):
            found = self.product()
            if found is not None:
                group.append(found)
        known = {s.number for s in self.steps if s.kind == "fill"}
        for number in sorted({p.a for p in group if isinstance(p.a, int)} - before):
            if number not in known or self.rng.random() < 0.6:
                self.steps.append(Step("fill", number))
        self.steps += [*(Step("product", 0, p) for p in group), Step("commit")]

    def wait(self, most: int) -> None:
        """Wait for all groups but the last `most`."""
        self.steps.append(Step("wait", most))
        del self.groups_in_flight[: max(0, len(self.groups_in_flight) - most)]

    def program(self) -> WarpgroupProgram:
        for _ in range(self.rng.integers(2, 6)):
            if self.rng.random() < 0.2:
                self.steps.append(Step("delay", int(self.rng.integers(4))))
            self.group()
            if self.rng.random() < 0.6:
                self.wait(int(self.rng.integers(0, len(self.groups_in_flight) + 1)))
            done = sorted(set(range(len(self.accumulators))) - {p.d for p in self.in_flight()})
            if done and self.rng.random() < 0.3:
                self.steps.append(Step("show", int(self.one(*done))))
        self.wait(0)
        self.steps += [Step("show", n) for n in range(len(self.accumulators))]
        blocks = int(self.rng.integers(1, 4))
        made = WarpgroupProgram(
            "", blocks, self.groups, self.shared, self.rounds, self.image, tuple(self.accumulators), tuple(self.steps)
        )
        is_cluster = blocks == 2 and self.rng.integers(3) == 0  # which changes nothing
        return made._replace(text=_text(made, " .reqnctapercluster 2" if is_cluster else ""))


def _head(program: WarpgroupProgram, cluster: str) -> list[str]:
    """Declarations, and pointers to a thread's parts of the arrays."""
    return [
        ".version 8.7", ".target sm_90a", ".address_size 64",
        f".visible .entry k(.param .u64 images, .param .u64 filled, .param .u64 meta, .param .u64 first, "
        f".param .u64 shown){cluster}", "{",
        f".shared .align {PATTERN} .b8 memory[{IMAGE}];",
        ".reg .b64 %pi, %pa, %pm, %pd, %out, %x, %from, %da, %db; .reg .pred %p, %more;",
        ".reg .b32 %t, %mine, %group, %warp, %lane, %block, %round, %bar, %buffer, %i, %s, %meta, %w<4>;",
        f".reg .b32 {', '.join(f'%a{n}_<{WORDS}>' for n in range(SETS))};",
        "ld.param.u64 %pi, [images]; ld.param.u64 %pa, [filled]; ld.param.u64 %pm, [meta];",
        "ld.param.u64 %pd, [first]; ld.param.u64 %out, [shown];",
        "mov.u32 %t, %tid.x; mov.u32 %block, %ctaid.x; shr.u32 %group, %t, 7; add.u32 %bar, %group, 1;",
        "shr.u32 %warp, %t, 5; and.b32 %warp, %warp, 3;",
        f"mad.lo.u32 %lane, %block, {program.threads}, %t; mad.wide.u32 %pm, %lane, 4, %pm;",
        f"mad.wide.u32 %pa, %lane, {4 * int(np.prod(program.filled[2:]))}, %pa;",
        f"mad.wide.u32 %pd, %lane, {4 * program.first[-1]}, %pd; ld.global.b32 %meta, [%pm];",
        f"mad.wide.u32 %out, %lane, {4 * program.shown[-1] * program.rounds}, %out;",
    ]  # fmt: skip


def _first_results(program: WarpgroupProgram) -> list[str]:
    """The registers of D."""
    found, at = [], 0
    for n, form in enumerate(program.accumulators):
        count, kind = result(form).registers, "f32" if result(form).format.name == "f32" else "b32"
        found.append(f".reg .{kind} %d{n}_<{count}>;")
        found += [f"ld.global.{kind} %d{n}_{i}, [%pd+{4 * (at + i)}];" for i in range(count)]
        at += count
    return found


def _next_image(program: WarpgroupProgram) -> list[str]:
    """The begin of a round: the image is copied by those who share it."""
    threads = program.threads if program.shared else GROUP
    meet = "bar.sync 0;" if program.shared else f"bar.sync %bar, {GROUP};"
    return [
        "mov.u32 %mine, %t; mov.u32 %s, %block; mov.u32 %buffer, memory;" if program.shared else
        f"and.b32 %mine, %t, {GROUP - 1}; mad.lo.u32 %s, %block, {program.groups}, %group; mov.u32 %buffer, memory; "
        f"mad.lo.u32 %buffer, %group, {program.image}, %buffer;",
        f"mul.wide.u32 %x, %s, {program.image * program.rounds}; add.u64 %pi, %pi, %x;",
        f"mov.u32 %s, %buffer; {FIELD} cvt.u64.u32 %from, %s; mov.u32 %round, 0;",
        "ROUND:",
        f"{meet} mov.u32 %i, %mine;",
        "COPY: shl.b32 %s, %i, 4; cvt.u64.u32 %x, %s; add.u64 %x, %x, %pi; add.u32 %s, %s, %buffer;",
        "ld.global.v4.b32 {%w0, %w1, %w2, %w3}, [%x]; st.shared.v4.b32 [%s], {%w0, %w1, %w2, %w3};",
        f"add.u32 %i, %i, {threads}; setp.lt.u32 %p, %i, {program.image // 16}; @%p bra COPY;",
        f"fence.proxy.async; {meet}",
    ]  # fmt: skip


def _steps(program: WarpgroupProgram) -> list[str]:
    """All steps, and pointers moved on to the next round."""
    body: list[str] = []
    fills = shows = 0
    for n, step in enumerate(program.steps):
        if step.kind == "fill":
            words = ", ".join(f"%a{step.number}_{i}" for i in range(WORDS))
            body.append(f"ld.global.v4.b32 {{{words}}}, [%pa+{4 * WORDS * fills}];")
            fills += 1
        elif step.kind == "show":
            count = result(program.accumulators[step.number]).registers
            body += [f"st.global.b32 [%out+{4 * (shows + i)}], %d{step.number}_{i};" for i in range(count)]
            shows += count
        elif step.product is not None:
            if program.steps[n - 1].kind != "product":
                body.append("wgmma.fence.sync.aligned;")
            body += step.product.lines()
        else:
            body.append({
                "commit": "wgmma.commit_group.sync.aligned;",
                "wait": f"wgmma.wait_group.sync.aligned {step.number};",
                "delay": f"setp.eq.u32 %p, %warp, {step.number}; @%p nanosleep.u32 300;",
            }[step.kind])  # fmt: skip
    after = f"add.u64 %pi, %pi, {program.image}; add.u64 %pa, %pa, {4 * WORDS * fills};"
    return [*body, f"{after} add.u64 %out, %out, {4 * shows};"]


def _text(program: WarpgroupProgram, cluster: str) -> str:
    body = [*_head(program, cluster), *_first_results(program), *_next_image(program), *_steps(program)]
    more = f"add.u32 %round, %round, 1; setp.lt.u32 %p, %round, {program.rounds}; @%p bra ROUND;"
    return "\n".join((*body, more, "ret;", "}", ""))


def random_warpgroup_program(seed: int) -> WarpgroupProgram:
    """A program for sm_90a, the same for the same seed."""
    return _Writer(seed).program()
