"""The driver's functions, as a client calls them by ctypes."""

from __future__ import annotations

from clients import python


def test_a_kernel_runs_on_copied_memory():
    done = python("""
ready()
m = module(TWICE)
f = kernel(m, "twice")
x = (u32 * 64)(*range(64))
d = allocate(256)
ok(cu.cuMemcpyHtoD_v2(d, x, c_size_t(256)))
ok(launch(f, (1, 1, 1), (64, 1, 1), d, u32(40)))
ok(cu.cuCtxSynchronize())
ok(cu.cuMemcpyDtoH_v2(x, d, c_size_t(256)))
assert list(x) == [2 * i if i < 40 else i for i in range(64)]
at, size = u64(), c_size_t()
ok(cu.cuModuleGetGlobal_v2(byref(at), byref(size), m, b"counter"))
v = u32()
ok(cu.cuMemcpyDtoH_v2(byref(v), at, c_size_t(4)))
assert (v.value, size.value) == (7, 4)
major = i32()
ok(cu.cuDeviceGetAttribute(byref(major), 75, 0))
name = create_string_buffer(64)
ok(cu.cuDeviceGetName(name, 64, 0))
text = c_char_p()
ok(cu.cuGetErrorName(700, byref(text)))
assert text.value == b"CUDA_ERROR_ILLEGAL_ADDRESS"
print(major.value, name.value.decode())
""")
    assert done.stdout.startswith("9 ")


def test_what_comes_before_initialisation_or_without_a_context_is_refused():
    python("""
n, p = i32(), u64()
assert cu.cuDeviceGetCount(byref(n)) == 3
assert cu.cuMemAlloc_v2(byref(p), c_size_t(64)) == 3
ok(cu.cuInit(0))
assert cu.cuMemAlloc_v2(byref(p), c_size_t(64)) == 201
assert cu.cuDeviceGet(byref(n), 1) == 101
""")


def test_graphs_are_captured_changed_and_launched():
    python("""
ready()
f = kernel(module(TWICE), "twice")
x = (u32 * 32)(*range(32))
d = allocate(128)
s, g, e = u64(), u64(), u64()
ok(cu.cuStreamCreate(byref(s), 1))
ok(cu.cuStreamBeginCapture_v2(s, 0))
ok(cu.cuMemcpyHtoDAsync_v2(d, x, c_size_t(128), s))
ok(launch(f, (1, 1, 1), (32, 1, 1), d, u32(32), stream=s.value))
ok(launch(f, (1, 1, 1), (32, 1, 1), d, u32(32), stream=s.value))
assert cu.cuStreamSynchronize(c_void_p(0)) == 0
ok(cu.cuStreamEndCapture(s, byref(g)))
n = c_size_t()
ok(cu.cuGraphGetNodes(g, None, byref(n)))
assert n.value == 3
ok(cu.cuGraphInstantiateWithFlags(byref(e), g, u64(0)))
for _ in range(2):
    ok(cu.cuGraphLaunch(e, s))
ok(cu.cuStreamSynchronize(s))
y = (u32 * 32)()
ok(cu.cuMemcpyDtoH_v2(y, d, c_size_t(128)))
assert list(y) == [4 * i for i in range(32)]
ok(cu.cuGraphExecDestroy(e))
ok(cu.cuGraphDestroy(g))
assert cu.cuGraphDestroy(g) == 400
""")


def test_programs_hear_what_the_driver_says(tmp_path):
    python(f"""
heard = []
hear = CFUNCTYPE(None, c_void_p, i32, c_char_p, c_size_t)(lambda *told: heard.append(told))
handle, now, file = u64(), u32(), {str(tmp_path / "log")!r}
assert cu.cuLogsRegisterCallback(byref(now), None, byref(handle)) == 1, "data is not a function"
ok(cu.cuLogsRegisterCallback(hear, c_void_p(7), byref(handle)))
ready()
ok(cu.cuLogsCurrent(byref(now), u32(0)))
m = u64()
assert cu.cuModuleLoadData(byref(m), b".version 8.0 .target sm_80 .address_size 64 .visible .entry k() {{ add; }}")
(data, level, text, size), = heard
assert data == 7 and level == 0 and size == len(text) and b"add" in text, heard
ok(cu.cuLogsUnregisterCallback(handle))
assert cu.cuLogsUnregisterCallback(handle) == 400
into, size = create_string_buffer(300), c_size_t(300)
ok(cu.cuLogsDumpToMemory(byref(now), into, byref(size), u32(0)))
assert into.value == text + b"\\n" and size.value == len(into.value)
ok(cu.cuLogsDumpToMemory(byref(now), into, byref(size), u32(0)))
assert into.value == b"" and size.value == 0, "the iterator is at the end"
ok(cu.cuLogsDumpToFile(None, file.encode(), u32(0)))
assert text.decode() in open(file).read()
""")


def test_memory_is_mapped_to_reserved_addresses():
    python("""
ready()
size, properties = c_size_t(2 << 20), (u32 * 8)(1, 0, 1, 0)
first, handle = u64(), u64()
ok(cu.cuMemAddressReserve(byref(first), size, c_size_t(0), u64(0), u64(0)))
ok(cu.cuMemCreate(byref(handle), size, properties, u64(0)))
ok(cu.cuMemMap(first, size, c_size_t(0), handle, u64(0)))
assert cu.cuMemsetD8_v2(first, c_ubyte(5), size) == 1, "no access was given"
access = (u32 * 3)(1, 0, 3)
ok(cu.cuMemSetAccess(first, size, access, c_size_t(1)))
ok(cu.cuMemsetD8_v2(first, c_ubyte(5), size))
ok(cu.cuMemUnmap(first, size))
ok(cu.cuMemRelease(handle))
ok(cu.cuMemAddressFree(first, size))
assert cu.cuMemRelease(handle) == 400
""")


def test_a_fault_stays_until_the_context_is_reset():
    done = python("""
context = ready()
f = kernel(module(TWICE), "twice")
d = allocate(16)
ok(launch(f, (1, 1, 1), (32, 1, 1), d, u32(32)))
assert cu.cuCtxSynchronize() == 700
p = u64()
assert cu.cuMemAlloc_v2(byref(p), c_size_t(64)) == 700
ok(cu.cuDevicePrimaryCtxReset_v2(0))
ok(cu.cuCtxSetCurrent(context))
d = allocate(128)
f = kernel(module(TWICE), "twice")
ok(launch(f, (1, 1, 1), (32, 1, 1), d, u32(32)))
ok(cu.cuCtxSynchronize())
""")
    assert "reads outside all memory it was given" in done.stderr


def test_entry_points_are_those_of_the_version_that_is_asked_for():
    python("""
ok(cu.cuInit(0))
p, status = u64(), i32()
ok(cu.cuGetProcAddress_v2(b"cuMemAlloc", byref(p), 13000, u64(0), byref(status)))
assert p.value == cast(cu.cuMemAlloc_v2, c_void_p).value
assert cu.cuGetProcAddress_v2(b"cuNothing", byref(p), 13000, u64(0), byref(status)) == 500 and status.value == 1
assert cu.cuGetProcAddress_v2(b"cuMemAllocAsync", byref(p), 11000, u64(0), byref(status)) == 500 and status.value == 2
""")


def test_functions_that_came_with_later_versions_of_cuda_13():
    python("""
version = i32()
ok(cu.cuDriverGetVersion(byref(version)))
assert version.value == 13050, version  # that of the headers: programs compare it with their own
ready()
f, count = kernel(module(TWICE), "twice"), c_size_t()
ok(cu.cuFuncGetParamCount(f, byref(count)))
assert count.value == 2
seen = []
call = CFUNCTYPE(None, c_void_p)(seen.append)
ok(cu.cuLaunchHostFunc_v2(None, call, c_void_p(5), 1))
ok(rt.cudaLaunchHostFunc_v2(None, call, c_void_p(6), 0))
ok(cu.cuCtxSynchronize())
assert seen == [5, 6]
assert cu.cuLaunchHostFunc_v2(None, call, None, 2) == 1, "there is no such way to wait"
linker = CDLL("libnvJitLink.so.13")
for minor in range(6):
    assert hasattr(linker, f"__nvJitLinkCreate_13_{minor}"), minor
""")


def test_private_tables_are_refused_with_what_to_do():
    done = python("""
p = u64(5)
for _ in range(3):
    assert cu.cuGetExportTable(byref(p), (c_ubyte * 16)()) == 500 and not p.value
assert cu.cuMemGetHandleForAddressRange(byref(p), u64(0), c_size_t(0), 0, u64(0)) in (3, 801)
""")
    assert done.stderr.count("-cudart shared") == 1
    assert "cuMemGetHandleForAddressRange isn't there" in done.stderr


def test_nothing_is_said_of_the_table_that_nvrtc_does_without():
    done = python("""
import uuid
p = u64(5)
assert cu.cuGetExportTable(byref(p), uuid.UUID("da9151d3-3ae6-cc41-a5c0-4f26d533e328").bytes) == 500 and not p.value
""")
    assert not done.stderr


def test_machine_code_is_refused_by_name():
    done = python("""
ready()
m = u64()
assert cu.cuModuleLoadData(byref(m), b"\\x7fELF" + bytes(60)) == 209
assert cu.cuModuleLoadData(byref(m), b"hello" + bytes(60)) == 200
assert cu.cuModuleLoadData(byref(m), b".version 8.0\\n.target sm_80\\nnonsense" + bytes(60)) == 218
""")
    assert "machine code without PTX" in done.stderr


def test_a_real_driver_beside_this_one_is_said(tmp_path):
    """What stands for it is a copy of this library under the other's name."""
    import shutil

    from nbtc.libcuda.library.files import folder

    other = tmp_path / "libcuda.so.550.54"
    shutil.copy(folder() / "libcuda.so.1", other)
    done = python(f"CDLL({str(other)!r})\nok(cu.cuInit(0))\n")
    assert str(other) in done.stderr


def test_a_kernels_attributes_are_those_of_its_text():
    done = python(
        """
ready()
m = module(".version 8.0 .target sm_90a .address_size 64 .visible .entry k() .maxntid 8, 4 .reqnctapercluster 2 "
           "{ ret; }")
found = []
for what in (0, 5, 6, 11, 12, 13):
    x = u32()
    ok(cu.cuFuncGetAttribute(byref(x), what, kernel(m, "k")))
    found.append(x.value)
print(*found)
m = module(".version 8.0 .target sm_80 .address_size 64 .visible .entry k() { ret; }")
x = u32()
ok(cu.cuFuncGetAttribute(byref(x), 5, kernel(m, "k")))
print(x.value)
"""
    )
    assert done.stdout == "32 90 90 2 1 1\n80\n", done.stdout + done.stderr


def test_a_batch_of_copies_and_its_attributes():
    python("""
ready()
s = u64()
ok(cu.cuStreamCreate(byref(s), 1))
d = allocate(256).value
x, y, z = (u32 * 16)(*range(16)), (u32 * 16)(*range(100, 116)), (u32 * 32)()
address = lambda array: ctypes.addressof(array)
pair = lambda *values: (u64 * 2)(*values)
def batch(targets, sources, sizes, orders=(1,), firsts=(0,), stream=s):
    attributes = (u32 * (6 * len(orders)))()
    attributes[:: 6] = list(orders)
    firsts = (c_size_t * len(firsts))(*firsts)
    return cu.cuMemcpyBatchAsync_v2(targets, sources, sizes, c_size_t(2), attributes, firsts,
                                    c_size_t(len(firsts)), stream)
ok(batch(pair(d, d + 64), pair(address(x), address(y)), pair(64, 64)))
ok(batch(pair(address(z), address(z) + 64), pair(d + 64, d), pair(64, 64), (1, 3), (0, 1)))
assert list(z) == list(y) + list(x)
wrong = (pair(address(z), address(z)), pair(d, d), pair(64, 64))
assert batch(*wrong, orders=(0,)) == 1          # no order of the sources
assert batch(*wrong, firsts=(1,)) == 1          # the first copy has no attributes
assert batch(*wrong, orders=(1, 1), firsts=(0, 2)) == 1
assert batch(*wrong, stream=None) == 1          # the legacy stream
assert batch(pair(address(z), d + 250), pair(d, d), pair(64, 64)) == 1  # past the allocation's end
assert cu.cuMemcpyBatchAsync_v2(None, None, None, c_size_t(2), None, None, c_size_t(1), s) == 1
failed = c_size_t()
one, first = (u32 * 6)(1), (c_size_t * 1)(0)
ok(cu.cuMemcpyBatchAsync(pair(d, d + 64), pair(address(y), address(y)), pair(64, 64), c_size_t(2), one, first,
                         c_size_t(1), byref(failed), s))
assert failed.value == 2**64 - 1
""")


def test_pools_of_the_host_and_managed_pools_give_memory_of_their_kind():
    python("""
ready()
s = u64()
ok(cu.cuStreamCreate(byref(s), 1))
def pool(allocation, location):
    found, properties = u64(), (u32 * 32)(allocation, 0, location)
    return cu.cuMemPoolCreate(byref(found), properties), found
def kind(address):
    found, managed = u32(), u32()
    ok(cu.cuPointerGetAttribute(byref(found), 2, address))
    ok(cu.cuPointerGetAttribute(byref(managed), 8, address))
    return found.value, managed.value
for allocation, location, expected in ((1, 1, (2, 0)), (1, 2, (1, 0)), (1, 3, (1, 0)), (2, 0, (2, 1))):
    code, made = pool(allocation, location)
    ok(code)
    p, used = u64(), u64()
    ok(cu.cuMemAllocFromPoolAsync(byref(p), c_size_t(64), made, s))
    assert kind(p) == expected, (allocation, location, kind(p))
    ok(cu.cuMemPoolGetAttribute(made, 7, byref(used)))
    assert used.value >= 64
    if expected != (2, 0):  # the host may use it
        (u32 * 16).from_address(p.value)[:] = range(16)
        x = (u32 * 16)()
        ok(cu.cuMemcpyAsync(u64(ctypes.addressof(x)), p, c_size_t(64), s))
        assert list(x) == list(range(16))
    ok(cu.cuMemFreeAsync(p, s))
    assert cu.cuMemFreeAsync(p, s) == 1
    ok(cu.cuMemPoolDestroy(made))
assert pool(3, 1)[0] == pool(1, 0)[0] == pool(1, 9)[0] == 1
supported = u32()
ok(cu.cuDeviceGetAttribute(byref(supported), 144, 0))  # HOST_MEMORY_POOLS_SUPPORTED
assert supported.value == 1
""")
