"""The PTX of a program of producers and consumers."""

from __future__ import annotations

from nbtc.testing.copies.lines import BULK
from nbtc.testing.copies.tensors import Tensor
from nbtc.testing.pipelines.model import PATTERN, ROWS, STEP, Pipeline
from nbtc.testing.warpgroup_programs import FIELD, GROUP, result

WARPS = 4  # of a warpgroup: each gives a stage back
TURNS = 1 << 16  # that a thread waits for an mbarrier before it ends the program
REDUCTIONS = {"f32": "add.f32", "s32": "add.s32", "f16": "add.noftz.f16"}
KEPT, GIVEN = 40, 232  # registers of a producer's and a consumer's threads, of 168 that each has at first: CUTLASS's


class Text:
    """A program's PTX."""

    def __init__(self, program: Pipeline) -> None:
        self.p, self.labels = program, 0
        d = result(program.form)
        self.kind, self.count = "f32" if d.format.name == "f32" else "b32", d.registers

    def wait(self, register: str, parity: str) -> list[str]:
        """Until the phase of a parity of the mbarrier at an address is over."""
        self.labels += 1
        name = f"W{self.labels}"
        test = f"mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %q, [{register}], {parity};"
        return [f"mov.u32 %i, 0; {name}: {test} @%q bra {name}_DONE;",
                f"add.u32 %i, %i, 1; setp.lt.u32 %q, %i, {TURNS}; @%q bra {name}; trap;", f"{name}_DONE:"]  # fmt: skip

    def whole(self) -> str:
        """All of it."""
        p = self.p
        tensors = [n for n, x in (("a", p.a), ("b", p.b)) if isinstance(x, Tensor)]
        names = ["pa", "pb", "out"]
        heads = [f".param .u64 {n}" for n in names] + [f".param .align 64 .b8 map_{n}[128]" for n in tensors]
        arrivals = 1 + 32 * ((p.a == "async") + (p.b == "async"))
        empty = WARPS * p.consumers * (2 if p.shares else 1)
        full = (f"mbarrier.init.shared.b64 [%bar+{8 * n}], {arrivals if n < p.stages else empty};"
                for n in range(2 * p.stages))  # fmt: skip
        meet = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
        body = [
            ".version 8.7", ".target sm_90a", ".address_size 64", f".extern .shared .align {PATTERN} .b8 memory[];",
            f".visible .entry k({', '.join(heads)})",
            f".reqntid {p.threads} .minnctapersm 1 .reqnctapercluster {p.cluster}", "{",
            ".reg .b32 %t, %lane, %warp, %group, %rank, %block, %shared, %bar, %at, %to, %full, %empty, %i, %s, %r;",
            ".reg .b32 %tile, %turn, %slot, %phase, %x0, %y0, %line, %c, %u<4>, %a<16>, %last;",
            ".reg .b64 %pa, %pb, %out, %x, %y, %from, %da, %db; .reg .b16 %h0; .reg .pred %p, %q, %more;",
            f".reg .{self.kind} %d<{self.count}>;",
            "ld.param.u64 %pa, [pa]; ld.param.u64 %pb, [pb]; ld.param.u64 %out, [out];",
            "mov.u32 %t, %tid.x; and.b32 %lane, %t, 31; shr.u32 %warp, %t, 5; shr.u32 %group, %t, 7;",
            "mov.u32 %rank, %cluster_ctarank; mov.u32 %block, %ctaid.x; mov.u32 %shared, memory;",
            f"add.u32 %bar, %shared, {p.barriers}; setp.ne.u32 %p, %t, 0; @%p bra READY;", *full,
            "fence.mbarrier_init.release.cluster;", f"READY: {meet}",
            "mov.u32 %tile, 0; mov.u32 %slot, 0; setp.ne.u32 %p, %group, 0; @%p bra CONSUME;",
            *self.producer(), "bra END;", "CONSUME:", *self.consumer(), f"END: {meet}", "ret;", "}", "",
        ]  # fmt: skip
        return "\n".join(body)

    def next_stage(self, label: str) -> list[str]:
        """The end of a loop over turns; the parity of the phase changes when all stages have been used."""
        p = self.p
        return [
            f"add.u32 %slot, %slot, 1; setp.eq.u32 %q, %slot, {p.stages}; @%q mov.u32 %slot, 0;",
            "@%q xor.b32 %phase, %phase, 1;",
            f"add.u32 %turn, %turn, 1; setp.lt.u32 %q, %turn, {p.turns}; @%q bra {label};",
        ]  # fmt: skip

    def stage_addresses(self) -> list[str]:
        p = self.p
        return [f"mad.lo.u32 %at, %slot, {p.stage}, %shared; mad.lo.u32 %full, %slot, 8, %bar;",
                f"add.u32 %empty, %full, {8 * p.stages};"]  # fmt: skip

    # --- the producer -----------------------------------------------------------------------------------------------
    def producer(self) -> list[str]:
        """Warp 0 issues copies of its one thread, warps 1 and 2 those that a warp makes of A and of B."""
        p = self.p
        found = [f"setmaxnreg.dec.sync.aligned.u32 {KEPT};"] if p.adjusts else []
        found.append("setp.eq.u32 %p, %t, 0; @%p bra ISSUE;")
        found += [f"setp.eq.u32 %p, %warp, {n}; @%p bra WARP_{x};" for n, x in ((1, "a"), (2, "b"))
                  if getattr(p, x) == "async"]  # fmt: skip
        found.append("bra END_P;")
        for name in ("ISSUE", *(f"WARP_{x}" for x in "ab" if getattr(p, x) == "async")):
            found += [f"{name}: mov.u32 %phase, 1;", f"{name}_TILE: mov.u32 %turn, 0;", f"{name}_TURN:"]
            found += [*self.stage_addresses(), *self.wait("%empty", "%phase")]
            found += self.issue() if name == "ISSUE" else self.warp_copies(name[-1])
            found += self.next_stage(f"{name}_TURN")
            found += [f"add.u32 %tile, %tile, 1; setp.lt.u32 %q, %tile, {p.tiles}; @%q bra {name}_TILE;", "bra END_P;"]
        return [*found, "END_P: bar.warp.sync -1;"]

    def line(self, operand: str) -> list[str]:
        """Set %line to the number of a tile of A (the first consumer's) or B."""
        p = self.p
        block = "%block" if operand == "a" or not p.shares else "%s"
        found = ["shr.u32 %s, %block, 1;"] if block == "%s" else []
        found.append(f"mad.lo.u32 %line, {block}, {p.tiles}, %tile;")
        return [*found, f"mul.lo.u32 %line, %line, {p.consumers};"] if operand == "a" else found

    def issue(self) -> list[str]:
        """What one thread does for a stage."""
        p = self.p
        size = p.consumers * p.a_bytes * (p.a != "async") + p.b_bytes * (p.b != "async")
        found = [f"mbarrier.arrive.expect_tx.shared.b64 _, [%full], {size};"]
        if p.a != "async":
            found += [*self.line("a"), "mov.u32 %to, %at;"]
            for _ in range(p.consumers):
                found += [
                    *self.copy("a", p.a, ROWS, p.a_bytes),
                    f"add.u32 %line, %line, 1; add.u32 %to, %to, {p.a_bytes};",
                ]
        if p.b != "async":
            found += [*self.line("b"), f"add.u32 %to, %at, {p.consumers * p.a_bytes};"]
            found += self.copy("b", p.b, p.columns, p.b_bytes)
        return found

    def copy(self, operand: str, how: Tensor | str, rows: int, size: int) -> list[str]:
        """A tile to %to, or of the halves of two blocks one, to both."""
        p, halves = self.p, self.p.shares and operand == "b"
        cast, mask = (".multicast::cluster", ", %h0") if halves else ("", "")
        found = [f"mov.b16 %h0, 3; mad.lo.u32 %to, %rank, {size // 2}, %to;"] if halves else []
        if isinstance(how, Tensor):
            found.append(f"mul.lo.u32 %x0, %turn, {how.box[0]}; mul.lo.u32 %y0, %line, {rows};")
            found += [f"mad.lo.u32 %y0, %rank, {rows // 2}, %y0;"] if halves else []
            name = f"cp.async.bulk.tensor.2d.shared::cluster.global.tile.{BULK}{cast}"
            return [*found, f"mov.u64 %x, map_{operand}; cvta.param.u64 %x, %x;",
                    f"{name} [%to], [%x, {{%x0, %y0}}], [%full]{mask};"]  # fmt: skip
        found.append(
            f"mad.lo.u32 %s, %line, {p.turns}, %turn; mul.wide.u32 %x, %s, {size}; add.u64 %x, %x, %p{operand};"
        )
        found += [f"mul.wide.u32 %y, %rank, {size // 2}; add.u64 %x, %x, %y;"] if halves else []
        part = size // 2 if halves else size
        return [*found, f"cp.async.bulk.shared::cluster.global.{BULK}{cast} [%to], [%x], {part}, [%full]{mask};"]

    def warp_copies(self, operand: str) -> list[str]:
        """What a warp does for a stage with cp.async: lines of 16 bytes a lane, and an arrival of each lane."""
        p = self.p
        size = p.a_bytes if operand == "a" else p.b_bytes
        found = [*self.line(operand), f"add.u32 %to, %at, {0 if operand == 'a' else p.consumers * p.a_bytes};"]
        for n in range(p.consumers if operand == "a" else 1):
            found += [
                f"mad.lo.u32 %s, %line, {p.turns}, %turn; mul.wide.u32 %x, %s, {size}; add.u64 %x, %x, %p{operand};",
                "mul.wide.u32 %y, %lane, 16; add.u64 %x, %x, %y; mad.lo.u32 %s, %lane, 16, %to; mov.u32 %i, 0;",
                f"COPY_{operand}{n}: cp.async.cg.shared.global [%s], [%x], 16;",
                "add.u32 %s, %s, 512; add.u64 %x, %x, 512;",
                f"add.u32 %i, %i, 512; setp.lt.u32 %q, %i, {size}; @%q bra COPY_{operand}{n};",
                f"add.u32 %line, %line, 1; add.u32 %to, %to, {size};",
            ]  # fmt: skip
        return [*found, "cp.async.mbarrier.arrive.noinc.shared.b64 [%full];"]

    # --- consumers --------------------------------------------------------------------------------------------------
    def consumer(self) -> list[str]:
        """A warpgroup's products of all tiles."""
        p = self.p
        found = [f"setmaxnreg.inc.sync.aligned.u32 {GIVEN};"] if p.adjusts else []
        found += [
            f"sub.u32 %c, %group, 1; and.b32 %r, %t, {GROUP - 1}; mov.u32 %phase, 0;",
            f"mul.lo.u32 %s, %block, {p.tiles * p.consumers}; add.u32 %s, %s, %c; mul.wide.u32 %x, %s, {p.result};",
            "add.u64 %out, %out, %x;", "TILE: mov.u32 %turn, 0;", "TURN:", *self.stage_addresses(),
            *self.wait("%full", "%phase"), *(["fence.proxy.async;"] if "async" in (p.a, p.b) else []),
            *self.products(), "wgmma.commit_group.sync.aligned;", f"wgmma.wait_group.sync.aligned {p.in_flight};",
            f"setp.ge.u32 %p, %turn, {p.in_flight};", *self.release(p.in_flight), *self.next_stage("TURN"),
        ]  # fmt: skip
        if p.in_flight:
            found.append("wgmma.wait_group.sync.aligned 0; setp.eq.u32 %p, 0, 0;")
        for n in range(p.in_flight, 0, -1):
            found += self.release(n)
        found += [*self.epilogue(), f"add.u32 %tile, %tile, 1; setp.lt.u32 %q, %tile, {p.tiles}; @%q bra TILE;"]
        return [*found, "setp.eq.u32 %p, %r, 0; @%p cp.async.bulk.wait_group 0; bar.warp.sync -1;"]

    def products(self) -> list[str]:
        """Of a stage."""
        p, row = self.p, self.p.form.row
        found = [f"mad.lo.u32 %to, %c, {p.a_bytes}, %at;"]
        if p.registers:
            found.append("mad.lo.u32 %s, %r, 16, %to;")
            found += [f"ld.shared.v4.b32 {{%a{4 * k}, %a{4 * k + 1}, %a{4 * k + 2}, %a{4 * k + 3}}}, "
                      f"[%s+{ROWS * STEP * k}];" for k in range(p.span // STEP)]  # fmt: skip
        found += [f"add.u32 %s, %at, {p.consumers * p.a_bytes}; {FIELD}",
            "cvt.u64.u32 %from, %s;",
                  f"mov.u32 %s, %to; {FIELD} cvt.u64.u32 %y, %s; wgmma.fence.sync.aligned;"]  # fmt: skip
        d = "{" + ", ".join(f"%d{n}" for n in range(self.count)) + "}"
        more = ", 1" * len(row.scales) + ", 0" * sum(n != "a" or not p.registers for n in row.trans)
        for k in range(p.span // STEP):
            where = p.descriptor(STEP * k).encode()
            a = "{" + ", ".join(f"%a{4 * k + n}" for n in range(4)) + "}" if p.registers else "%da"
            found += [f"add.u64 %db, %from, {where:#x}; add.u64 %da, %y, {where:#x};",
                      "setp.ne.u32 %more, %turn, 0;" if k == 0 else "setp.eq.u32 %more, 0, 0;",
                      f"{p.form.mnemonic} {d}, {a}, %db, %more{more};"]  # fmt: skip
        return found

    def release(self, in_flight: int) -> list[str]:
        """Give back the stage so many before the one at %slot, if %p, in all blocks that fill it."""
        p = self.p
        found = [f"add.u32 %s, %slot, {p.stages - in_flight}; rem.u32 %s, %s, {p.stages};",
                 f"mad.lo.u32 %last, %s, 8, %bar; add.u32 %last, %last, {8 * p.stages};",
                 "setp.eq.u32 %q, %lane, 0; and.pred %q, %q, %p;"]  # fmt: skip
        if not p.shares:
            return [*found, "@%q mbarrier.arrive.shared.b64 _, [%last];"]
        for rank in range(2):
            found.append(f"mapa.shared::cluster.u32 %s, %last, {rank};")
            found.append("@%q mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%s];")
        return found

    def epilogue(self) -> list[str]:
        """Results to shared memory, once the copy before has read it, and on to memory."""
        p = self.p
        bar = f"add.u32 %s, %c, 1; bar.sync %s, {GROUP};"
        found = [f"mad.lo.u32 %to, %c, {p.result}, {p.stages * p.stage}; add.u32 %to, %to, %shared;",
                 f"setp.eq.u32 %p, %r, 0; @%p cp.async.bulk.wait_group.read 0; {bar}"]  # fmt: skip
        if p.by_matrices:
            found.append("and.b32 %s, %warp, 3; mad.lo.u32 %x0, %s, 128, %to; and.b32 %s, %lane, 7;")
            found.append("mad.lo.u32 %x0, %s, 16, %x0; shr.u32 %s, %lane, 3; mad.lo.u32 %x0, %s, 512, %x0;")
            for n in range(0, self.count, 4):
                found += [f"mov.b32 %u{i}, %d{n + i};" for i in range(4)]
                found.append(f"stmatrix.sync.aligned.m8n8.x4.shared.b16 [%x0+{512 * n}], {{%u0, %u1, %u2, %u3}};")
        else:
            found.append("mad.lo.u32 %x0, %r, 4, %to;")
            found += [f"st.shared.{self.kind} [%x0+{512 * n}], %d{n};" for n in range(self.count)]
        how = f"cp.reduce.async.bulk.global.shared::cta.bulk_group.{REDUCTIONS[result(p.form).format.name]}"
        name = how if p.reduces else "cp.async.bulk.global.shared::cta.bulk_group"
        return [*found, f"fence.proxy.async; {bar} @%p {name} [%out], [%to], {p.result};",
                f"@%p cp.async.bulk.commit_group; add.u64 %out, %out, {p.consumers * p.result};"]  # fmt: skip
