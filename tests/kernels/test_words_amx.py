"""Integer products in AMX's tile registers: the bits of exact integers, here in the registers or in plain vectors."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from llvmlite import ir
from numba.core import cgutils

import nbtc
from nbtc.compiler.builder import I8, I32, VectorBuilder, stack_array, vector
from nbtc.compiler.cpu import host
from nbtc.formats.arrays import from_bits, pack
from nbtc.formats.table import FORMATS
from nbtc.gemm.engines import words_engine
from nbtc.gemm.engines.engines import ENGINES, TileRegistersEngine, engines_for
from nbtc.gemm.planning import ProductOptions, prepare
from nbtc.kernels.words import words, words_amx
from nbtc.testing.cases import large_engines
from nbtc.testing.strategies import operands
from tests.processes import fresh, output

needs_amx = pytest.mark.skipif(not host.features() >= words_amx.NEEDS, reason="this processor has no tile registers")
SIGNS = [("s8", "s8"), ("s8", "u8"), ("u8", "s8"), ("u8", "u8"), ("s4", "s4"), ("u4", "s4")]
# whole registers, less than one, one element more; K within and past a packed block of 2,048
SHAPES = [(32, 32, 64), (1, 1, 1), (33, 35, 65), (97, 70, 200), (16, 130, 2049)]


class PlainRegisters(words_amx.AmxTiles):
    """What the Intel 64 manual says of the instructions, in plain vectors."""

    ROW, SIZE = 64, 1024

    def configure(self) -> None:
        """Zeroed at once, as LDTILECFG leaves them; one place for all, whoever asks for it."""
        entry = self.v.b.function.entry_basic_block
        self.memory = getattr(entry, "tile_registers", None) or stack_array(self.v.b, 8 * self.SIZE)
        entry.tile_registers = self.memory

    def release(self) -> None: ...

    def at(self, register: int, row: Any) -> Any:
        if not hasattr(self, "memory"):
            self.configure()
        return self.v.at(self.memory, register * self.SIZE, self.v.b.mul(row, self.v.int(self.ROW)))

    def each_row(self) -> Any:
        return cgutils.for_range(self.v.b, self.v.int(16))

    def zero(self, to: int) -> None:
        with self.each_row() as row:
            self.v.store(self.v.const(vector(I32, 16), 0), self.at(to, row.index))

    def load(self, to: int, at: Any, ld: Any) -> None:
        with self.each_row() as row:
            found = self.v.load(self.v.at(at, self.v.b.mul(row.index, ld)), vector(I32, 16))
            self.v.store(found, self.at(to, row.index))

    def store(self, from_: int, at: Any, ld: Any) -> None:
        with self.each_row() as row:
            found = self.v.load(self.at(from_, row.index), vector(I32, 16))
            self.v.store(found, self.v.at(at, self.v.b.mul(row.index, ld)))

    def add(self, to: int, a: int, b: int, signs: tuple[bool, bool]) -> None:
        v, build = self.v, self.v.b
        bytes_, wide = vector(I8, 64), vector(I32, 64)

        def widened(x: Any, signed: bool) -> Any:
            return build.sext(v.bits(x, bytes_), wide) if signed else build.zext(v.bits(x, bytes_), wide)

        with self.each_row() as row, self.each_row() as k:
            at = self.at(to, row.index)
            word = v.load(v.at(self.at(a, row.index), build.mul(k.index, v.int(4))), I32)
            x = widened(v.splat(word, 16), signs[0])
            each = build.mul(x, widened(v.load(self.at(b, k.index), vector(I32, 16)), signs[1]))
            total = v.load(at, vector(I32, 16))
            for i in range(4):
                total = build.add(total, v.shuffle(each, each, list(range(i, 64, 4))))
            v.store(total, at)


def forget() -> None:
    for remembered in (words_engine.scheme, words.packs_columns, words.multiplies_rows, words.multiplies_product):
        remembered.cache_clear()


@pytest.fixture(
    params=[pytest.param(words_amx.AmxTiles, marks=needs_amx, id="amx"), pytest.param(PlainRegisters, id="plain")]
)
def registers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Bytes are multiplied in tile registers, or in what stands for them."""
    monkeypatch.setattr(words_amx, "AmxTiles", request.param)
    monkeypatch.setattr(words, "dot_of_bytes", lambda: words.AMX)
    if request.param is PlainRegisters:  # other code under the same names, which stays for the life of the process
        monkeypatch.setattr(words, "_stamp", lambda: "plain registers")
        monkeypatch.setenv("NBTC_CACHE_DIR", "")
    forget()
    with large_engines():
        yield
    forget()


def drawn(signs: tuple[str, str], shape: tuple[int, int, int], strategy: str) -> list[np.ndarray]:
    """Operands and start values as arrays of their formats."""
    formats = [FORMATS[name] for name in (*signs, "s32")]
    bits = operands(np.random.default_rng(sum(shape)), strategy, shape, *formats)
    return [from_bits(v.astype(f.bits_dtype), f) for v, f in zip(bits, formats, strict=True)]


def exact(a: np.ndarray, b: np.ndarray, c: np.ndarray | None) -> np.ndarray:
    """Sums of whole numbers modulo 2^32."""
    total = a.astype(np.int64) @ b.astype(np.int64) + (0 if c is None else c)
    return total.astype(np.uint64).astype(np.uint32).view(np.int32)


@pytest.mark.parametrize("signs", SIGNS, ids="-".join)
@pytest.mark.usefixtures("registers")
def test_products(signs: tuple[str, str]) -> None:
    """Of every sign and shape, from zero and from any start, whose sums wrap; on two threads too."""
    for shape in SHAPES:
        a, b, c = drawn(signs, shape, "near_limit")
        named: dict[str, Any] = dict(zip(("a_format", "b_format"), signs, strict=True))
        assert prepare(a, b, c, ProductOptions(**named)).plan.engine in ("amx", "words")
        for start in (None, c):
            for threads in (1, 2):
                found = nbtc.matmul(a, b, start, threads=threads, **named)
                assert (found == exact(a, b, start)).all(), (shape, threads)


@pytest.mark.parametrize("signs", [("s4", "s4"), ("s4", "u4"), ("u4", "u4")], ids="-".join)
@pytest.mark.usefixtures("registers")
def test_packed_words(signs: tuple[str, str]) -> None:
    """4-bit operands eight to a word."""
    for shape in ((33, 35, 64), (5, 40, 136), (97, 33, 512)):
        a, b, c = drawn(signs, shape, "uniform")
        x, y = pack(a, FORMATS[signs[0]], axis=-1), pack(b, FORMATS[signs[1]], axis=-2)
        assert (nbtc.matmul(x, y, c, a_format=signs[0], b_format=signs[1]) == exact(a, b, c)).all()


@pytest.mark.usefixtures("registers")
def test_layouts_and_batches() -> None:
    """Operands in columns, read-only ones, a batch with one B."""
    a, b, c = drawn(("s8", "u8"), (66, 70, 100), "near_limit")
    want = exact(a, b, c)
    frozen = b.copy()
    frozen.flags.writeable = False
    assert (nbtc.matmul(np.asfortranarray(a), np.asfortranarray(b), c) == want).all()
    assert (nbtc.matmul(a, frozen, c) == want).all()
    assert (nbtc.matmul(np.stack([a, a[::-1]]), b, np.stack([c, c[::-1]])) == np.stack([want, want[::-1]])).all()


@pytest.mark.usefixtures("registers")
def test_saturating() -> None:
    """Sums that can't leave int32 are the registers'; where some might, each step clamps."""
    a, b, c = drawn(("s8", "s8"), (40, 40, 96), "near_limit")
    small = c % 1000
    assert (nbtc.matmul(a, b, small, saturate=True, instruction="mma") == exact(a, b, small)).all()
    a[:], b[:] = -128, -128
    far = np.full_like(c, 2**31 - 100)
    assert (nbtc.matmul(a, b, far, saturate=True, instruction="mma") == 2**31 - 1).all()


def test_forced_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without permission there are no tile registers, for LLVM neither, and bytes are multiplied as before."""
    plain = {"NUMBA_CPU_FEATURES": ",".join(f"+{x}" for x in sorted(host.features() - host.AMX))}
    text = (
        "from nbtc.kernels.words import words; from nbtc.compiler.machine_code import native\n"
        "import numpy as np, nbtc\n"
        "assert words.dot_of_bytes() != words.AMX and '+amx-int8' not in native.target()[2]\n"
        "a = np.full((64, 64), -128, np.int8); print(nbtc.matmul(a, a)[0, 0])"
    )
    assert output(fresh(text, **plain)).strip() == str(64 * 128 * 128)
    monkeypatch.setattr(host, "tile_registers_allowed", lambda: False)
    assert not host.features.__wrapped__() & host.AMX


REFUSED = """
import ctypes
class Stack(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), ("flags", ctypes.c_int), ("size", ctypes.c_size_t)]
memory = ctypes.create_string_buffer(1 << 13)
assert ctypes.CDLL(None).sigaltstack(ctypes.byref(Stack(ctypes.addressof(memory), 0, 1 << 12)), None) == 0
from nbtc.compiler.cpu.host import tile_registers_allowed
from nbtc.kernels.words import words
import numpy as np, nbtc
assert not tile_registers_allowed() and words.dot_of_bytes() == words.DOT
a = np.full((64, 64), -128, np.int8)
print(nbtc.matmul(a, a)[0, 0])
"""


@needs_amx
def test_refused_for_a_small_signal_stack() -> None:
    """Linux refuses; the product is made of other instructions."""
    assert output(fresh(REFUSED)).strip() == str(64 * 128 * 128)


@needs_amx
def test_engine() -> None:
    """Products of integers take the engine that has them."""
    a = np.zeros((64, 64), np.int8)
    plan = prepare(a, a).plan
    assert engines_for(plan.params, ENGINES)[0].name == plan.engine == TileRegistersEngine.name
    signal_frame = ctypes.CDLL(None).getauxval(51)  # AT_MINSIGSTKSZ
    assert signal_frame > 8192  # what handlers on stacks of their own have to allow for


def test_configuration() -> None:
    """As LDTILECFG reads it: palette, bytes of each row, rows."""
    module = ir.Module("configuration")
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), []), "f")
    v = VectorBuilder(None, ir.IRBuilder(function.append_basic_block("entry")))
    words_amx.AmxTiles(v).configure()
    stored = next(x for x in str(module).splitlines() if "store <8 x i64>" in x)
    values = [int(x.split()[-1]) for x in stored.split("<8 x i64> <")[1].split(">")[0].split(",")]
    said = b"".join(x.to_bytes(8, "little") for x in values)
    assert said[0] == 1 and said[1:16] == bytes(15)
    assert np.frombuffer(said[16:32], np.uint16).tolist() == [64] * 8 and said[48:56] == bytes([16] * 8)
