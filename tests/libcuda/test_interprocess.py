"""Memory, events and pools of one process in another."""

from __future__ import annotations

from clients import PRELUDE, python

HEADER = """
import os, subprocess, array, socket
class Ticket(Structure):
    _fields_ = [("bytes", c_ubyte * 64)]

def read(p, count):
    out = (u32 * count)()
    ok(cu.cuMemcpyDtoH_v2(out, p, c_size_t(4 * count)))
    return list(out)

def write(p, *values):
    ok(cu.cuMemcpyHtoD_v2(p, (u32 * len(values))(*values), c_size_t(4 * len(values))))
"""
# A process of its own, which has as its standard input a socket to the one that starts it.
STARTED = """
def started(text):
    here, there = socket.socketpair()
    child = subprocess.Popen([sys.executable, "-c", PRELUDE + HEADER + OTHER + text], stdin=there)
    there.close()
    return here, child
"""
OTHER = """
here = socket.socket(fileno=os.dup(0))
ready()
"""


def both(text: str, other: str) -> None:
    """Run a process, whose `other()` starts a second one."""
    texts = f"PRELUDE, HEADER, OTHER = {PRELUDE!r}, {HEADER!r}, {OTHER!r}"
    python(f"{texts}\n{HEADER}{STARTED}\nother = lambda: started({other!r})\n{text}")


def test_memory_of_another_process():
    both(
        """
ready()
small, p, t, same = allocate(512), allocate(5000), Ticket(), Ticket()
write(p, *range(1000))
write(small, 5)
ok(cu.cuIpcGetMemHandle(byref(t), p))
ok(cu.cuIpcGetMemHandle(byref(same), p))
assert bytes(t) == bytes(same)
q = u64()
assert cu.cuIpcOpenMemHandle_v2(byref(q), t, u32(1)) == 201, "its own process's"
talk, child = other()
talk.sendall(bytes(t))
assert talk.recv(1) == b"1" and read(p, 4) == [0, 2, 4, 3], "the other's kernel has run"
write(p, 7)
talk.sendall(b"2")
assert talk.recv(1) == b"3"
ok(cu.cuMemFree_v2(p))
talk.sendall(b"4")
assert child.wait() == 0 and read(small, 1) == [5]
""",
        """
t, p, again = Ticket.from_buffer_copy(here.recv(64)), u64(), u64()
ok(cu.cuIpcOpenMemHandle_v2(byref(p), t, u32(1)))
ok(cu.cuIpcOpenMemHandle_v2(byref(again), t, u32(1)))
assert p.value == again.value and read(p, 1000) == list(range(1000))
ok(launch(kernel(module(TWICE), "twice"), (1, 1, 1), (32, 1, 1), p, u32(3)))
assert launch(kernel(module(TWICE), "twice"), (1, 1, 1), (32, 1, 1), u64(p.value + 5024), u32(1)) == 0
assert cu.cuCtxSynchronize() == 700, "beyond the allocation's end, in pages of its neighbours"
ok(cu.cuDevicePrimaryCtxReset_v2(0))
ready()
p = u64()
ok(cu.cuIpcOpenMemHandle_v2(byref(p), t, u32(1)))
assert cu.cuMemFree_v2(p) == 1
here.sendall(b"1")
here.recv(1)
assert read(p, 2) == [7, 2]
ok(cu.cuIpcCloseMemHandle(p))
assert cu.cuIpcCloseMemHandle(p) == 1 and cu.cuMemcpyHtoD_v2(p, (u32 * 1)(), c_size_t(4)) == 1
here.sendall(b"3")
here.recv(1)
assert cu.cuIpcOpenMemHandle_v2(byref(p), t, u32(1)) == 1, "it has been freed"
for at in (0, 8, 24, 28):  # a forged one: magic, name, process, file
    forged = Ticket.from_buffer_copy(bytes(t))
    forged.bytes[at] ^= 1
    assert cu.cuIpcOpenMemHandle_v2(byref(p), forged, u32(1)) == 1
""",
    )


def test_an_event_of_another_process():
    both(
        """
ready()
e, plain, t = u64(), u64(), Ticket()
ok(cu.cuEventCreate(byref(e), u32(6)))
ok(cu.cuEventCreate(byref(plain), u32(2)))
assert cu.cuIpcGetEventHandle(byref(t), plain) == 400
ok(cu.cuIpcGetEventHandle(byref(t), e))
talk, child = other()
talk.sendall(bytes(t))
assert child.wait() == 0
""",
        """
e, t = u64(), Ticket.from_buffer_copy(here.recv(64))
ok(cu.cuIpcOpenEventHandle(byref(e), t))
ok(cu.cuStreamWaitEvent(None, e, u32(0)))
ok(cu.cuEventRecord(e, None))
ok(cu.cuEventDestroy_v2(e))
p = u64()
assert cu.cuIpcOpenMemHandle_v2(byref(p), t, u32(1)) == 1, "a ticket of an event"
""",
    )


def test_virtual_memory_of_another_process():
    both(
        """
ready()
size, plain, shared, file, p = 2 << 20, u64(), u64(), i32(), u64()
properties = (u32 * 8)(1, 0, 1, 0)
ok(cu.cuMemCreate(byref(plain), c_size_t(size), properties, u64(0)))
assert cu.cuMemExportToShareableHandle(byref(file), plain, u32(1), u64(0)) == 1
properties[1] = 1
ok(cu.cuMemCreate(byref(shared), c_size_t(size), properties, u64(0)))
told = (u32 * 8)()
ok(cu.cuMemGetAllocationPropertiesFromHandle(told, shared))
assert list(told) == list(properties)
ok(cu.cuMemExportToShareableHandle(byref(file), shared, u32(1), u64(0)))
ok(cu.cuMemAddressReserve(byref(p), c_size_t(size), c_size_t(0), u64(0), u64(0)))
ok(cu.cuMemMap(p, c_size_t(size), c_size_t(0), shared, u64(0)))
ok(cu.cuMemSetAccess(p, c_size_t(size), (u32 * 3)(1, 0, 3), c_size_t(1)))
write(p, 1, 2, 3)
talk, child = other()
socket.send_fds(talk, [b"x"], [file.value])
os.close(file.value)
assert child.wait() == 0 and read(p, 3) == [2, 4, 6]
""",
        """
_, (file,), _, _ = socket.recv_fds(here, 1, 1)
size, got, p = 2 << 20, u64(), u64()
assert cu.cuMemImportFromShareableHandle(byref(got), c_void_p(0), u32(1)) == 1, "a socket"
ok(cu.cuMemImportFromShareableHandle(byref(got), c_void_p(file), u32(1)))
os.close(file)
ok(cu.cuMemAddressReserve(byref(p), c_size_t(size), c_size_t(0), u64(0), u64(0)))
ok(cu.cuMemMap(p, c_size_t(size), c_size_t(0), got, u64(0)))
ok(cu.cuMemRelease(got))
ok(cu.cuMemSetAccess(p, c_size_t(size), (u32 * 3)(1, 0, 3), c_size_t(1)))
ok(launch(kernel(module(TWICE), "twice"), (1, 1, 1), (32, 1, 1), p, u32(3)))
""",
    )


def test_pools_of_another_process():
    both(
        """
ready()
properties, pools, files, p = (u32 * 22)(1, 1, 1, 0), (u64 * 2)(), (i32 * 2)(), (u64 * 2)()
told = (Ticket * 2)()
for i in range(2):
    ok(cu.cuMemPoolCreate(byref(pools, 8 * i), properties))
    ok(cu.cuMemPoolExportToShareableHandle(byref(files, 4 * i), u64(pools[i]), u32(1), u64(0)))
    ok(cu.cuMemAllocFromPoolAsync(byref(p, 8 * i), c_size_t(64), u64(pools[i]), None))
    ok(cu.cuMemPoolExportPointer(byref(told, 64 * i), u64(p[i])))
    write(u64(p[i]), 3 + i, 2)
talk, child = other()
socket.send_fds(talk, [bytes(told)], list(files))
assert child.wait() == 0 and read(u64(p[1]), 2) == [8, 2]
properties[1] = 0
ok(cu.cuMemPoolCreate(byref(pools), properties))
assert cu.cuMemPoolExportToShareableHandle(byref(files), u64(pools[0]), u32(1), u64(0)) == 1
""",
        """
raw, files, _, _ = socket.recv_fds(here, 128, 2)
told, pools, p = (Ticket * 2).from_buffer_copy(raw), (u64 * 2)(), u64()
for i in range(2):
    ok(cu.cuMemPoolImportFromShareableHandle(byref(pools, 8 * i), c_void_p(files[i]), u32(1), u64(0)))
assert cu.cuMemPoolImportPointer(byref(p), u64(pools[1]), byref(told)) == 1, "the other pool's"
ok(cu.cuMemPoolImportPointer(byref(p), u64(pools[1]), byref(told, 64)))
assert read(p, 2) == [4, 2]
write(p, 8)
assert cu.cuMemAllocFromPoolAsync(byref(u64()), c_size_t(64), u64(pools[1]), None) == 1
ok(cu.cuMemFreeAsync(p, None))
assert cu.cuMemFreeAsync(p, None) == 1
""",
    )


def test_a_forked_child_leaves_its_parents_memory_alone():
    python(
        HEADER
        + """
ready()
p = allocate(8192)
write(p, 1, 2)
child = os.fork()
if not child:
    cu.cuDevicePrimaryCtxReset_v2(0)
    cu.cuMemFree_v2(p)
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0 and read(p, 2) == [1, 2]
"""
    )
