"""A program's functions compiled each by itself: the same bits, and shared by programs."""

import ctypes

import numpy as np
import pytest
from llvmlite import ir

import nbtc
from nbtc.compiler.machine_code import native, split
from nbtc.executor.code import helpers

# Two warps hand sums round a ring through shared memory, in a loop with barriers; lanes part and meet again.
RING = """.version 8.0 .target sm_80 .address_size 64
.visible .entry ring(.param .u64 x, .param .u32 rounds) {
  .reg .pred p, q; .reg .b32 t, n, v, w, a, b, i; .reg .b64 g, o; .reg .f32 f, h; .shared .align 4 .b8 s[256];
  ld.param.u64 g, [x]; ld.param.u32 n, [rounds]; mov.u32 t, %tid.x; mul.wide.u32 o, t, 4; add.u64 g, g, o;
  ld.global.u32 v, [g]; mov.u32 a, s; shl.b32 w, t, 2; add.u32 a, a, w;
  add.u32 b, t, 1; and.b32 b, b, 63; shl.b32 b, b, 2; mov.u32 w, s; add.u32 b, b, w; mov.u32 i, 0;
again:
  st.shared.u32 [a], v; bar.sync 0; ld.shared.u32 w, [b]; bar.sync 0;
  and.b32 t, w, 3; setp.eq.u32 q, t, 0; @q bra other;
  add.u32 v, v, w; bra met;
other:
  cvt.rn.f32.u32 f, w; mul.rn.f32 h, f, 0f3F000000; cvt.rzi.u32.f32 w, h; xor.b32 v, v, w;
met:
  add.u32 i, i, 1; setp.lt.u32 p, i, n; @p bra again;
  st.global.u32 [g], v; ret; }"""


def ring(rounds):
    x = np.arange(64, dtype=np.uint32) * np.uint32(0x9E3779B1)
    nbtc.load(RING)["ring"][1, 64](x, rounds)
    return x


def want(rounds):
    v = np.arange(64, dtype=np.uint32) * np.uint32(0x9E3779B1)
    for _ in range(rounds):
        w = np.roll(v, -1)
        half = (w.astype(np.float32) * np.float32(0.5)).astype(np.uint32)
        v = np.where(w & 3 == 0, v ^ half, v + w)
    return v


@pytest.fixture
def compiled(monkeypatch, tmp_path):
    """Texts of the functions that others may share, by name, as they are compiled; an empty cache."""
    monkeypatch.setenv("NBTC_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(helpers, "_HELPERS", {})
    real, texts = native.optimised, {}

    def optimised(symbol, text, *options):
        name = symbol.split(".")[0]
        assert name not in texts
        texts[name] = text
        return real(symbol, text, *options)

    monkeypatch.setattr(native, "optimised", optimised)
    return texts


@pytest.mark.parametrize(
    "limits",
    [(1, 1), (1 << 30, 1), (1 << 30, 1 << 30)],
    ids=["plain", "long block", "whole"],
)
def test_bits_of_a_warp_that_is_optimised_less(limits, monkeypatch, compiled):
    for name, limit in zip(("MANY_BLOCKS", "LONG_BLOCK"), limits, strict=True):
        monkeypatch.setattr(split, name, limit)
    assert (ring(9) == want(9)).all()
    count = len(compiled)
    assert (ring(5) == want(5)).all()
    assert len(compiled) == count  # all is on disk


def test_programs_share_what_their_warps_call(compiled):
    ring(9)
    assert "run" in compiled
    assert "warp" not in compiled
    count = len(compiled)
    x = np.arange(64, dtype=np.uint32)
    nbtc.load(RING.replace("xor.b32 v, v, w", "sub.u32 v, v, w"))["ring"][1, 64](x, 3)
    assert len(compiled) == count


def test_how_far_a_function_is_optimised():
    function = empty(ir.Module(), "warp")
    assert split.own_levels(function)[:2] == (2, 2)
    b = ir.IRBuilder(function.append_basic_block())
    for _ in range(split.LONG_BLOCK - 1):
        b.alloca(NUMBER)
    assert split.own_levels(function)[:2] == (2, 2)
    b.ret_void()
    assert split.own_levels(function)[:2] == (2, 1)
    assert split.own_levels(function, native.Levels(1, 2, True, None)) == (1, 1, True, None)
    for _ in range(split.MANY_BLOCKS):
        function.append_basic_block()
    assert split.own_levels(function)[:2] == (0, 0)


def looping(count, back, vectors=True):
    """A function of so many instructions whose second block leads to itself, or to the last one."""
    function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), []), "f")
    entry, second, last = (ir.IRBuilder(function.append_basic_block()) for _ in range(3))
    four = ir.Constant(ir.VectorType(NUMBER, 4), None)
    for _ in range(count - 3):
        entry.add(four, four) if vectors else entry.alloca(NUMBER)
    entry.branch(second.block)
    second.cbranch(ir.Constant(ir.IntType(1), 0), second.block if back else last.block, last.block)
    last.ret_void()
    return function


@pytest.mark.parametrize(
    ("missing", "back", "text"), [(0, True, 1), (0, False, None), (1, True, None)], ids=["loop", "no loop", "short"]
)
def test_only_long_loops_of_shared_functions_take_all_passes(missing, back, text):
    assert split.shared_levels(looping(split.LONG_LOOP - missing, back)) == (text, 2, True, None)


def test_scalar_loops_take_fewer_passes():
    assert split.shared_levels(looping(split.LONG_LOOP, True, vectors=False)).text == native.LOOPS
    assert split.shared_levels(looping(split.LONG_LOOP, False, vectors=False)).text is None


def empty(module, name, *callees):
    """A function that calls others."""
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), []), name)
    function.linkage = "internal"
    b = ir.IRBuilder(function.append_basic_block())
    for callee in callees:
        b.call(callee, [])
    b.ret_void()
    return function


def test_functions_come_after_those_they_call(compiled):
    module = ir.Module()
    module.triple = native.target()[0]
    first = empty(module, "first")
    second = empty(module, "second", first)
    warp = empty(module, "warp", second)
    empty(module, "run", warp, first)
    empty(module, "of no use", second)
    functions = split.Functions(module)
    warp_code, others = functions.objects("warp", "run").files
    assert list(compiled) == ["first", "second", "run"]
    assert "warp" in symbols(warp_code)
    assert symbols(others) == {"warp", *(functions.symbol(name) for name in compiled)}


def symbols(code):
    """Names of functions in an object file, those that it calls among them."""
    return {n.decode() for n in code.split(b"\0") if n.decode("latin1").split(".")[0] in FUNCTIONS}


FUNCTIONS = {"first", "second", "run", "warp", "nbtc_sum", "of no use"}


def test_functions_of_products_are_in_a_file_of_their_own(compiled):
    module = ir.Module()
    module.triple = native.target()[0]
    first, product = empty(module, "first"), empty(module, "nbtc_sum")
    empty(module, "warp", first, product)
    functions = split.Functions(module)
    _, *files = functions.objects("warp").files
    assert [symbols(code) for code in files] == [{functions.symbol("first")}, {functions.symbol("nbtc_sum")}]


def calling(*names, constant=1):
    """A warp and functions that it calls, of which `first` returns a constant."""
    module = ir.Module()
    module.triple = native.target()[0]
    kind = ir.FunctionType(NUMBER, [])
    made = []
    for name in names:
        function = ir.Function(module, kind, name)
        ir.IRBuilder(function.append_basic_block()).ret(ir.Constant(NUMBER, constant if name == "first" else 7))
        function.attributes.add("noinline")
        made.append(function)
    warp = ir.Function(module, kind, "warp")
    b = ir.IRBuilder(warp.append_basic_block())
    total = ir.Constant(NUMBER, 0)
    for function in made:
        total = b.add(total, b.call(function, []))
    b.ret(total)
    return module


@pytest.mark.parametrize("constant", [1, 2])
def test_a_program_calls_its_own_functions(constant, monkeypatch, tmp_path):
    monkeypatch.setenv("NBTC_CACHE_DIR", str(tmp_path))
    for names, value in ((("first", "second"), 1), (("second", "first"), 2), (("first", "second", "run"), constant)):
        objects, absent = split.Functions(calling(*names, constant=value)).objects("warp")
        code = native.Native(b"".join(objects), {"sizes": [len(x) for x in objects], "absent": absent})
        loaded = native.load(code)
        call = ctypes.CFUNCTYPE(ctypes.c_int32)(loaded.address("warp"))
        assert call() == value + 7 * (len(names) - 1)


def test_what_a_function_that_nobody_calls_would_call_need_not_be_there(monkeypatch, tmp_path):
    """Of a file that the program takes another function from: LLVM would resolve nothing, and calls go to address 0."""
    monkeypatch.setenv("NBTC_CACHE_DIR", str(tmp_path))

    def program(*names):
        """Functions of which "second" calls "first"; the warp calls those that are named."""
        module = calling("first", "second")
        first, second, warp = (module.globals[name] for name in ("first", "second", "warp"))
        third = ir.Function(module, first.ftype, "run")
        ir.IRBuilder(third.append_basic_block()).ret(ir.Constant(NUMBER, 3))
        third.attributes.add("noinline")
        for function, callees in ((second, [first]), (warp, [module.globals[name] for name in names])):
            function.blocks = []
            b = ir.IRBuilder(function.append_basic_block())
            total = ir.Constant(NUMBER, 10)
            for callee in callees:
                total = b.add(total, b.call(callee, []))
            b.ret(total)
        return split.Functions(module).objects("warp")

    found = [program("first"), program("second", "run"), program("run")]
    assert [len(objects.files) for objects in found] == [2, 3, 2]
    assert [[x.split(".")[0] for x in objects.absent] for objects in found] == [[], [], ["first"]]
    for objects, value in zip(found, (11, 24, 13), strict=True):
        about = {"sizes": [len(x) for x in objects.files], "absent": objects.absent}
        loaded = native.load(native.Native(b"".join(objects.files), about))
        assert ctypes.CFUNCTYPE(ctypes.c_int32)(loaded.address("warp"))() == value


def test_a_file_that_is_gone_is_made_anew(monkeypatch, tmp_path):
    monkeypatch.setenv("NBTC_CACHE_DIR", str(tmp_path))
    split.Functions(calling("first")).objects("warp")
    kept = list(tmp_path.rglob("*.o"))
    assert len(kept) == 2
    for path in kept:
        content = path.read_bytes()
        path.unlink()
        assert len(split.Functions(calling("first")).objects("warp").files) == 2
        assert path.read_bytes() == content


def test_functions_that_call_each_other(compiled):
    module = ir.Module()
    module.triple = native.target()[0]
    first = ir.Function(module, ir.FunctionType(ir.VoidType(), []), "first")
    second = empty(module, "second", first)
    ir.IRBuilder(first.append_basic_block()).call(second, [])
    first_builder = ir.IRBuilder(first.blocks[0])
    first_builder.position_at_end(first.blocks[0])
    first_builder.ret_void()
    functions = split.Functions(module)
    code, other = functions.objects("first").files
    assert symbols(code) == {"first", functions.symbol("second")}
    assert symbols(other) == {functions.symbol("second"), "first"}  # the second one calls the first by its name


def test_functions_of_others_that_call_each_other(compiled):
    module = ir.Module()
    module.triple = native.target()[0]
    first = ir.Function(module, ir.FunctionType(ir.VoidType(), []), "first")
    second = empty(module, "second", first)
    b = ir.IRBuilder(first.append_basic_block())
    b.call(second, [])
    b.ret_void()
    empty(module, "warp", first)
    functions = split.Functions(module)
    functions.objects("warp")
    assert functions.symbol("first") == "first" != functions.symbol("second") != "second"


NUMBER = ir.IntType(32)


def adding(others):
    """A function that adds a constant of its module to a word; the module has other constants and metadata before."""
    module = ir.Module()
    module.triple = native.target()[0]
    for n in range(others):
        module.add_metadata([ir.Constant(NUMBER, 7 + n)])
        ir.GlobalVariable(module, NUMBER, f"other{n}").initializer = ir.Constant(NUMBER, n)
    table = ir.GlobalVariable(module, NUMBER, "table")
    table.initializer, table.global_constant, table.linkage = ir.Constant(NUMBER, 5), True, "internal"
    f = ir.Function(module, ir.FunctionType(ir.VoidType(), [NUMBER.as_pointer()]), "add")
    f.attributes.add("nounwind")
    b = ir.IRBuilder(f.append_basic_block())
    with b.if_then(b.icmp_signed(">", b.load(f.args[0]), ir.Constant(NUMBER, 0)), likely=True):
        b.store(b.add(b.load(table), b.load(f.args[0])), f.args[0])
    b.ret_void()
    return f


def test_a_functions_text_is_the_same_in_every_module(compiled):
    made = []
    for n in (0, 3):
        functions = split.Functions(adding(n).module)
        made.append((functions.finished("add"), functions.compiled("add")))
    assert made[0] == made[1]
    text = compiled["add"]  # once
    assert '@"table" = internal constant i32 5' in text
    assert "other" not in text
    assert "!0 = !{" in text


@pytest.mark.parametrize("apart", [False, True], ids=["one module", "two"])
def test_callers_know_what_llvm_found_out(apart, compiled):
    f = adding(0)
    module = ir.Module() if apart else f.module
    module.triple = native.target()[0]
    caller = ir.Function(module, f.ftype, "caller")
    b = ir.IRBuilder(caller.append_basic_block())
    b.call(f, [caller.args[0]])
    b.ret_void()
    others = split.Functions(f.module)
    assert split.Functions(module, others if apart else None).compiled("caller").named == ("add",)
    (declaration,) = (line for line in compiled["caller"].splitlines() if line.startswith("declare"))
    assert "@add." in declaration
    assert "captures(none)" in declaration or "nocapture" in declaration
    assert "argmem: readwrite" in declaration or "argmemonly" in declaration


def test_a_declaration_that_is_not_understood_is_an_error():
    with pytest.raises(RuntimeError, match="otherwise than is known"):
        native._declaration("definiert void @f() {")
