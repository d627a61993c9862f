"""The code that a library begins with: it finds or starts Python in the process and lets `attach` fill the table.

Emitted with llvmlite when the library is written, so that no process has to.  A process under setuid gets errors from
every function, since the library's Python reads the user's environment.
"""

from __future__ import annotations

import sys
import sysconfig
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
from llvmlite import ir

from nbtc.libcuda.direct.calls import direct_names, emit_all
from nbtc.libcuda.direct.emit import Shared

IMPORTS = ("dlopen", "dlsym", "setenv", "unsetenv", "snprintf", "dprintf", "getauxval", "sched_yield",
           "memcpy", "memmove", "madvise", "msync", "process_vm_readv", "clock_gettime", "getpid")  # fmt: skip
NEEDED = ("nbtc", "numba", "llvmlite", "numpy", "ml_dtypes", "zstandard")
AT_SECURE = 23
LAZY_GLOBAL = 0x101  # RTLD_LAZY | RTLD_GLOBAL: extension modules look for Python's functions
INVALID_VALUE = 1  # CUDA_ERROR_INVALID_VALUE
GONE = 4  # CUDA_ERROR_DEINITIALIZED, cudaErrorCudartUnloading
# Functions that still succeed when Python has ended: what gives something back.
STILL_FINE = ("Free", "Destroy", "Detach", "Unload", "Unregister", "Release", "Synchronize", "CtxSet", "CtxPush",
              "CtxPop", "__cudaRegister", "__cudaInitModule")  # fmt: skip
GIVE_TEXT = ("GetErrorString", "GetErrorName")  # they say then what has happened
GONE_TEXT = "driver shutting down"
I8, I32, I64, VOID = ir.IntType(8), ir.IntType(32), ir.IntType(64), ir.VoidType()
PTR = I8.as_pointer()


def python_library() -> Path | None:
    """This Python's shared library; None where there is none, and only Python's own processes can be served.

    Conda's Python is linked statically and has the library all the same, Debian's has it in a package of its own: the
    names are tried whatever the configuration says.
    """
    version = f"libpython{sys.version_info.major}.{sys.version_info.minor}{getattr(sys, 'abiflags', '')}.so"
    names = [*(sysconfig.get_config_var(n) or "" for n in ("INSTSONAME", "LDLIBRARY")), f"{version}.1.0", version]
    variables = (sysconfig.get_config_var(n) for n in ("LIBDIR", "LIBPL"))
    folders = [Path(x) for x in (*variables, Path(sys.base_prefix) / "lib") if x]
    found = (folder / n for folder in folders for n in names if ".so" in n)
    return next((p for p in found if p.is_file()), None)


def without_library() -> str:
    """What a program that isn't Python says where Python has no shared library."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return (
        f"nbtc: this program can't start the Python that nbtc is installed in, {sys.executable}: it has no shared "
        f"library.  Install it (Debian and Ubuntu: apt install libpython{version}), or install nbtc in a Python that "
        "has one, as those of uv, conda and GitHub's actions/setup-python do.\n"
    )


def python_path() -> list[str]:
    """Where a Python that the library starts finds its own modules, nbtc and what that needs: no folder of a user."""
    found = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), sysconfig.get_config_var("DESTSHARED")]
    for name in NEEDED:
        spec = find_spec(name)
        if spec is not None and spec.origin:
            found.append(str(Path(spec.origin).resolve().parents[1]))
    return list(dict.fromkeys(p for p in found if p))


def source(which: str, count: int, folder: str) -> str:
    """What Python runs first; a format of snprintf for its own, the table, the resolver's slot and the closer."""
    version = sys.version_info[:2]
    code = f"""
def _nbtc(own, table, slot, close, direct):
    import sys
    path = {python_path()!r}
    if own:
        sys.argv, sys.path[:] = [''], path
    elif sys.version_info[:2] != {version!r}:
        have = '.'.join(map(str, sys.version_info[:2]))
        sys.stderr.write('nbtc: this process runs Python ' + have + ', and the nbtc that stands in for its CUDA driver '
            'runs Python {version[0]}.{version[1]}: install nbtc for Python ' + have + ' and use its nbtc run\\n')
        return
    else:
        try:
            import nbtc
        except ImportError:
            sys.path += path
    from nbtc.libcuda.attach import attach
    attach({which!r}, {count}, own, table, slot, close, direct, {folder!r})
_nbtc(ARGUMENTS)
del _nbtc
"""
    return code.replace("%", "%%").replace("ARGUMENTS", "%d, %llu, %llu, %llu, %llu")


class Emitter:
    """The module under construction."""

    def __init__(self, which: str, names: Sequence[str], folder: str) -> None:
        self.which, self.names, self.count, self.folder = which, names, len(names), folder
        self.module = ir.Module()
        self.module.triple = llvm.get_process_triple()
        kinds = {
            "dlopen": (PTR, [PTR, I32]), "dlsym": (PTR, [PTR, PTR]), "setenv": (I32, [PTR, PTR, I32]),
            "unsetenv": (I32, [PTR]), "snprintf": (I32, [PTR, I64, PTR]), "dprintf": (I32, [I32, PTR]),
            "getauxval": (I64, [I64]), "sched_yield": (I32, []),
            "memcpy": (PTR, [PTR, PTR, I64]), "memmove": (PTR, [PTR, PTR, I64]), "madvise": (I32, [PTR, I64, I32]),
            "msync": (I32, [PTR, I64, I32]), "process_vm_readv": (I64, [I32, PTR, I64, PTR, I64, I64]),
            "clock_gettime": (I32, [I32, PTR]), "getpid": (I32, []),
        }  # fmt: skip
        self.libc = {
            name: ir.Function(self.module, ir.FunctionType(result, args, name in ("snprintf", "dprintf")), name)
            for name, (result, args) in kinds.items()
        }
        self.table = ir.GlobalVariable(self.module, ir.ArrayType(I64, self.count), "nbtc_table")
        self.slot = self._variable("nbtc_resolver", I64)  # the function that fills entries, when Python is there
        self.python = self._variable("nbtc_python", I64)  # 0 nobody has asked, 1 being started, 2 there, 3 no hope
        self.texts: dict[str, Any] = {}
        shared = Shared(self.module, self.libc, direct_names(which, names))
        self.direct = shared.described(emit_all(shared, which))

    def _variable(self, name: str, kind: Any) -> Any:
        found = ir.GlobalVariable(self.module, kind, name)
        found.linkage, found.initializer = "internal", kind(0)
        return found

    def text(self, b: ir.IRBuilder, text: str) -> Any:
        """A constant of C."""
        if text not in self.texts:
            raw = bytearray(text.encode() + b"\0")
            made = ir.GlobalVariable(self.module, ir.ArrayType(I8, len(raw)), f"text{len(self.texts)}")
            made.linkage, made.global_constant = "internal", True
            made.initializer = ir.Constant(made.value_type, raw)
            self.texts[text] = made
        return b.bitcast(self.texts[text], PTR)

    def from_library(self, b: ir.IRBuilder, library: Any, name: str, result: Any, *args: Any) -> Any:
        """Call a function of a library by its name."""
        kind = ir.FunctionType(result, [a.type for a in args])
        found = b.call(self.libc["dlsym"], [library, self.text(b, name)])
        return b.call(b.bitcast(found, kind.as_pointer()), args)

    def constant_function(self, name: str, value: int) -> Any:
        """A function that only returns a number."""
        made = ir.Function(self.module, ir.FunctionType(I64, []), name)
        made.linkage = "internal"
        ir.IRBuilder(made.append_basic_block()).ret(I64(value))
        return made

    def text_function(self) -> Any:
        """What stands for the functions of errors' texts: the driver's take an address for it, the others return it."""
        driver = self.which == "driver"
        result, args = (I32, [I32, PTR.as_pointer()]) if driver else (PTR, [I32])
        made = ir.Function(self.module, ir.FunctionType(result, args), "nbtc_text")
        made.linkage = "internal"
        b = ir.IRBuilder(made.append_basic_block())
        text = self.text(b, GONE_TEXT)
        if not driver:
            b.ret(text)
            return made
        with b.if_then(b.icmp_unsigned("==", made.args[1], made.args[1].type(None))):
            b.ret(I32(0))
        # The system copies the text's address: it says so where a store to the caller's pointer would end the process.
        size, one = I64(8), I64(1)
        value = b.alloca(PTR)
        b.store(text, value)
        vectors = b.alloca(ir.ArrayType(I64, 4))
        for i, x in enumerate((b.ptrtoint(made.args[1], I64), size, b.ptrtoint(value, I64), size)):
            b.store(x, b.gep(vectors, [I32(0), I32(i)]))
        target, origin = (b.bitcast(b.gep(vectors, [I32(0), I32(i)]), PTR) for i in (0, 2))
        process = b.call(self.libc["getpid"], [])
        moved = b.call(self.libc["process_vm_readv"], [process, target, one, origin, one, I64(0)])
        b.ret(b.select(b.icmp_unsigned("==", moved, size), I32(0), I32(INVALID_VALUE)))
        return made

    def close(self) -> Any:
        """Every function says from now on that the driver has ended."""
        gone, fine = self.constant_function("nbtc_gone", GONE), self.constant_function("nbtc_fine", 0)
        text = self.text_function()
        flags = bytearray(
            2 if name.endswith(GIVE_TEXT) else any(part in name for part in STILL_FINE) for name in self.names
        )
        kinds = ir.GlobalVariable(self.module, ir.ArrayType(I8, self.count), "nbtc_kinds")
        kinds.linkage, kinds.global_constant, kinds.initializer = "internal", True, ir.Constant(kinds.value_type, flags)
        made = ir.Function(self.module, ir.FunctionType(VOID, []), "nbtc_close")
        made.linkage = "internal"
        entry, loop, end = (made.append_basic_block() for _ in range(3))
        ir.IRBuilder(entry).branch(loop)
        b = ir.IRBuilder(loop)
        n = b.phi(I64)
        n.add_incoming(I64(0), entry)
        kind = b.load(b.gep(kinds, [I64(0), n]))
        chosen = b.ptrtoint(gone, I64)
        for n_kind, function in ((1, fine), (2, text)):
            chosen = b.select(b.icmp_unsigned("==", kind, I8(n_kind)), b.ptrtoint(function, I64), chosen)
        b.store(chosen, b.gep(self.table, [I64(0), n]))
        after = b.add(n, I64(1))
        n.add_incoming(after, loop)
        b.cbranch(b.icmp_unsigned("<", after, I64(self.count)), loop, end)
        ir.IRBuilder(end).ret_void()
        return made

    def start(self) -> Any:
        """A function that starts Python unless there is one, in one thread alone; whether it did."""
        made = ir.Function(self.module, ir.FunctionType(I32, []), "nbtc_start")
        made.linkage = "internal"
        b = ir.IRBuilder(made.append_basic_block("entry"))
        null = ir.Constant(PTR, None)
        asked = b.call(self.libc["dlsym"], [null, self.text(b, "Py_IsInitialized")])
        with b.if_then(b.icmp_unsigned("!=", asked, null)):
            there = b.call(b.bitcast(asked, ir.FunctionType(I32, []).as_pointer()), [])
            with b.if_then(b.icmp_unsigned("!=", there, I32(0))):
                b.ret(I32(0))
        before = b.extract_value(b.cmpxchg(self.python, I64(0), I64(1), "seq_cst"), 0)
        with b.if_then(b.icmp_unsigned("!=", before, I64(0))):
            wait, ready = made.append_basic_block("wait"), made.append_basic_block("ready")
            b.branch(wait)
            b.position_at_end(wait)
            b.call(self.libc["sched_yield"], [])
            now = b.load_atomic(self.python, "seq_cst", 8)
            b.cbranch(b.icmp_unsigned("==", now, I64(1)), wait, ready)
            b.position_at_end(ready)
            b.ret(I32(1))
        library = python_library()
        name = null if library is None else self.text(b, str(library))
        message = without_library() if library is None else "nbtc: cannot load %s\n"
        handle = null if library is None else b.call(self.libc["dlopen"], [name, I32(LAZY_GLOBAL)])
        with b.if_then(b.icmp_unsigned("==", handle, null)):
            b.call(self.libc["dprintf"], [I32(2), self.text(b, message), name])
            b.store_atomic(I64(3), self.python, "seq_cst", 8)
            b.ret(I32(0))
        home = self.text(b, "PYTHONHOME")
        b.call(self.libc["setenv"], [home, self.text(b, sys.base_prefix), I32(1)])
        self.from_library(b, handle, "Py_InitializeEx", VOID, I32(0))
        b.call(self.libc["unsetenv"], [home])  # or the process's own children would find it
        self.from_library(b, handle, "PyEval_SaveThread", PTR)
        b.store_atomic(I64(2), self.python, "seq_cst", 8)
        b.ret(I32(1))
        return made

    def boot(self) -> None:
        """What a function's first call goes through."""
        made = ir.Function(self.module, ir.FunctionType(VOID, [I64]), "nbtc_boot")
        b = ir.IRBuilder(made.append_basic_block("entry"))
        close, start = self.close(), self.start()
        with b.if_then(b.icmp_unsigned("==", b.load_atomic(self.slot, "seq_cst", 8), I64(0))):
            with b.if_then(b.icmp_unsigned("!=", b.call(self.libc["getauxval"], [I64(AT_SECURE)]), I64(0))):
                message = self.text(b, "nbtc: CUDA functions are refused in a process with more rights than its user\n")
                b.call(self.libc["dprintf"], [I32(2), message])
                b.call(close, [])
                b.ret_void()
            own = b.call(start, [])
            with b.if_then(b.icmp_unsigned("==", b.load_atomic(self.python, "seq_cst", 8), I64(3))):
                b.call(close, [])
                b.ret_void()
            null = ir.Constant(PTR, None)
            state = self.from_library(b, null, "PyGILState_Ensure", I32)
            template = source(self.which, self.count, self.folder)
            length = len(template) + 200
            buffer = b.bitcast(b.alloca(ir.ArrayType(I8, length)), PTR)
            values = [own, *(b.ptrtoint(x, I64) for x in (self.table, self.slot, close, self.direct))]
            b.call(self.libc["snprintf"], [buffer, I64(length), self.text(b, template), *values])
            self.from_library(b, null, "PyRun_SimpleString", I32, buffer)
            self.from_library(b, null, "PyGILState_Release", VOID, state)
        resolver = b.load_atomic(self.slot, "seq_cst", 8)
        with b.if_else(b.icmp_unsigned("!=", resolver, I64(0))) as (found, none):
            with found:
                b.call(b.inttoptr(resolver, ir.FunctionType(VOID, [I64]).as_pointer()), [made.args[0]])
            with none:
                b.call(close, [])
        b.ret_void()


def boot_object(which: str, names: Sequence[str], folder: str) -> bytes:
    """The object file with `nbtc_boot` for a library of these functions."""
    from nbtc.compiler.machine_code.native import binding

    binding()
    emitter = Emitter(which, names, folder)
    emitter.boot()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=2, reloc="pic", codemodel="small")
    made: bytes = machine.emit_object(llvm.parse_assembly(str(emitter.module)))
    return made
