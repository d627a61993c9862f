"""Large modules, whose kernels are read when they are first asked for."""

from __future__ import annotations

import numpy as np
import pytest
from clients import python

from nbtc.errors import ParseError, ProgramError
from nbtc.executor.program import Module
from nbtc.executor.text.kernels import kernel_texts, with_bodies
from nbtc.executor.text.parse import parse

HEAD = """.version 8.0 .target sm_80 .address_size 64
.visible .global .align 4 .u32 all[2] = {7, 8}; // a brace in a comment: {
.func (.param .b32 r) twice(.param .b32 x) { .reg .b32 a;
ld.param.b32 a, [x]; add.u32 a, a, a; st.param.b32 [r], a; ret; }
"""
KERNEL = """.visible .entry kNUMBER(.param .u64 x, .param .u32 n)
.maxntid 64
{ .reg .b32 v, m; .reg .b64 a; /* } */ STATIC
ld.param.u64 a, [x]; ld.param.u32 m, [n];
{ .param .b32 p; .param .b32 q; st.param.b32 [p], m; call (q), twice, (p); ld.param.b32 v, [q]; }
add.u32 v, v, NUMBER; atom.global.add.u32 v, [all], v; st.global.u32 [a], v;
WRONG
ret; }
"""


def kernel(number, wrong="", static=""):
    return KERNEL.replace("NUMBER", str(number)).replace("WRONG", wrong).replace("STATIC", static)


def text(*wrong):
    return HEAD + "".join(kernel(i, static=".global .u32 mine = 5;" * (i == 3)) for i in range(8)) + "".join(wrong)


def test_a_kernel_read_alone_is_the_kernel_of_the_whole():
    whole, source = parse(text()), text()
    found = kernel_texts(source)
    assert [k.name for k in found] == [f"k{i}" for i in range(8)] and [k.lasts for k in found] == [
        i == 3 for i in range(8)
    ]
    module = Module(source, by_kernel=True)
    for i in range(8):
        part = module.part(f"k{i}")
        assert part.functions[f"k{i}"] == whole.functions[f"k{i}"]
        assert list(part.functions) == list(whole.functions) and part.variables == whole.variables
    assert sorted(module.globals) == sorted(Module(source).globals)


VARIABLES = (
    ("", 0, 0),
    (".shared .align 16 .b8 tile[64]; .local .u32 y, z;", 64, 8),
    ("{ .shared .u32 x; }\n{ .shared\n.v2 .u32 x; .local .f64 d; }", 12, 8),
    ("// .shared .u32 a;\n/* .shared .u32 b;\n .local .u32 c; */ .shared .u32 d; ld.shared.u32 v, [d];", 4, 0),
    (".shared .b8 odd /* ; */ [3];", 3, 0),
)


@pytest.mark.parametrize(("declared", "shared", "local"), VARIABLES)
def test_variables_of_kernels_are_known_before_their_instructions(declared, shared, local):
    source = HEAD + kernel(1, static=declared) + kernel(2)
    whole, emptied = parse(source), parse(with_bodies(source, kernel_texts(source)))
    for space, size in (("shared", shared), ("local", local)):
        for module in (whole, emptied):
            assert sum(v.bytes for v in module.functions["k1"].variables if v.space == space) == size
    assert emptied.functions["k1"].directives == whole.functions["k1"].directives
    assert emptied.functions["k2"].line == whole.functions["k2"].line
    assert len(emptied.functions["k2"].body) == 1


def test_kernels_share_the_modules_variables():
    results = []
    for by_kernel in (False, True):
        module, x = Module(text(), by_kernel=by_kernel), np.zeros(1, np.uint32)
        for i in (5, 2, 3):
            module[f"k{i}"].launch(1, 1, (x, i))
            results.append((int(x[0]), module.globals["all"].tobytes()))
    assert results[:3] == results[3:] and results[0][0] == 7


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [("add.u32 v v m;", ParseError), ("frob.b32 v, m;", ProgramError), ("add.u32 v, a, m;", ParseError)],
)
def test_one_bad_kernel_leaves_the_others(wrong, kind):
    module, x = Module(text(kernel(9, wrong)), by_kernel=True), np.zeros(1, np.uint32)
    module["k1"].launch(1, 1, (x, 1))
    with pytest.raises(kind, match="line 75"):
        module["k9"].launch(1, 1, (x, 1))


def test_texts_whose_braces_do_not_match_are_read_whole():
    for broken in (text() + "}", text() + "{", text()[:-3]):
        assert kernel_texts(broken) == []
        with pytest.raises(ParseError):
            Module(broken, by_kernel=True)


def test_a_large_module_of_the_driver_says_which_kernel_is_wrong():
    done = python(
        f"""
ready()
text = {text(kernel(9, "frob.b32 v, m;"), kernel(10, "add.u32 v v m;"))!r} + "//" + "-" * (1 << 16)
m, d, x = module(text), allocate(4), u32()
for name, n in (("k9", 1), ("k10", 1), ("k2", 3)):
    code = launch(kernel(m, name), (1, 1, 1), (1, 1, 1), d, u32(n))
    print(name, code, cu.cuCtxSynchronize())
ok(cu.cuMemcpyDtoH_v2(byref(x), d, c_size_t(4)))
print(x.value)
"""
    )
    assert done.stdout == "k9 218 0\nk10 218 0\nk2 0 0\n7\n", done.stdout + done.stderr
    assert "frob.b32" in done.stderr and "line 75" in done.stderr and "line 83" in done.stderr


def test_compilers_and_linkers_fill_the_callers_logs():
    python("""
import struct
ready()
def options(info, error):
    kinds = (i32 * 5)(3, 4, 5, 6, 2)
    return kinds, (u64 * 5)(addressof(info), len(info), addressof(error), len(error), 7)
def logs():
    return create_string_buffer(b"x" * 99, 100), create_string_buffer(b"x" * 99, 100)
info, error = logs()
kinds, values = options(info, error)
m = u64()
bad = TWICE.replace("mul.wide.u32 o, t, 4", "mul.wide.u32 o, t, missing").encode()
assert cu.cuModuleLoadDataEx(byref(m), bad, 5, kinds, values) == 218
assert info.value == b"" and b"missing" in error.value and len(error.value) == values[3] & 0xFFFFFFFF
assert values[1] & 0xFFFFFFFF == 0 and struct.unpack("<f", struct.pack("<Q", values[4])[:4])[0] > 0
info, error = logs()
kinds, values = options(info, error)
ok(cu.cuModuleLoadDataEx(byref(m), TWICE.encode(), 5, kinds, values))
assert info.value == error.value == b""
small = create_string_buffer(8)
kinds, values = options(info, small)
link, out, size = u64(), u64(), c_size_t()
ok(cu.cuLinkCreate_v2(5, kinds, values, byref(link)))
assert cu.cuLinkAddData_v2(link, 1, b"nothing", c_size_t(7), b"some.ptx", 0, None, None) == 801
assert small.value == b"some.pt" and values[3] & 0xFFFFFFFF == 7
ok(cu.cuLinkAddData_v2(link, 1, TWICE.encode(), c_size_t(len(TWICE)), b"twice", 0, None, None))
ok(cu.cuLinkComplete(link, byref(out), byref(size)))
ok(cu.cuLinkDestroy(link))
""")
