"""Code that asks torch for a GPU finds one, which is the CPU."""

import numpy as np
import pytest
import triton
import triton.language as tl

import nbtc

torch = pytest.importorskip("torch")
from torch.utils._python_dispatch import TorchDispatchMode, return_and_correct_aliasing  # noqa: E402  after the skip


@triton.jit
def doubled(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, 2 * tl.load(x + i, mask=i < n), mask=i < n)


class Doubled(torch.autograd.Function):
    """As libraries write them: they look at the device and make memory on "cuda", in the backward pass too."""

    @staticmethod
    def forward(ctx, x):
        assert x.is_cuda
        assert x.device.type == "cuda"
        y = torch.empty_like(x)
        doubled[(1,)](x, y, x.numel(), B=64)
        return y

    @staticmethod
    def backward(ctx, gradient):
        assert gradient.is_cuda
        assert not gradient.is_cpu
        y = torch.empty(gradient.shape, device="cuda")
        with torch.cuda.device(gradient.device):
            doubled[(1,)](gradient.contiguous(), y, y.numel(), B=64)
        return y


@pytest.fixture
def gpu():
    with nbtc.triton.emulated("sm_90", torch_cuda=True):
        yield


def test_kernels_and_gradients(gpu):
    x = torch.arange(40.0, device="cuda").requires_grad_()
    y = Doubled.apply(x)
    y.sum().backward()
    torch.testing.assert_close(y, 2 * x, rtol=0, atol=0)
    assert (x.grad == 2).all()
    (gradient,) = torch.autograd.grad(Doubled.apply(x).sum(), x)
    assert (gradient == 2).all()


MAKERS = {
    "keyword": lambda: torch.zeros(3, device="cuda:0"),
    "device": lambda: torch.tensor([1, 2], device=torch.device("cuda")),
    "like": lambda: torch.ones_like(torch.zeros(2), device="cuda"),
    "method": lambda: torch.zeros(3).cuda(),
    "to": lambda: torch.zeros(3).to("cuda", torch.float16),
    "to device": lambda: torch.zeros(3).to(torch.device("cuda")),
    "new": lambda: torch.zeros(3).new_empty(2, device="cuda"),
    "pinned": lambda: torch.zeros(3, pin_memory=True),
    "index": lambda: torch.zeros(3, device=0),
    "to index": lambda: torch.zeros(3).to(0).cuda(0),
    "type": lambda: torch.zeros(3).type("torch.cuda.HalfTensor").type(torch.cuda.FloatTensor),
    "legacy": lambda: torch.cuda.LongTensor([1, 2]),
    "generator": lambda: torch.randn(3, generator=torch.Generator("cuda").manual_seed(0), device="cuda"),
    "module": lambda: next(torch.nn.Linear(2, 3).to("cuda").cuda().parameters()),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_tensors(gpu, make):
    x = make()
    assert (x.is_cuda, x.device, x.get_device()) == (True, torch.device("cuda", 0), 0)


def test_default_device(gpu):
    with torch.device("cuda"):
        assert torch.zeros(3).is_cuda
        assert torch.nn.Linear(2, 2).weight.is_cuda


def test_copies_to_the_cpu(gpu):
    x = torch.zeros(3, device="cuda")
    there = x.cpu(), x.to("cpu"), x.to(device="cpu"), x.to(torch.device("cpu"))
    x += 1
    assert all((y == 0).all() for y in there)
    assert x.cuda() is x
    assert np.asarray(x.cpu()).tolist() == [1, 1, 1]


TO_THE_GPU = {
    "to": lambda x: x.to("cuda"),
    "device": lambda x: x.to(device=torch.device("cuda")),
    "cuda": lambda x: x.cuda(),
    "view": lambda x: x[:3].detach().cuda(),
    "back": lambda x: x.cuda().cpu().cuda(),
    "dtype": lambda x: x.to(x.dtype).to("cuda", x.dtype),
}


ON_THE_CPU = {"torch": lambda: torch.zeros(3), "numpy": lambda: torch.from_numpy(np.zeros(3))}


@pytest.mark.parametrize("make", ON_THE_CPU.values(), ids=ON_THE_CPU)
@pytest.mark.parametrize("move", TO_THE_GPU.values(), ids=TO_THE_GPU)
def test_copies_to_the_gpu(gpu, make, move):
    """Kernels that write in place write the copy."""
    x = make()
    y = move(x)
    y += 1
    assert (x == 0).all()
    assert y.cuda() is y.to("cuda") is y


def test_modules_move_their_own_parameters(gpu):
    layer = torch.nn.Linear(2, 3)
    weight, before = layer.weight, layer.weight.detach().cpu()
    assert layer.cuda().weight is weight
    assert weight.is_leaf
    assert (weight == before).all()
    assert layer.to("cuda").weight.data_ptr() == weight.data_ptr()


def test_torch_cuda(gpu):
    assert torch.cuda.is_available()
    assert torch.cuda.get_device_capability() == (9, 0)
    assert torch.cuda.get_device_properties(0).multi_processor_count == 132
    assert torch.accelerator.current_accelerator().type == "cuda"
    assert triton.runtime.driver.active.get_active_torch_device() == torch.zeros(1).device
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    with torch.cuda.stream(torch.cuda.Stream()):
        start.record()
        end.record(torch.cuda.current_stream())
    torch.cuda.synchronize()
    assert start.elapsed_time(end) >= 0
    torch.manual_seed(7)
    first = torch.rand(2)
    torch.cuda.manual_seed_all(7)
    assert (torch.rand(2) == first).all()


def test_functions_held_from_before():
    held = torch.cuda.get_device_properties
    with nbtc.triton.emulated("sm_90", torch_cuda=True):
        assert held(0).multi_processor_count == 132


def test_torch_accelerator(gpu):
    with torch.accelerator.device_index(0):
        torch.accelerator.set_stream(torch.accelerator.current_stream())
        torch.accelerator.synchronize()
    torch.accelerator.reset_peak_memory_stats()
    torch.cuda.set_stream(torch.cuda.ExternalStream(0))
    assert torch.cuda.current_stream() == torch.accelerator.current_stream()
    assert torch.get_device_module() is torch.get_device_module(torch.zeros(1).device) is torch.cuda
    assert torch.get_device_module("cpu") is torch.cpu


def test_autocast(gpu):
    x = torch.ones(2, 2, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        assert (x @ x).dtype == torch.bfloat16
        with torch.autocast("cuda", enabled=False):
            assert (x @ x).dtype == torch.float32
        with torch.autocast("cuda", torch.float16):
            assert (x @ x).dtype == torch.float16
    assert (x @ x).dtype == torch.float32


def test_compiled_functions_run_as_they_are(gpu):
    assert (torch.compile(lambda x: x + 1)(torch.zeros(2, device="cuda")) == 1).all()


def test_afterwards():
    before = torch.load, torch.cuda.Stream
    available, generator = torch.cuda.is_available(), torch.Generator
    with nbtc.triton.emulated("sm_80", torch_cuda=True):
        x = torch.zeros(2, device="cuda")
    assert (torch.load, torch.cuda.Stream) == before
    assert (x.is_cuda, x.device.type) == (False, "cpu")
    assert torch.cuda.is_available() == available
    assert torch.Generator is generator


def test_products_of_wider_numbers(gpu):
    """torch has `out_dtype` on GPUs alone; the sums are those of exact operands."""
    a, b = (torch.randn(s, device="cuda").to(torch.bfloat16) for s in ((4, 8), (8, 3)))
    start, out = torch.randn(4, 3, device="cuda"), torch.empty(4, 3, device="cuda")
    wanted = a.double() @ b.double()
    assert torch.mm(a, b, out_dtype=torch.float32).dtype == torch.float32
    torch.testing.assert_close(torch.mm(a, b, torch.float32).double(), wanted, rtol=1e-5, atol=1e-5)
    torch.addmm(start, a, mat2=b, out_dtype=torch.float32, out=out)
    torch.testing.assert_close(out.double(), start + wanted, rtol=1e-5, atol=1e-5)
    found = torch.bmm(a[None], b[None], out_dtype=torch.float32)[0]
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)


class Calls(TorchDispatchMode):
    """The operators that run."""

    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


def test_products_of_wider_numbers_are_operators_of_their_own(gpu):
    a, out = torch.ones(4, 4, device="cuda", dtype=torch.float16), torch.zeros(4, 4, device="cuda")
    with Calls() as calls:
        torch.addmm(out, a, a, out_dtype=torch.float32, out=out)
        torch.mm(a, a, out_dtype=torch.float32)
    assert {"aten.addmm.dtype_out", "aten.mm.dtype"} <= set(calls.names)
    assert (out == 4).all()


def test_cublas_of_triton(gpu):
    """Triton's tutorials make one at import and compare with its products."""
    from triton._C.libtriton import nvidia

    a, b = (torch.randint(-3, 4, s, device="cuda").to(torch.float16) for s in ((4, 8), (3, 8)))
    c, d = torch.ones(4, 3, device="cuda"), torch.empty(4, 3, device="cuda", dtype=torch.float16)
    handle = nvidia.cublas.CublasLt(torch.empty(1 << 10, device="cuda", dtype=torch.uint8))
    handle.matmul(a, b, d)
    assert (d == a @ b.T).all()
    handle.gemm(a, b, c, d, 2.0, 3.0)
    assert (d == 2 * (a @ b.T) + 3).all()
    with pytest.raises(nbtc.errors.UnsupportedOperationError, match=r"nbtc\.mx"):
        handle.block_scaled_matmul_mxfp8(a, b, d, c, c)


def test_tensors_say_that_they_are_cuda(gpu):
    x = torch.zeros(2, 3, device="cuda")
    assert x.type() == "torch.cuda.FloatTensor"
    about = x.__cuda_array_interface__
    assert (about["shape"], about["typestr"], about["data"]) == ((2, 3), "<f4", (x.data_ptr(), False))


class Scaled(torch.Tensor):
    """A tensor around tensors, as libraries of quantised numbers have them."""

    @staticmethod
    def __new__(cls, whole, scale):
        return torch.Tensor._make_wrapper_subclass(cls, whole.shape, dtype=scale.dtype, device=whole.device)

    def __init__(self, whole, scale):
        self.whole, self.scale = whole, scale

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        x = args[0]
        if func in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            return return_and_correct_aliasing(func, args, kwargs or {}, cls(x.whole, x.scale))
        return func(*(y.whole * y.scale if isinstance(y, cls) else y for y in args), **(kwargs or {}))


def test_classes_of_tensors(gpu):
    x = Scaled(torch.ones(2, 3, dtype=torch.int8, device="cuda"), torch.full((1,), 0.5, device="cuda"))
    weight = torch.nn.Parameter(x, requires_grad=False)
    assert weight.is_cuda
    assert weight.detach().device == torch.device("cuda", 0)
    assert (torch.nn.functional.linear(torch.ones(1, 3, device="cuda"), weight) == 1.5).all()


PLACES = {"text": "cuda", "device": torch.device("cuda", 0), "names": {"cpu": "cuda:0"}, "none": None}


@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)
def test_saved_tensors_are_loaded(gpu, tmp_path, place):
    torch.save({"x": torch.ones(2, device="cuda")}, tmp_path / "saved")
    assert torch.load(tmp_path / "saved", map_location=place)["x"].is_cuda


def test_names_that_tests_of_libraries_ask_for(gpu):
    """Each as they are called; there is one device, and streams do nothing."""
    stream = torch.cuda.Stream(device=0, priority=-1)
    torch.cuda.set_stream(stream)
    assert torch.cuda.ExternalStream(0) == torch.accelerator.current_stream() == stream
    assert torch._C._cuda_getDevice() == torch.cuda.current_blas_handle() == 0
    assert torch.cuda.get_device_properties(device="cuda").major == 9
    assert torch.cuda.max_memory_allocated(device=0) == torch.cuda.memory_stats()["allocated_bytes.all.current"] == 0
    assert torch.cuda.memory_summary()
    assert torch.cuda.can_device_access_peer(0, 0)
    with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
        torch.cuda._sleep(10)
    torch.cuda.default_generators[0].manual_seed(3)
    first = torch.rand(2)
    torch.cuda.manual_seed(3)
    assert (torch.rand(2) == first).all()


def scales(x, *blocks):
    """Powers of two for blocks of a matrix, and the same for its elements."""
    found = 2.0 ** torch.randint(-3, 3, [-(-n // b) for n, b in zip(x.shape, blocks, strict=True)]).float()
    whole = found.repeat_interleave(blocks[0], 0).repeat_interleave(blocks[1], 1)[: x.shape[0], : x.shape[1]]
    return found, x.double() * whole


BLOCKS = {"rows": ((1, 256), (256, 1)), "all": ((16, 256), (256, 160)), "blocks": ((1, 128), (128, 128))}


@pytest.mark.parametrize("blocks", BLOCKS.values(), ids=BLOCKS)
def test_products_with_scales(gpu, blocks):
    a, b = (torch.randint(-4, 5, s, device="cuda").to(torch.float8_e4m3fn) for s in ((16, 256), (256, 160)))
    (one, exact), (two, other) = (scales(x, *size) for x, size in zip((a, b), blocks, strict=True))
    found = torch._scaled_mm(a, b, one, two, bias=torch.ones(160), out_dtype=torch.float32, use_fast_accum=True)
    assert (found == exact @ other + 1).all()


def test_products_with_other_scales_are_refused(gpu):
    x, scale = torch.zeros(32, 32).to(torch.float8_e4m3fn), torch.ones(32, 1).to(torch.float8_e8m0fnu)
    with pytest.raises(nbtc.errors.UnsupportedOperationError, match=r"e8m0fnu.*takes float32"):
        torch._scaled_mm(x, x, scale, scale, out_dtype=torch.float32)


SHAPES = {
    "rows": ((7, 16), (2, 16, 5)),
    "sums": ((7, 16), (16, 5)),
    "stacks": ((2, 7, 16), (2, 16, 5)),
    "columns": ((2, 7, 16), (16, 5)),
}


@pytest.mark.parametrize("kind", SHAPES)
def test_products_of_groups_with_scales(gpu, kind):
    shape, other = SHAPES[kind]
    a, b = (torch.randint(-4, 5, s, device="cuda").to(torch.float8_e4m3fn) for s in (shape, other))
    own = {"rows": ((7,), (2, 5)), "sums": ((14,), (10,)), "stacks": ((2, 7), (2, 5)), "columns": ((2, 7), (5,))}[kind]
    one, two = (2.0 ** torch.randint(-2, 3, s).float() for s in own)
    ends = {"rows": (3, 7), "sums": (9, 16), "columns": (2, 5)}.get(kind)
    offs = None if ends is None else torch.tensor(ends, dtype=torch.int32)
    found = torch._scaled_grouped_mm(a, b, one, two, offs=offs, out_dtype=torch.float32)
    for g in range(2):
        cut = slice(0, ends[0]) if ends and g == 0 else slice(ends[0], ends[1]) if ends else slice(None)
        left = a[cut] if kind == "rows" else a[:, cut] if kind == "sums" else a[g]
        right = b[cut] if kind == "sums" else b[:, cut] if kind == "columns" else b[g]
        rows = one[cut] if kind == "rows" else one.reshape(2, 7)[g]
        columns = two[cut] if kind == "columns" else two.reshape(2, 5)[g]
        part = found[cut] if kind == "rows" else found[:, cut] if kind == "columns" else found[g]
        assert (part == (left.double() @ right.double()) * rows[:, None] * columns).all()


def test_names_that_launch_code_of_libraries_asks_for(gpu):
    with torch.cuda.device(0) as device:
        assert device.idx == torch._C._cuda_getCurrentRawStream(device.idx) == 0
    torch.zeros(2, device="cuda").record_stream(torch.cuda.current_stream())
    assert triton.testing.nvsmi(["clocks.max.sm", "clocks.max.mem"]) == [1980, 2619]
    with pytest.raises(nbtc.errors.OptionError, match=r"clocks\.max\.sm"):
        triton.testing.nvsmi(["power.draw"])
    names = [getattr(torch.cuda, name) for name in ("synchronize", "set_device", "set_rng_state", "empty_cache")]
    assert len(set(names)) == len(names)  # torch.compile has rules by objects


def test_compilers_rules_for_functions_of_torch_cuda(gpu):
    """PyTorch makes them once, for the objects that the names have at that time."""
    rules = torch._dynamo.trace_rules.get_torch_obj_rule_map
    rules.cache_clear()
    try:
        assert rules()
    finally:
        rules.cache_clear()
