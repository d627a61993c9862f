"""Allocations that graphs make: by hand, and captured."""

from __future__ import annotations

from clients import python

NODES = """
import struct
def alloc(graph, after, size, kind=1):
    row = create_string_buffer(struct.pack("<IIII72xQQQQ", 1, 0, kind, 0, 0, 0, size, 0), 120)
    node, before = u64(), (u64 * 1)(after.value if after else 0)
    code = cu.cuGraphAddMemAllocNode(byref(node), graph, before, c_size_t(bool(after)), row)
    return code, node, u64(struct.unpack_from("<Q", row, 112)[0])
def free(graph, after, address):
    node, before = u64(), (u64 * 1)(after.value if after else 0)
    return cu.cuGraphAddMemFreeNode(byref(node), graph, before, c_size_t(bool(after)), address), node
def fill(graph, after, address, value, count):
    row = struct.pack("<QQIIQQ", address.value, 0, value, 4, count, 1)
    node, before = u64(), (u64 * 1)(after.value)
    ok(cu.cuGraphAddMemsetNode(byref(node), graph, before, c_size_t(1), row, context))
    return node
def used():
    found = (u64 * 4)()
    for i in range(4):
        ok(cu.cuDeviceGetGraphMemAttribute(0, i, byref(found, 8 * i)))
    return list(found)
context = ready()
g, e, again = u64(), u64(), u64()
"""


def test_an_allocation_lives_from_its_node_until_it_is_freed():
    python(
        NODES
        + """
ok(cu.cuGraphCreate(byref(g), 0))
assert alloc(g, None, 0)[0] == 1 and alloc(g, None, 4096, kind=7)[0] == 1
code, a, d = alloc(g, None, 4096)
ok(code)
fill(g, a, d, 7, 1024)
assert used() == [0, 0, 4096, 4096]
x = (u32 * 1024)()
assert cu.cuMemcpyDtoH_v2(x, d, c_size_t(4096)) == 1, "the node hasn't run"
ok(cu.cuGraphInstantiateWithFlags(byref(e), g, u64(0)))
ok(cu.cuGraphLaunch(e, None))
ok(cu.cuMemcpyDtoH_v2(x, d, c_size_t(4096)))
assert set(x) == {7} and used() == [4096, 4096, 4096, 4096]
assert cu.cuGraphLaunch(e, None) == 1, "it wasn't freed"
ok(cu.cuMemFree_v2(d))
assert cu.cuMemFree_v2(d) == 1
ok(cu.cuGraphLaunch(e, None))
ok(cu.cuMemFreeAsync(d, None))
ok(cu.cuGraphInstantiateWithFlags(byref(again), g, u64(1)))  # frees before it launches
ok(cu.cuGraphLaunch(again, None))
ok(cu.cuGraphLaunch(again, None))
other, o = u64(), u64()
ok(cu.cuGraphCreate(byref(other), 0))
ok(free(other, None, d)[0])
assert free(other, None, d)[0] == 1, "freed twice"
assert free(other, None, allocate(64))[0] == 1, "no graph's"
assert cu.cuGraphClone(byref(o), other) == 1
ok(cu.cuGraphInstantiateWithFlags(byref(o), other, u64(0)))
ok(cu.cuGraphLaunch(o, None))
assert used()[0] == 0 and cu.cuGraphLaunch(o, None) == 1
ok(cu.cuDeviceSetGraphMemAttribute(0, 1, byref(u64(0))))
assert used()[:2] == [0, 0]
assert cu.cuDeviceSetGraphMemAttribute(0, 0, byref(u64(0))) == 1
"""
    )


def test_addresses_return_with_their_graph():
    python(
        NODES
        + """
import gc
seen = set()
for _ in range(20):
    ok(cu.cuGraphCreate(byref(g), 0))
    code, a, d = alloc(g, None, 1 << 20)
    ok(code)
    ok(free(g, a, d)[0])
    ok(cu.cuGraphInstantiateWithFlags(byref(e), g, u64(0)))
    ok(cu.cuGraphLaunch(e, None))
    ok(cu.cuGraphExecDestroy(e))
    ok(cu.cuGraphDestroy(g))
    gc.collect()
    seen.add(d.value)
    assert used()[2] == 0
assert len(seen) == 1, seen
"""
    )


def test_allocations_are_captured():
    python(
        NODES
        + """
f, s, d = kernel(module(TWICE), "twice"), u64(), u64()
x, y = (u32 * 32)(*range(32)), (u32 * 32)()
ok(cu.cuStreamCreate(byref(s), 1))
ok(cu.cuStreamBeginCapture_v2(s, 0))
ok(cu.cuMemAllocAsync(byref(d), c_size_t(128), s))
ok(cu.cuMemcpyHtoDAsync_v2(d, x, c_size_t(128), s))
ok(launch(f, (1, 1, 1), (32, 1, 1), d, u32(32), stream=s.value))
ok(cu.cuMemcpyDtoHAsync_v2(y, d, c_size_t(128), s))
ok(cu.cuMemFreeAsync(d, s))
assert cu.cuMemFreeAsync(d, s) == 1
ok(cu.cuStreamEndCapture(s, byref(g)))
n = c_size_t()
ok(cu.cuGraphGetNodes(g, None, byref(n)))
assert n.value == 5
ok(cu.cuGraphInstantiateWithFlags(byref(e), g, u64(0)))
for _ in range(2):
    ok(cu.cuGraphLaunch(e, s))
    assert list(y) == [2 * i for i in range(32)]
    memset(y, 0, 128)
assert cu.cuMemsetD8_v2(d, c_ubyte(0), c_size_t(1)) == 1, "freed by the graph"
"""
    )
