"""The driver against a library that is not there: what it is asked, and what is said where it answers no."""

import ctypes

import numpy as np
import pytest

from nbtc.driver import device, is_device_array, launch, launching, library
from nbtc.driver.arrays import Buffer
from nbtc.errors import DeviceError, FormatError, RangeError
from nbtc.formats import device_arrays
from nbtc.formats.device_arrays import device_array

TEXT = """.version {version}
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 x, .param .f32 y, .param .align 8 .b8 s[12]) // (a comment)
{{ ret; }}
.visible .entry nothing()
{{ ret; }}
"""


class FakeLibrary:
    """Stands where libcuda would: functions by name, memory on the heap."""

    def __init__(self, newest=(9, 0), arch=(9, 0), devices=1):
        self.newest, self.arch, self.devices = newest, arch, devices
        self.calls, self.texts, self.launches, self.memory = [], [], [], {}

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*arguments):
            self.calls.append(name)
            return getattr(self, f"do_{name}", lambda *a: 0)(*arguments)

        return call

    @staticmethod
    def put(reference, value):
        reference._obj.value = value
        return 0

    def do_cuInit(self, flags):
        return 0 if self.devices else 100

    def do_cuGetErrorName(self, code, out):
        return self.put(out, f"CUDA_ERROR_{code}".encode())

    def do_cuDeviceGet(self, out, ordinal):
        return self.put(out, ordinal) if ordinal < self.devices else 101

    def do_cuDevicePrimaryCtxRetain(self, out, device):
        return self.put(out, 0x1000 + device.value)

    def do_cuDeviceGetAttribute(self, out, which, device):
        return self.put(out, self.arch[which - 75])

    def do_cuDeviceGetName(self, buffer, size, device):
        buffer.value = b"Fake GPU"
        return 0

    def do_cuDriverGetVersion(self, out):
        return self.put(out, 13000)

    def do_cuModuleLoadDataEx(self, out, text, count, options, values):
        text = text.decode()
        self.texts.append(text)
        version = tuple(map(int, text.split(".version ")[1].split()[0].split(".")))
        if version > self.newest:
            return 222
        if "broken" in text:
            ctypes.memmove(values[0], b"line 3: unknown symbol 'broken'\0", 32)
            return 218
        return self.put(out, len(self.texts))

    def do_cuModuleGetFunction(self, out, module, name):
        if name.decode() not in self.texts[module.value - 1]:
            return 500
        return self.put(out, 0x2000 + module.value)

    def do_cuMemAlloc_v2(self, out, size):
        buffer = ctypes.create_string_buffer(size.value)
        address = ctypes.addressof(buffer)
        self.memory[address] = buffer
        return self.put(out, address)

    def do_cuMemFree_v2(self, pointer):
        del self.memory[pointer.value]
        return 0

    def do_cuMemcpyHtoD_v2(self, to, source, size):
        ctypes.memmove(to.value, source, size.value)
        return 0

    def do_cuMemcpyDtoH_v2(self, to, source, size):
        ctypes.memmove(to, source.value, size.value)
        return 0

    def do_cuPointerGetAttribute(self, out, which, pointer):
        inside = any(a <= pointer.value < a + len(buffer) for a, buffer in self.memory.items())
        return self.put(out, 0) if inside else 1

    def do_cuLaunchKernel(self, function, *rest):
        *extents, shared, stream, pointers, _ = rest
        self.launches.append((tuple(extents), shared, stream.value, pointers))
        return 0


@pytest.fixture
def fake(monkeypatch):
    made = FakeLibrary()
    use(monkeypatch, made)
    yield made
    device.device.cache_clear()
    library.driver.cache_clear()


def use(monkeypatch, made):
    monkeypatch.setattr(library.ctypes, "CDLL", lambda name: made)
    library.driver.cache_clear()
    device.device.cache_clear()


def sent(launched, sizes):
    """The parameter bytes of a launch."""
    return [ctypes.string_at(p, n) for p, n in zip(launched[3], sizes, strict=True)]


def test_a_launch_passes_addresses_and_values(fake, monkeypatch):
    kept = []
    monkeypatch.setattr(
        fake, "do_cuLaunchKernel", lambda f, *rest: kept.extend(sent((0, 0, 0, rest[8]), (8, 4, 12))) or 0
    )
    x = Buffer.of(np.arange(4, dtype=np.float32))
    launch(TEXT.format(version="8.0"), "k", (2, 3), 32, 0, None, [x, 1.5, b"twelve bytes"])
    assert kept == [x.address.to_bytes(8, "little"), np.float32(1.5).tobytes(), b"twelve bytes"]


def test_extents_shared_memory_and_stream(fake):
    class Stream:
        cuda_stream = 77

    launch(TEXT.format(version="8.0"), "nothing", (2, 3), (8, 4, 2), 100_000, Stream(), [])
    ((extents, shared, stream, _),) = fake.launches
    assert extents == (2, 3, 1, 8, 4, 2) and shared == 100_000 and stream == 77
    assert "cuFuncSetAttribute" in fake.calls


def test_a_text_is_compiled_once(fake):
    for _ in range(3):
        launch(TEXT.format(version="8.0"), "nothing", 1, 1, 0, None, [])
    assert len(fake.texts) == 1 and len(fake.launches) == 3


def test_the_version_is_lowered_to_what_the_driver_takes(fake):
    fake.newest = (8, 4)
    launch(TEXT.format(version="8.7"), "nothing", 1, 1, 0, None, [])
    tried = [t.split()[1] for t in fake.texts]
    assert tried == ["8.7", "8.6", "8.5", "8.4"]
    launch(TEXT.format(version="9.0"), "nothing", 1, 1, 0, None, [])
    assert [t.split()[1] for t in fake.texts[4:]] == ["8.4"]  # what was learned is used at once
    launch(TEXT.format(version="8.0"), "nothing", 1, 1, 0, None, [])
    assert fake.texts[-1].startswith(".version 8.0")  # older text is left as it is


def test_what_the_driver_says_of_a_broken_text(fake):
    with pytest.raises(DeviceError, match=r"Fake GPU.*error 218.*unknown symbol 'broken'"):
        launch(TEXT.format(version="8.0") + "broken", "nothing", 1, 1, 0, None, [])
    with pytest.raises(DeviceError, match=r"has no \.version line"):
        launch(".visible .entry k() { ret; }", "k", 1, 1, 0, None, [])


@pytest.mark.parametrize(
    ("args", "error", "text"),
    [
        ([], FormatError, "takes 3 arguments"),
        ([np.zeros(3), 1.0, bytes(12)], FormatError, "host memory"),
        ([0, "a", bytes(12)], FormatError, "pass a number"),
        ([1 << 70, 1.0, bytes(12)], RangeError, "does not fit"),
    ],
)
def test_wrong_arguments_raise_before_the_launch(fake, args, error, text):
    with pytest.raises(error, match=text):
        launch(TEXT.format(version="8.0"), "k", 1, 1, 0, None, args)
    assert fake.launches == []


def test_an_array_is_no_scalar(fake):
    with pytest.raises(FormatError, match="takes no array"):
        launch(TEXT.format(version="8.0"), "k", 1, 1, 0, None, [0, Buffer(16), bytes(12)])


def test_memory_of_no_gpu(fake):
    with pytest.raises(DeviceError, match="in no GPU's memory"):
        launch(TEXT.format(version="8.0"), "k", 1, 1, 0, None, [Interface((4,), "<f4"), 1.0, bytes(12)])


def test_buffers_come_back_and_are_freed(fake):
    x = np.arange(10, dtype=np.int16)
    buffer, back = Buffer.of(x), np.empty_like(x)
    buffer.read(back)
    assert (back == x).all() and len(fake.memory) == 1
    del buffer
    assert not fake.memory


def test_no_driver_and_no_gpu_say_what_to_do(monkeypatch):
    def absent(name):
        raise OSError(f"{name}: no such library")

    monkeypatch.setattr(library.ctypes, "CDLL", absent)
    library.driver.cache_clear()
    device.device.cache_clear()
    with pytest.raises(DeviceError, match=r"no driver.*install NVIDIA's driver"):
        launch(TEXT.format(version="8.0"), "nothing", 1, 1, 0, None, [])
    use(monkeypatch, FakeLibrary(devices=0))
    with pytest.raises(DeviceError, match=r"finds none.*CUDA_ERROR_100"):
        launch(TEXT.format(version="8.0"), "nothing", 1, 1, 0, None, [])
    library.driver.cache_clear()
    device.device.cache_clear()


class Interface:
    """An array of another library."""

    def __init__(self, shape, typestr, address=4096, strides=None, dtype=None):
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": typestr, "data": (address, False), "strides": strides, "version": 3,
        }  # fmt: skip
        if dtype is not None:
            self.dtype = dtype


def test_arrays_of_other_libraries():
    assert is_device_array(Interface((4,), "<f4")) and not is_device_array(np.zeros(3)) and not is_device_array(3)
    assert device_array(Interface((2, 3), "<f2"))[1:4] == ((2, 3), (6, 2), np.dtype(np.float16))
    assert device_array(Interface((2, 3), "<f4", strides=(4, 8))).strides == (4, 8)
    import ml_dtypes

    named = device_array(Interface((4,), "<V2", dtype=np.dtype(ml_dtypes.bfloat16)))
    assert named.dtype == ml_dtypes.bfloat16
    with pytest.raises(FormatError, match="not an array in a GPU's memory"):
        device_array(np.zeros(3))


class Packed:
    """An array that speaks DLPack alone; the capsule is NumPy's, of host memory."""

    def __init__(self, x):
        self.x = x

    def __dlpack_device__(self):
        return device_arrays.CUDA, 0

    def __dlpack__(self):
        return self.x.__dlpack__()


def test_dlpack_where_there_is_no_interface():
    x = np.arange(24, dtype=np.float32).reshape(4, 6)[:, ::2]
    found = device_array(Packed(x))
    assert found[:4] == (x.ctypes.data, x.shape, x.strides, x.dtype)


@pytest.mark.parametrize(
    ("code", "bits", "lanes", "dtype"), [(14, 8, 1, "float8_e8m0fnu"), (17, 4, 2, "uint8"), (10, 8, 1, "float8_e4m3fn")]
)
def test_dlpack_of_narrow_floats(code, bits, lanes, dtype):
    import ml_dtypes

    shape = (ctypes.c_int64 * 2)(3, 5)
    tensor = device_arrays._Tensor(4096, device_arrays.CUDA, 0, 2, code, bits, lanes, shape, None, 0)
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    capsule = new(ctypes.addressof(tensor), device_arrays._CAPSULE, None)
    x = type("Narrow", (), {"__dlpack_device__": lambda s: (2, 0), "__dlpack__": lambda s: capsule})()
    found = device_array(x)
    assert found.dtype == getattr(ml_dtypes, dtype, None) or found.dtype == dtype
    assert (found.address, found.shape, found.strides) == (4096, (3, 5), (5, 1))


@pytest.mark.parametrize("name", ["cuda_stream", "ptr"])
def test_streams_of_other_libraries(name):
    assert launching.stream_handle(type("Stream", (), {name: 5})()) == 5
    assert launching.stream_handle(type("Stream", (), {"__cuda_stream__": lambda self: (0, 9)})()) == 9
    assert launching.stream_handle(type("Stream", (), {"handle": ctypes.c_void_p(6)})()) == 6
    with pytest.raises(FormatError, match="is not a stream"):
        launching.stream_handle("stream")
