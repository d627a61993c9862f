"""Conditional nodes of graphs: which graph runs, how often, and what is refused."""

from __future__ import annotations

import pytest
from clients import python

NODES = """
import struct
IF, WHILE, SWITCH = range(3)
TEXT = '''.version 8.3 .target sm_80 .address_size 64
.extern .func cudaGraphSetConditional (.param .b64 h, .param .b32 v);
.visible .entry set(.param .u64 handle, .param .u64 counter) {
.reg .b32 v; .reg .b64 a, h;
ld.param.u64 a, [counter]; ld.param.u64 h, [handle]; ld.global.u32 v, [a]; sub.u32 v, v, 1; st.global.u32 [a], v;
{ .param .b64 x; .param .b32 y; st.param.b64 [x], h; st.param.b32 [y], v; call cudaGraphSetConditional, (x, y); }
ret; }
.visible .entry add(.param .u64 counter, .param .u32 n) {
.reg .b32 v, m; .reg .b64 a;
ld.param.u64 a, [counter]; ld.param.u32 m, [n]; ld.global.u32 v, [a+4]; add.u32 v, v, m; st.global.u32 [a+4], v;
ret; }'''
context = ready()
m = module(TEXT)
set_, add = kernel(m, "set"), kernel(m, "add")
d = allocate(8)
def graph():
    g = u64()
    ok(cu.cuGraphCreate(byref(g), 0))
    return g
def handle(g, default=0, flags=0):
    h = u64()
    ok(cu.cuGraphConditionalHandleCreate(byref(h), g, context, default, flags))
    return h
def node(g, kind, rest, after=None):
    row = create_string_buffer(struct.pack("<I12x", kind) + rest, 256)
    n, before = u64(), (u64 * 1)(after.value if after else 0)
    code = cu.cuGraphAddNode_v2(byref(n), g, before, None, c_size_t(bool(after)), row)
    return code, n, row
def choice(g, h, kind, size, after=None):
    code, n, row = node(g, 13, struct.pack("<QII", h.value, kind, size), after)
    at = struct.unpack_from("<Q", row, 32)[0]
    return code, n, [u64(x) for x in (u64 * size).from_address(at)] if not code else []
def call(g, f, *args, after=None):
    pointers = (c_void_p * len(args))(*(cast(byref(a), c_void_p) for a in args))
    rest = struct.pack("<Q7I4xQQQQ", f.value, 1, 1, 1, 1, 1, 1, 0, addressof(pointers), 0, 0, 0)
    code, n, _ = node(g, 0, rest, after)
    ok(code)
    return n
def executable(g):
    e = u64()
    ok(cu.cuGraphInstantiateWithFlags(byref(e), g, u64(0)))
    return e
def run(e, counter):
    x = (u32 * 2)(counter, 0)
    ok(cu.cuMemcpyHtoD_v2(d, x, c_size_t(8)))
    ok(cu.cuGraphLaunch(e, None))
    ok(cu.cuMemcpyDtoH_v2(x, d, c_size_t(8)))
    return list(x)
"""


@pytest.mark.parametrize(
    ("kind", "bodies", "expected"),
    [
        ("IF", 1, {1: [0, 0], 2: [1, 1], 5: [4, 1]}),
        ("IF", 2, {1: [0, 10], 2: [1, 1]}),
        ("SWITCH", 3, {1: [0, 1], 2: [1, 10], 3: [2, 100], 4: [3, 0], 0: [0xFFFFFFFF, 0]}),
    ],
)
def test_the_condition_says_which_graph_runs(kind, bodies, expected):
    python(
        NODES
        + f"""
g = graph()
h = handle(g)
first = call(g, set_, h, d)
code, _, bodies = choice(g, h, {kind}, {bodies}, first)
ok(code)
for i, body in enumerate(bodies):
    call(body, add, d, u32(10**i))
e = executable(g)
for counter, expected in {expected}.items():
    assert run(e, counter) == expected, counter
"""
    )


def test_a_loop_runs_while_its_condition_says_so_and_begins_with_the_default():
    python(
        NODES
        + """
g = graph()
h = handle(g, 1, 1)
code, n, (body,) = choice(g, h, WHILE, 1)
ok(code)
call(body, add, d, u32(3), after=call(body, set_, h, d))
e = executable(g)
call(body, add, d, u32(1000))  # after the graph was instantiated: no part of it
assert run(e, 7) == [0, 21] and run(e, 2) == [0, 6]
kind = u32()
ok(cu.cuGraphNodeGetType(n, byref(kind)))
assert kind.value == 13
"""
    )


def test_conditions_inside_of_conditions_and_updates():
    python(
        NODES
        + """
def made(step):
    g = graph()
    outer, inner = handle(g, 1, 1), handle(g, 1, 1)
    code, _, (body,) = choice(g, outer, WHILE, 1)
    ok(code)
    first = call(body, set_, outer, d)
    code, _, (deep,) = choice(body, inner, IF, 1, first)
    ok(code)
    call(deep, add, d, u32(step))
    return g
g, other = made(1), made(5)
e = executable(g)
assert run(e, 4) == [0, 4]
info = create_string_buffer(24)
ok(cu.cuGraphExecUpdate_v2(e, other, info))
ok(cu.cuGraphDestroy(g))
ok(cu.cuGraphDestroy(other))
assert run(e, 4) == [0, 20]
third = graph()
ok(choice(third, handle(third), IF, 1)[0])
assert cu.cuGraphExecUpdate_v2(e, third, info) == 910
"""
    )


def test_captured_graphs_take_conditional_nodes():
    python(
        NODES
        + """
s, g, status, deps, count = u64(), u64(), u32(), u64(), c_size_t()
ok(cu.cuStreamCreate(byref(s), 1))
ok(cu.cuStreamBeginCapture_v2(s, 0))
ok(cu.cuStreamGetCaptureInfo_v3(s, byref(status), None, byref(g), None, None, None))
h = handle(g)
ok(launch(set_, (1, 1, 1), (1, 1, 1), h, d, stream=s.value))
ok(cu.cuStreamGetCaptureInfo_v3(s, byref(status), None, byref(g), byref(deps), None, byref(count)))
first = u64.from_address(deps.value)
code, n, (body,) = choice(g, h, WHILE, 1, first)
ok(code)
ok(cu.cuStreamUpdateCaptureDependencies_v2(s, byref(n), None, c_size_t(1), 1))
ok(launch(add, (1, 1, 1), (1, 1, 1), d, u32(100), stream=s.value))
ok(cu.cuStreamEndCapture(s, byref(g)))
ok(cu.cuStreamBeginCaptureToGraph(s, body, None, None, c_size_t(0), 0))
ok(launch(add, (1, 1, 1), (1, 1, 1), d, u32(1), stream=s.value))
ok(launch(set_, (1, 1, 1), (1, 1, 1), h, d, stream=s.value))
ok(cu.cuStreamEndCapture(s, None))
assert run(executable(g), 5) == [0, 104]
found = (u64 * 4)()
count = c_size_t(4)
ok(cu.cuGraphNodeGetDependencies_v2(n, found, None, byref(count)))
assert count.value == 1 and found[0] == first.value
ok(cu.cuGraphNodeGetDependentNodes_v2(first, None, None, byref(count)))
assert count.value == 1
"""
    )


def test_what_cannot_be_a_conditional_node_is_refused():
    python(
        NODES
        + """
g, o = graph(), u64()
h = handle(g)
assert cu.cuGraphConditionalHandleCreate(byref(o), g, context, 0, 2) == 1
for kind, size in ((IF, 0), (IF, 3), (WHILE, 2), (SWITCH, 0), (SWITCH, 1 << 20), (3, 1)):
    assert choice(g, h, kind, size)[0] == 1, (kind, size)
assert choice(g, d, IF, 1)[0] == 1, "no handle"
code, _, (body,) = choice(g, h, IF, 1)
ok(code)
assert choice(g, h, IF, 1)[0] == 1, "a handle has one node"
assert cu.cuMemFree_v2(h) == 1
outer = graph()
assert cu.cuGraphAddChildGraphNode(byref(o), outer, None, c_size_t(0), g) == 1
called = CFUNCTYPE(None, c_void_p)(lambda data: None)
ok(node(body, 3, struct.pack("<QQ", cast(called, c_void_p).value, 0))[0])
assert cu.cuGraphInstantiateWithFlags(byref(o), g, u64(0)) == 1, "functions of the host aren't for bodies"
"""
    )


def test_a_fault_ends_a_loop():
    done = python(
        NODES
        + """
g = graph()
h = handle(g, 1, 1)
code, _, (body,) = choice(g, h, WHILE, 1)
ok(code)
call(body, add, u64(8), u32(1))
e = executable(g)
cu.cuGraphLaunch(e, None)
assert cu.cuCtxSynchronize() == 700
"""
    )
    assert "add" in done.stderr


def test_a_handle_that_is_none_is_a_bad_address():
    done = python(NODES + "ok(launch(set_, (1, 1, 1), (1, 1, 1), u64(4096), d))\nassert cu.cuCtxSynchronize() == 700")
    assert "set: line 6: call: writes outside" in done.stderr
