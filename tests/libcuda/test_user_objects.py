"""What graphs keep for their users, and memory's own handles."""

from clients import python


def test_destructors_run_when_no_graph_refers_to_an_object():
    python("""
ready()
destroyed = []
destroy = CFUNCTYPE(None, c_void_p)(lambda data: destroyed.append(data))
NO_SYNC, MOVE = 1, 1
def made(data, count=1):
    x = u64()
    ok(cu.cuUserObjectCreate(byref(x), c_void_p(data), destroy, u32(count), u32(NO_SYNC)))
    return x
def graph():
    g = u64()
    ok(cu.cuGraphCreate(byref(g), u32(0)))
    return g
assert cu.cuUserObjectCreate(byref(u64()), None, destroy, u32(1), u32(0)) == 1, "flags"
assert cu.cuUserObjectCreate(byref(u64()), None, destroy, u32(0), u32(NO_SYNC)) == 1, "count"
assert cu.cuUserObjectCreate(byref(u64()), None, byref(u64()), u32(1), u32(NO_SYNC)) == 1, "data is not a function"
x = made(5, 2)
ok(cu.cuUserObjectRetain(x, u32(1)))
assert cu.cuUserObjectRelease(x, u32(4)) == 1
ok(cu.cuUserObjectRelease(x, u32(2)))
assert not destroyed
ok(cu.cuUserObjectRelease(x, u32(1)))
assert destroyed == [5] and cu.cuUserObjectRelease(x, u32(1)) == 400
one, x = graph(), made(6)
ok(cu.cuGraphRetainUserObject(one, x, u32(1), u32(MOVE)))
assert cu.cuGraphReleaseUserObject(one, x, u32(2)) == 1
executable, clone, outer, node = u64(), u64(), graph(), u64()
ok(cu.cuGraphInstantiateWithFlags(byref(executable), one, u64(0)))
ok(cu.cuGraphClone(byref(clone), one))
ok(cu.cuGraphAddChildGraphNode(byref(node), outer, None, c_size_t(0), one))
second = u64()
ok(cu.cuGraphInstantiateWithFlags(byref(second), outer, u64(0)))
for call, handle in ((cu.cuGraphDestroy, one), (cu.cuGraphExecDestroy, executable), (cu.cuGraphDestroy, clone),
                     (cu.cuGraphDestroy, outer), (cu.cuGraphExecDestroy, second)):
    assert destroyed == [5], "a graph still refers to it"
    ok(call(handle))
assert destroyed == [5, 6]
one, x = graph(), made(7)
ok(rt.cudaGraphRetainUserObject(one, x, u32(2), u32(0)))
ok(rt.cudaUserObjectRelease(x, u32(1)))
ok(rt.cudaGraphReleaseUserObject(one, x, u32(1)))
assert destroyed == [5, 6]
ok(rt.cudaGraphDestroy(one))
assert destroyed == [5, 6, 7]
""")


def test_mapped_memory_gives_its_handle_again():
    python("""
ready()
size = 2 << 20
where, memory, again = u64(), u64(), u64()
properties, access = (u32 * 8)(1, 0, 1, 0), (u32 * 3)(1, 0, 3)
ok(cu.cuMemAddressReserve(byref(where), c_size_t(size), c_size_t(0), u64(0), u64(0)))
assert cu.cuMemRetainAllocationHandle(byref(again), where) == 1, "nothing is mapped"
ok(cu.cuMemCreate(byref(memory), c_size_t(size), properties, u64(0)))
ok(cu.cuMemMap(where, c_size_t(size), c_size_t(0), memory, u64(0)))
ok(cu.cuMemSetAccess(where, c_size_t(size), access, c_size_t(1)))
ok(cu.cuMemRetainAllocationHandle(byref(again), u64(where.value + 4096)))
assert again.value == memory.value
ok(cu.cuMemRelease(memory))
ok(cu.cuMemRelease(again))
assert cu.cuMemRelease(memory) == 400
ok(cu.cuMemsetD32_v2(where, u32(9), c_size_t(4)))
ok(cu.cuMemRetainAllocationHandle(byref(again), where))
ok(cu.cuMemUnmap(where, c_size_t(size)))
ok(cu.cuMemAddressFree(where, c_size_t(size)))
other = u64()
ok(cu.cuMemAddressReserve(byref(other), c_size_t(size), c_size_t(0), u64(0), u64(0)))
ok(cu.cuMemMap(other, c_size_t(size), c_size_t(0), again, u64(0)))
ok(cu.cuMemSetAccess(other, c_size_t(size), access, c_size_t(1)))
n = u32()
ok(cu.cuMemcpyDtoH_v2(byref(n), other, c_size_t(4)))
assert n.value == 9, "the memory lives as long as a handle or a mapping"
ok(cu.cuMemRelease(again))
""")
