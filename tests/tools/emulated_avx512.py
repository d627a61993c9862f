"""AVX-512 code of products and of warpgroups' slices on a processor that lacks it, by the Bochs emulator.

    python tests/tools/emulated_avx512.py [NAME ...]      (about a minute; NAME: a part of what is to be run)

Needs bochscpu (PyPI: bochscpu-python; 0.4.0 is tested, on glibc 2.38 or newer) and binutils.  The emulated processor is
Intel's Cannon Lake: AVX-512 with VBMI, without dot products and counts of bits.  Exit code 1 where a bit is wrong.

One process, which takes itself for that processor, writes machine code; each object file is run in a process of its
own, as the emulator keeps what it has decoded.  There the inputs and what is right are computed natively.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # where `tests` is

PROCESSOR = "cannonlake"
FEATURES = (
    *(
        "sse",
        "sse2",
        "sse3",
        "ssse3",
        "sse4.1",
        "sse4.2",
        "popcnt",
        "avx",
        "avx2",
        "fma",
        "f16c",
        "bmi",
        "bmi2",
        "lzcnt",
    ),
    *(f"avx512{name}" for name in ("f", "bw", "dq", "vl", "cd", "vbmi", "ifma")),
)
PAGE, MEMORY, CODE, HEAP, END = 4096, 64 << 20, 0x1000, 4 << 20, 60 << 20  # bytes, and offsets in the memory
LINK = """SECTIONS {{ . = {}; .all : {{ *(.text*) *(.ltext*) *(.rodata*) *(.lrodata*) *(.data*) *(.bss*) *(.got*) }}
/DISCARD/ : {{ *(.eh_frame*) *(.note*) *(.comment*) }} }}"""


# --- machine code, written by a process that takes itself for the processor -------------------------------------------
def pretend() -> None:
    """Let LLVM's answer be that processor's; before nbtc is imported."""
    os.environ["NUMBA_CPU_NAME"] = PROCESSOR
    os.environ["NUMBA_CPU_FEATURES"] = ",".join(f"+{name}" for name in FEATURES)
    import llvmlite.binding as llvm
    from llvmlite.binding import targets

    found = dict.fromkeys(llvm.get_host_cpu_features(), False) | dict.fromkeys(FEATURES, True)
    llvm.get_host_cpu_features = targets.get_host_cpu_features = lambda: found


def write_objects(folder: Path) -> None:
    """Object files by the names of tests' cases."""
    from llvmlite import ir

    from nbtc.compiler.machine_code import emitted, native
    from nbtc.isa.parse import row
    from nbtc.ops.mma import product as mma
    from tests.executor.matrix import test_product_records as products
    from tests.kernels import test_slice as slices

    class Kept:
        """In the place of loaded code, which this process can't run."""

        def __init__(self, functions: dict[str, Any], *_: str) -> None:
            (folder / f"{name}.o").write_bytes(native.compile_text(emitted._text(functions), None, emitted.CODE_LEVEL))

        def address(self, _: str) -> int:
            return 0

    products.machine_code = Kept  # type: ignore[assignment]
    for form in products.FORMS:
        for arch in ("sm_90", "sm_80"):
            name = f"products {form} {arch}"
            products.compiled(mma.prepare(row(f"mma.sync.aligned.{form}"), arch), name)
    for n, shape in enumerate(slices.SHAPES):
        module = ir.Module()
        module.triple = native.target()[0]
        for decodes in (True, False):
            slices.slice_function(module, slices.shape_of(*shape), decodes).linkage = "external"
        (folder / f"slices {n}.o").write_bytes(native.compile_text(str(module)))


# --- the emulator -----------------------------------------------------------------------------------------------------
class Machine:
    """A processor in 64-bit mode whose memory is a buffer of this process, at the same addresses."""

    def __init__(self) -> None:
        import bochscpu
        import bochscpu.cpu
        import bochscpu.memory

        self.buffer = ctypes.create_string_buffer(MEMORY + PAGE)
        self.base = -(-ctypes.addressof(self.buffer) // PAGE) * PAGE
        self.session, self.error, self.used = bochscpu.Session(), "", HEAP
        self.session.missing_page_handler = lambda page: None
        self.state = bochscpu.State()
        bochscpu.cpu.set_long_mode(self.state)
        self._map(bochscpu.memory)
        s = self.state
        s.cr0, s.efer = 0x80040023, 0x501  # paging, numeric errors, protection; long mode
        s.cr4, s.xcr0 = 1 << 5 | 1 << 9 | 1 << 10 | 1 << 18, 0xE7  # 36-bit pages; SSE, AVX and AVX-512 are in use
        s.mxcsr, s.mxcsr_mask, s.rflags = 0x1F80, 0xFFFF, 2
        for names, attributes in ((("cs",), 0xA09B), (("ds", "ss", "es", "fs", "gs"), 0xC093)):
            segment = bochscpu.Segment()
            segment.base, segment.limit, segment.attr, segment.present = 0, 0xFFFFFFFF, attributes, True
            segment.selector = 8 if names == ("cs",) else 16
            for name in names:
                setattr(s, name, segment)
        self.hook = bochscpu.Hook()
        self.hook.hlt = lambda session, _: session.stop()
        self.hook.exception = self._exception

    def _map(self, memory: Any) -> None:
        table, first, top = memory.PageMapLevel4Table(), 0x10000000, 0x80000000  # physical addresses, anywhere
        for at in range(0, MEMORY, PAGE):
            table.insert(self.base + at, first + at, 7)  # present, may be written, of users
            memory.page_insert(first + at, self.base + at)
        for host, page in table.commit(top):
            memory.page_insert(page, host)
        self.state.cr3, self.table = top, table

    def _exception(self, session: Any, _: int, vector: int, code: int) -> None:
        self.error = f"exception {vector} ({code}) before {session.cpu.rip:#x}"
        session.stop()

    def link(self, path: Path) -> dict[str, int]:
        """An object file into memory; the addresses of its functions."""
        script, whole, plain = (path.with_suffix(end) for end in (".ld", ".elf", ".bin"))
        script.write_text(LINK.format(hex(self.base + CODE)))
        command = ["ld", "-static", "--unresolved-symbols=ignore-all", "-T", script, "-e", "0", "-o", whole, path]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        subprocess.run(["objcopy", "-O", "binary", whole, plain], check=True)
        code = plain.read_bytes()
        ctypes.memmove(self.base + CODE, code, len(code))
        lines = subprocess.run(["nm", whole], check=True, capture_output=True, text=True).stdout.splitlines()
        return {parts[2]: int(parts[0], 16) for parts in map(str.split, lines) if len(parts) == 3}

    def array(self, x: Any) -> Any:
        """A copy of an array in this memory, at a multiple of 64 bytes."""
        import numpy as np

        at = -(-self.used // 64) * 64
        self.used = at + x.nbytes
        if self.used > END:
            raise MemoryError("more arrays than the emulated memory holds")
        out: Any = np.ctypeslib.as_array((ctypes.c_uint8 * x.nbytes).from_address(self.base + at)).view(x.dtype)
        out = out.reshape(x.shape)
        out[...] = x
        return out

    def call(self, address: int, *arguments: Any) -> int:
        """A function of whole numbers (System V ABI); it returns to an instruction that stops the processor."""
        halt, more = self.base + MEMORY - 64, arguments[6:]
        ctypes.memmove(halt, b"\xf4", 1)
        stack = self.base + MEMORY - PAGE - 16 * len(more) - 8
        for n, word in enumerate((halt, *more)):
            ctypes.memmove(stack + 8 * n, int(word).to_bytes(8, "little"), 8)
        self.state.rsp, self.state.rip, self.error = stack, address, ""
        for name, word in zip(("rdi", "rsi", "rdx", "rcx", "r8", "r9"), arguments, strict=False):
            setattr(self.state, name, int(word or 0))
        self.session.cpu.state = self.state
        self.session.run([self.hook])
        if self.error:
            raise RuntimeError(self.error)
        return int(self.session.cpu.rax)


# --- what is run ------------------------------------------------------------------------------------------------------
def run_product(machine: Machine, functions: dict[str, int], form: str, arch: str) -> int:
    """Every mix of inputs of `test_product_records`; how many words are wrong."""
    import numpy as np

    from nbtc.isa.parse import row
    from nbtc.ops.mma import product as mma
    from tests.executor.matrix import test_product_records as t

    def run(_: int, *given: Any) -> None:
        *arrays, warps = given
        copies = [machine.array(x) for x in arrays]
        machine.call(functions["products"], *(x.ctypes.data for x in copies), warps)
        for x, copy in zip(arrays[-2:], copies[-2:], strict=True):
            x[...] = copy

    t.run = run  # type: ignore[assignment]
    plan, rng = mma.prepare(row(f"mma.sync.aligned.{form}"), arch), np.random.default_rng(len(form))
    parts = [[t.image(rng, o.format, t.WARPS, o.registers, kind) for kind in t.KINDS] for o in plan.operands]
    chosen = [[t.KINDS.index(kinds[side]) for kinds in t.MIXES] for side in range(3)]
    words = [np.concatenate([part[n] for n in at]) for part, at in zip(parts, chosen, strict=True)]
    got, want, good = t.both(plan, 0, words)
    return int((got[good] != want[good]).sum()) if good.sum() > t.WARPS * 40 else got.size


def run_slices(machine: Machine, functions: dict[str, int], n: str) -> int:
    """Every strategy of `test_slice`; how many outputs are wrong."""
    from tests.kernels import test_slice as t

    def function(end: str) -> Callable[..., int]:
        address = next(at for name, at in functions.items() if name.endswith(f"_{end}"))
        return lambda *arguments: machine.call(address, *arguments)

    t.aligned = machine.array
    a, b, acc, flags = t.SHAPES[int(n)]
    shape, wrong = t.shape_of(a, b, acc, flags), 0
    for keep in (True, False):
        for strategy in (*t.strategies(shape.a), t.NAN_BESIDE_LARGEST):
            machine.used = HEAP
            marked, bad = t.compare(shape, [function("decodes"), function("decoded")], strategy, keep)
            wrong += bad + (marked if strategy in t.ORDINARY else 0)
    return wrong


def run_object(path: Path) -> int:
    """How many results of an object file's functions are wrong."""
    machine, (kind, *case) = Machine(), path.stem.split()
    functions = machine.link(path)
    return run_product(machine, functions, *case) if kind == "products" else run_slices(machine, functions, *case)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, __file__, "--write", folder], check=True)
        bad, chosen = 0, sys.argv[1:]
        for path in sorted(Path(folder).glob("*.o")):
            if not chosen or any(name in path.stem for name in chosen):
                run = subprocess.run(
                    [sys.executable, __file__, "--run", path], capture_output=True, text=True, check=False
                )
                bad += run.returncode != 0
                print(path.stem, "right" if run.returncode == 0 else run.stdout + run.stderr[-500:], flush=True)
    return int(bad > 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--write"]:
        pretend()
        write_objects(Path(sys.argv[2]))
    elif sys.argv[1:2] == ["--run"]:
        wrong_results = run_object(Path(sys.argv[2]))
        print(wrong_results, "wrong results", flush=True)
        os._exit(wrong_results > 0)  # Bochs' objects are not let go in order
    else:
        sys.exit(main())
