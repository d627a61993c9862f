"""Programs and launches that break a rule; run as a script, this launches all of them and prints what was raised.

Each case is a kernel's body (or a whole text) with a launch; `says` is a pattern of the error's message.
"""

import json
import sys
from typing import NamedTuple

import numpy as np

import nbtc

ILLEGAL = "IllegalProgramError"
HEAD = ".version 8.7\n.target sm_90a\n.address_size 64\n"
PARAMETERS = ".param .u64 p, .param .u32 n"
PRELUDE = """
.reg .pred q, q1; .reg .b16 h<9>; .reg .b32 a, b, c, t, m, r<20>; .reg .b64 d, e, f; .reg .f32 x;
ld.param.u64 d, [p]; ld.param.u32 m, [n]; mov.u32 t, %tid.x; setp.lt.u32 q, t, 16;
"""
WORDS = 64  # of the array that p points to
MMA = "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {r0,r1,r2,r3}, {r4,r5,r6,r7}, {r8,r9}, {r0,r1,r2,r3};"
ARRAY = object()  # stands for a fresh array of WORDS words
SHARED = ".shared .align 16 .b8 s[64];\n"
LIMIT = (("timeout", 0.1),)
EMPTY = HEAD + ".visible .entry k() {} {{ ret; }}"
MALLOC = ".extern .func (.param .b64 v) malloc(.param .b64 s);\n.extern .func free(.param .b64 s);\n"
ASSERT = (
    ".extern .func __assertfail(.param .b64 a, .param .b64 b, .param .b32 c, .param .b64 d, .param .b64 e) .noreturn;\n"
    '.global .b8 word[5] = {111, 111, 112, 115, 0};\n'
)  # fmt: skip
RECURSE = """
.func deeper(.param .b32 z) { .reg .b32 a; .local .b8 room[256]; .param .b32 y; ld.param.b32 a, [z]; add.u32 a, a, 1;
st.local.b32 [room], a; st.param.b32 [y], a; call deeper, (y); ret; }
"""


class Case(NamedTuple):
    """One broken program or launch."""

    body: str
    says: str
    grid: object = 1
    block: object = 32
    args: tuple = (ARRAY, 0)
    launch: tuple = ()  # keywords of the launch
    before: str = ""  # stands before the kernel
    text: str = ""  # in place of head, kernel and body
    kernel: str = "k"
    error: str = "ProgramError"
    parameters: str = PARAMETERS

    def run(self):
        text = self.text or (
            f"{HEAD}{self.before}.visible .entry k({self.parameters})\n{{{PRELUDE}{self.body}\nret;\n}}\n"
        )
        args = tuple(np.zeros(WORDS, np.uint32) if x is ARRAY else x for x in self.args)
        nbtc.load(text)[self.kernel].launch(self.grid, self.block, args, **dict(self.launch))


def read_only():
    x = np.zeros(WORDS, np.uint32)
    x.flags.writeable = False
    return x


CALL = """{ .param .b64 s; .param .b64 v; mov.u64 e, 64; st.param.b64 [s], e;
call.uni (v), malloc, (s); ld.param.b64 e, [v]; }"""
FREE = "{ .param .b64 s; st.param.b64 [s], e; call.uni free, (s); }"
ACCESS = r"k: line \d+: {}.*thread \(\d+, \d+, \d+\)"
OWN_TEXT = HEAD + ".visible .entry k() {{ {} ret; }}"
CASES = {
    # --- addresses
    "load after the end": Case("ld.global.u32 a, [d+256];", ACCESS.format("ld.global.u32: reads outside")),
    "load before the start": Case("ld.global.u32 a, [d+-4];", "4 bytes before p"),
    "null pointer": Case("mov.b64 d, 0; ld.global.u32 a, [d+8];", "address 0x8, a null pointer$"),
    "wild pointer": Case("mov.b64 d, 0x7000000000000000; ld.global.u32 a, [d];", "address 0x7000000000000000$"),
    "vector load half outside": Case("ld.global.v4.u32 {a, b, c, r1}, [d+248];", "not a multiple of the access"),
    "store after the end": Case(
        "mul.wide.u32 e, t, 12; add.u64 e, e, d; st.global.u32 [e], t;", "writes outside.*thread \\(22"
    ),
    "store through a null pointer": Case("st.global.u32 [d], t;", "writes outside", args=(None, 0)),
    "load at a wild address": Case("mov.u64 e, 0x123456789000; ld.u32 a, [e];", "reads outside"),
    "an address that no argument holds": Case("ld.global.u32 a, [d];", "reads outside", args=(4096, 0)),
    "an address with a window's tag": Case("mov.u64 e, 0x7f00000000000000; ld.u32 a, [e];", "outside"),
    "misaligned load": Case("ld.global.u32 a, [d+2];", "not a multiple of the access"),
    "misaligned vector": Case("ld.global.v4.u32 {a, b, c, r1}, [d+4];", "not a multiple of the access"),
    "misaligned store of lanes apart": Case(
        "mul.wide.u32 e, t, 6; add.u64 e, e, d; st.global.u32 [e], t;", "multiple.*thread \\(1"
    ),
    "misaligned 64-bit store": Case("st.global.u64 [d+4], e;", "not a multiple of the access"),
    "atomic after the end": Case("atom.global.add.u32 a, [d+256], 1;", "outside"),
    "reduction after the end": Case("red.global.add.u32 [d+1024], 1;", "outside"),
    "misaligned atomic": Case("atom.global.add.u32 a, [d+1], 1;", "not a multiple"),
    "store to a read-only array": Case("st.global.u32 [d], t;", "read-only", args=(read_only, 0)),
    "store to constant memory": Case(
        "mov.u64 e, table; cvta.const.u64 e, e; st.u32 [e], t;",
        "read-only",
        before=".const .u32 table[4] = {1, 2, 3, 4};\n",
    ),
    "store to a parameter": Case("mov.b64 e, p; cvta.param.u64 e, e; st.u32 [e], t;", "read-only"),
    "shared load after the end": Case(
        "mov.u32 a, s; ld.shared.u32 b, [a+64];",
        r"leaves the block's shared memory.*address 0x40, 0 bytes after the end of s \(64 bytes\)$",
        before=SHARED,
    ),
    "shared store before the start": Case(
        "mov.u32 a, -4; st.shared.u32 [a], b;", r"leaves the block's shared memory.*address 0xfffffffc$", before=SHARED
    ),
    "dynamic shared memory not asked for": Case(
        "st.shared.u32 [s], t;", "leaves the block's shared memory", before=".extern .shared .align 4 .b8 s[];\n"
    ),
    "misaligned shared store": Case("st.shared.u32 [s+2], t;", "not a multiple", before=SHARED),
    "shared atomic after the end": Case(
        "atom.shared.add.u32 a, [s+64], 1;", "leaves the block's shared", before=SHARED
    ),
    "local store after the end": Case(
        ".local .align 4 .b8 l[16]; mov.u64 e, l; st.local.u32 [e+65536], t;", "leaves the thread's local memory"
    ),
    "misaligned local load": Case(".local .align 4 .b8 l[16]; mov.u64 e, l; ld.local.u32 a, [e+1];", "not a multiple"),
    "generic address after shared memory": Case(
        "mov.u64 e, s; cvta.shared.u64 e, e; ld.u32 a, [e+64];", "leaves the block's shared", before=SHARED
    ),
    "generic address after local memory": Case(
        ".local .align 4 .b8 l[16]; mov.u64 e, l; cvta.local.u64 e, e; st.u32 [e+65536], t;",
        "leaves the thread's local",
    ),
    "asynchronous copy from outside": Case(
        "cp.async.ca.shared.global [s], [d+256], 4; cp.async.wait_all;", "outside", before=SHARED
    ),
    "asynchronous copy to outside": Case(
        "cp.async.ca.shared.global [s+64], [d], 4; cp.async.wait_all;", "leaves the block's shared", before=SHARED
    ),
    "matrix rows outside": Case(
        "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {a}, [s+60];", "not a multiple of the access", before=SHARED
    ),
    "shared memory of a block that is not there": Case(
        "mov.u32 a, s; mov.u32 b, 5; mapa.shared::cluster.u32 a, a, b; ld.shared::cluster.u32 c, [a];",
        "leaves the block's shared",
        before=SHARED,
    ),
    # --- what programs say themselves
    "trap": Case("@q trap;", r"line \d+: trap: trap; block \(0, 0, 0\) thread \(0, 0, 0\)"),
    "breakpoint": Case("brkpt;", "brkpt"),
    "failed assertion": Case(
        "{ .param .b64 y0; .param .b64 y1; .param .b32 y2; .param .b64 y3; .param .b64 y4;"
        " mov.u64 e, word; cvta.global.u64 e, e;"
        " st.param.b64 [y0], e; st.param.b64 [y1], e; st.param.b32 [y2], 7; st.param.b64 [y3], e; st.param.b64 [y4], 1;"
        " call.uni __assertfail, (y0, y1, y2, y3, y4); }",
        "oops",
        before=ASSERT,
    ),
    # --- calls and branches
    "recursion without an end": Case(
        "{ .param .b32 y; st.param.b32 [y], t; call deeper, (y); }", "the stack is full", before=RECURSE
    ),
    "call of no function": Case(
        "{ mov.u64 e, 12345; P: .callprototype _ (); call e, (), P; }", "calls an address that is not a function"
    ),
    "index beyond a branch table": Case(
        "{ T: .branchtargets L1, L2; add.u32 a, m, 7; brx.idx a, T; L1: add.u32 a, a, 1; L2: }",
        "branches by an index beyond its table",
    ),
    "freed twice": Case(CALL + FREE + FREE, "frees memory that malloc did not give", before=MALLOC, block=1),
    "free of a stranger": Case("mov.u64 e, d;" + FREE, "frees memory that malloc did not give", before=MALLOC, block=1),
    "use after malloc'ed memory": Case(
        CALL + "st.global.u32 [e+16777216], t;", "writes outside", before=MALLOC, block=1
    ),
    # --- waiting
    "endless loop": Case(
        "L:\nadd.u32 a, a, 1;\nbra L;", r"line \d+: bra: was still running when the time limit", launch=LIMIT
    ),
    "endless loop of some lanes": Case("L:\nadd.u32 a, a, 1;\n@q bra L;", r"line \d+: bra: .*time limit", launch=LIMIT),
    "endless loop of empty blocks": Case("L:\nbra L;", "time limit", grid=9, block=96, launch=LIMIT),
    "a flag that nobody sets": Case(
        "L:\nld.volatile.global.u32 a, [d];\nsetp.eq.u32 q, a, 0;\n@q bra L;", "time limit", grid=3, launch=LIMIT
    ),
    "a lock that nobody gives back": Case(
        "L:\natom.global.cas.b32 a, [d], 0, 1;\nsetp.ne.u32 q, a, 0;\n@q bra L;", "time limit", launch=LIMIT
    ),
    "a barrier in memory that nobody completes": Case(
        "mbarrier.init.shared.b64 [s], 2; mbarrier.arrive.shared.b64 e, [s];\nL:\n"
        "mbarrier.try_wait.parity.shared.b64 q, [s], 0;\n@!q bra L;",
        "time limit",
        block=1,
        launch=LIMIT,
        before=".shared .align 8 .b64 s;\n",
    ),
    "a lane is missing at a warp's barrier": Case(
        "@q bra L; bar.sync 0; ret; L: bar.warp.sync 0xffffffff;", "waits forever.*bar.warp.sync", block=32
    ),
    "a lane is missing at a shuffle": Case(
        "@q bra L; bar.warp.sync 0xffffffff; ret; L:\nshfl.sync.idx.b32 a, t, 0, 31, 0xffffffff;", "waits forever"
    ),
    "warps at different barriers": Case(
        "setp.lt.u32 q, t, 32; @q bra L; bar.sync 1, 64; ret; L: bar.sync 2, 64;",
        "waits forever.*warp 0 of block.*warp 1 of block",
        block=64,
    ),
    "a barrier of more threads than there are": Case("bar.sync 1, 96;", "waits forever", block=64),
    "lanes of a warp at different barriers": Case("@q bra L; bar.sync 1, 64; ret; L: bar.sync 2, 64;", "waits forever"),
    "a barrier of a number there is none of": Case("bar.sync 16;", "16, .*is 0 to 15", error="IllegalProgramError"),
    "a barrier of a number found out late": Case("add.u32 a, m, 16; bar.sync a;", "none of the 16"),
    "a barrier of no whole warps": Case("bar.sync 1, 33;", "33, .*is a multiple of 32", error="IllegalProgramError"),
    "registers that are no eights": Case(
        "setmaxnreg.inc.sync.aligned.u32 100;",
        "100, .*is 24 to 256 and a multiple of 8",
        block=128,
        error="IllegalProgramError",
    ),
    # --- all lanes together
    "mma of half a warp": Case(
        f"@q bra L; ret; L: {MMA}",
        "mma.sync.*lanes",
    ),
    "mma under a guard": Case(f"@q {MMA}", "mma.sync.*lanes"),
    "mma of a block of half a warp": Case(MMA, "mma.sync.*lanes", block=16),
    "ldmatrix of half a warp": Case(
        "@q ldmatrix.sync.aligned.m8n8.x1.shared.b16 {a}, [s];", "ldmatrix.*lanes", before=SHARED
    ),
    # --- text
    "texture": Case("tex.1d.v4.u32.s32 {a, b, c, r1}, [d, {t}];", "tex"),
    "tcgen05": Case("tcgen05.wait::ld.sync.aligned;", "tcgen05", error=ILLEGAL),
    "no such instruction": Case("frobnicate.u32 a, b;", "frobnicate", error=ILLEGAL),
    "no such modifier": Case("add.wrong.u32 a, b, c;", "add.wrong.u32", error=ILLEGAL),
    "no such shape": Case(MMA.replace("k16", "k15"), "m16n8k15", error=ILLEGAL),
    "too many registers": Case(MMA.replace("r9}", "r9,r10}"), "mma", error=ILLEGAL),
    "an operand too few": Case("add.u32 a, b;", "add.u32", error=ILLEGAL),
    "a form that the architecture lacks": Case(
        MMA.replace("k16", "k32").replace("f16.f16", "e4m3.e4m3"), "sm_80 has no mma", launch=(("arch", "sm_80"),)
    ),
    "an undeclared register": Case("add.u32 a, b, nobody;", "nobody is not declared", error=ILLEGAL),
    "a label that is nowhere": Case("bra NOWHERE;", "NOWHERE", error=ILLEGAL),
    "no semicolon": Case("add.u32 a, b, c\nadd.u32 a, b, c;", "line 9", error="ParseError"),
    "a brace too few": Case("", "never ends", text=OWN_TEXT.format("{"), error="ParseError"),
    "no version": Case("", "version", text=".visible .entry k() { ret; }", error="ParseError"),
    "no text": Case("", "version", text="  ", error="ParseError"),
    "ten thousand scopes": Case("", "never ends", text=OWN_TEXT.format("{" * 10_000 + "}" * 9_999), error="ParseError"),
    # --- launches
    "no such kernel": Case("", "not a kernel of this module; kernels: k", kernel="j"),
    "an argument too few": Case("", "2", args=(ARRAY,)),
    "an argument too many": Case("", "2", args=(ARRAY, 1, 2)),
    "a fraction for an integer": Case("", "1.5", args=(ARRAY, 1.5), error="FormatError"),
    "a number out of range": Case("", str(1 << 32), args=(ARRAY, 1 << 32), error="RangeError"),
    "text for a pointer": Case("", "pass an array or a number, not a str", args=("text", 1), error="FormatError"),
    "an array of objects": Case("", "array of object", args=(np.array([object()]), 1), error="FormatError"),
    "a struct of another size": Case(
        "", "16 bytes", args=(b"short", 1), parameters=".param .align 8 .b8 p[16], .param .u32 n"
    ),
    "an empty grid": Case("", "grid=0", grid=0, error="OptionError"),
    "a grid of four extents": Case("", "grid", grid=(1, 1, 1, 1), error="OptionError"),
    "a block too large": Case("", "2048", block=2048, error="OptionError"),
    "a cluster that does not fit": Case("", "cluster", grid=3, launch=(("cluster", 2),), error="OptionError"),
    "too many threads for the kernel": Case(
        "", "maxntid", text=EMPTY.format(".maxntid 16"), args=(), error="OptionError"
    ),
    "another cluster": Case(
        "",
        "reqnctapercluster",
        grid=4,
        launch=(("cluster", 4),),
        text=EMPTY.format(".reqnctapercluster 2"),
        args=(),
        error="OptionError",
    ),
    "too much shared memory": Case("", "shared", launch=(("shared", 1 << 20),), error="OptionError"),
    "a time limit of no time": Case("", "timeout", launch=(("timeout", 0),), error="OptionError"),
    "a block that the kernel does not take": Case(
        "", "reqntid", text=EMPTY.format(".reqntid 64, 1, 1"), args=(), error="OptionError"
    ),
}


def main():
    for name, case in CASES.items():
        case = case._replace(args=tuple(x() if x is read_only else x for x in case.args))
        print(json.dumps([name, "started", ""]), flush=True)
        try:
            case.run()
            found = ["nothing", ""]
        except nbtc.errors.NbtcError as error:
            found = [type(error).__name__, str(error)]
        except Exception as error:
            found = [f"{type(error).__name__} of Python", str(error)]
        print(json.dumps([name, *found]), flush=True)


if __name__ == "__main__":
    sys.exit(main())
