"""PyTorch's builds for CUDA on nbtc's driver: eager operations, Triton's kernels, torch.compile."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
if torch.version.cuda is None or not torch.version.cuda.startswith("13"):
    pytest.skip("torch is not a build for CUDA 13", allow_module_level=True)

START = """
import nbtc; nbtc.cuda.install("H200")
import torch
from nbtc.interop.torch_cuda import autoload
autoload()  # what PyTorch does by itself where nbtc's entry points are installed
def refused(word, function):
    try:
        function()
    except Exception as error:
        assert word in str(error), error
    else:
        raise SystemExit(f"not refused: {word}")
"""


def client(folder, code: str) -> str:
    """A program in a process of its own; what it said."""
    file = folder / "program.py"  # Triton reads the sources of kernels
    file.write_text(START + code, encoding="utf-8")
    done = subprocess.run([sys.executable, "-P", str(file)], capture_output=True, text=True, timeout=900)
    assert not done.returncode, done.stdout + done.stderr[-6000:]
    return done.stderr


def test_eager_operations_and_a_step_of_training_are_the_cpus(tmp_path):
    said = client(
        tmp_path,
        """
g = torch.Generator().manual_seed(5)
a, b = torch.randn(6, 7, generator=g), torch.randn(7, 5, generator=g)
x, y = a.cuda(), b.to("cuda")
def same(found, expected):
    assert found.is_cuda and not expected.is_cuda and torch.equal(found.cpu(), expected), (found, expected)
same(x + 2, a + 2); same(x @ y, a @ b); same(x.T[1:3], a.T[1:3]); same(x.t().half(), a.t().half())
n, m = torch.arange(4, device="cuda"), torch.arange(4)
same(n & 1, m & 1); same(n == 1, m == 1); same(n << 1, m << 1); same(torch.where(n > 1, n, 0), torch.where(m > 1, m, 0))
same(x[x > 0], a[a > 0]); same(torch.cat([x, x.flip(0)]), torch.cat([a, a.flip(0)])); same(x.sum(1), a.sum(1))
same(x.to(torch.complex64).conj() * 1j, a.to(torch.complex64).conj() * 1j)
same(torch.arange(5, device="cuda"), torch.arange(5)); same(torch.eye(3, device="cuda"), torch.eye(3))
values, places = x.max(dim=1)
same(values, a.max(dim=1)[0]); same(places, a.max(dim=1)[1])
z = x
z += 1
assert z is x
a += 1
same(x, a)
x[2, 1:3] = 9; a[2, 1:3] = 9
same(x, a)
x.t()[:2].copy_(torch.arange(12).reshape(2, 6)); a.t()[:2].copy_(torch.arange(12).reshape(2, 6))
same(x, a)
out = torch.empty(0, device="cuda")
assert torch.add(x, x, out=out) is out
same(out, a + a)
into = torch.zeros_like(x)
torch.mul(x, 3, out=into)
same(into, a * 3)
assert float(x[0, 0]) == float(a[0, 0]) and bool((x == x).all())
same(torch.empty(0, 3, device="cuda").sum(0), torch.zeros(3))

def draw():
    return torch.rand(3, device="cuda").tolist(), torch.randn(2, device="cuda").tolist()
torch.manual_seed(3)
first, second = draw(), draw()
assert first != second
torch.manual_seed(3)
assert draw() == first
state = torch.cuda.get_rng_state()
one, _ = draw(), torch.cuda.set_rng_state(state)
assert draw() == one == second
own = torch.Generator("cuda").manual_seed(8)
n = torch.randperm(9, generator=own, device="cuda")
assert sorted(n.tolist()) == list(range(9))
assert n.tolist() == torch.randperm(9, generator=torch.Generator("cuda").manual_seed(8), device="cuda").tolist()

graph = torch.cuda.CUDAGraph()
def captured():
    with torch.cuda.graph(graph):
        x + 1
refused("can't become part of a CUDA graph", captured)
refused("_thnn_fused_lstm_cell", lambda: torch.nn.LSTM(4, 4).cuda()(torch.ones(2, 3, 4, device="cuda")))

import copy
from torch import nn
from torch.nn import functional as F
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(2))
        self.norm, self.head = nn.LayerNorm(9), nn.Linear(9, 9)
    def forward(self, x):
        h = self.norm(self.body(x))
        return self.head(F.scaled_dot_product_attention(h, h, h))
torch.manual_seed(1)
one, x = Net(), torch.randn(4, 3, 8, 8)
other = copy.deepcopy(one).cuda()
for model, batch in ((one, x), (other, x.cuda())):
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    for _ in range(2):
        optimizer.zero_grad()
        F.cross_entropy(model(batch).flatten(1), torch.arange(4, device=batch.device)).backward()
        optimizer.step()
for p, q in zip(one.parameters(), other.parameters(), strict=True):
    assert q.is_cuda and torch.equal(p, q.cpu()), (p, q)

import threading
found = []
def work(n):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        y = torch.full((100,), float(n), device="cuda")
        for _ in range(20):
            y = y + 1
        stream.synchronize()
        found.append((n, y.sum().item()))
threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
for t in threads: t.start()
for t in threads: t.join()
assert sorted(found) == [(n, 100.0 * (n + 20)) for n in range(6)], found

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 32
    def __getitem__(self, i):
        return torch.full((4,), float(i))
total = torch.zeros(4, device="cuda")
for batch in torch.utils.data.DataLoader(Numbers(), batch_size=8, num_workers=2, pin_memory=True):
    assert batch.is_pinned()
    total += batch.cuda(non_blocking=True).sum(0)
assert total.tolist() == [496.0] * 4, "workers are forked processes"
""",
    )
    assert said.count("PyTorch's own operations are machine code") == 1


def test_kernels_of_triton_and_of_torch_compile(tmp_path):
    client(
        tmp_path,
        """
import triton, triton.language as tl

@triton.jit
def add(x, y, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(o + i, tl.load(x + i, mask=i < n) + tl.load(y + i, mask=i < n), mask=i < n)

x, y = torch.rand(5000, device="cuda"), torch.rand(5000, device="cuda")
o = torch.empty_like(x)
run = lambda: add[(triton.cdiv(5000, 1024),)](x, y, o, 5000, B=1024)
run()
assert torch.equal(o, x + y)
assert 0 < triton.testing.do_bench(run, warmup=1, rep=2) < 1e4

@triton.jit
def softmax(o, x, stride, rows, n, B: tl.constexpr, stages: tl.constexpr):
    i = tl.arange(0, B)
    for row in tl.range(tl.program_id(0), rows, tl.num_programs(0), num_stages=stages):
        v = tl.load(x + row * stride + i, mask=i < n, other=-float("inf"))
        e = tl.exp(v - tl.max(v, axis=0))
        tl.store(o + row * stride + i, e / tl.sum(e, axis=0), mask=i < n)

x = torch.arange(30.0, device="cuda")[:, None].repeat(1, 512)
o = torch.empty_like(x)
kernel = softmax.warmup(o, x, 512, 30, 512, B=512, stages=4, num_warps=8, grid=(1,))
kernel._init_handles()
assert kernel.n_regs > 0 and triton.runtime.driver.active.utils.get_device_properties(0)["multiprocessor_count"] == 132
kernel[(8, 1, 1)](o, x, 512, 30, 512, 512, 4)
assert torch.equal(o, torch.softmax(x, 1)) and (o == 1 / 512).all()

@triton.autotune([triton.Config({"M": 64, "N": n, "K": 32}, num_warps=4) for n in (16, 32)], key=["k"])
@triton.jit
def product(a, b, c, k, sa, sb, sc, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):
    m, n, i = tl.program_id(0) * M + tl.arange(0, M), tl.program_id(1) * N + tl.arange(0, N), tl.arange(0, K)
    acc = tl.zeros((M, N), tl.float32)
    for start in range(0, k, K):
        acc = tl.dot(tl.load(a + m[:, None] * sa + (start + i)[None, :]),
                     tl.load(b + (start + i)[:, None] * sb + n[None, :]), acc)
    tl.store(c + m[:, None] * sc + n[None, :], acc)

a, b = (torch.randn(64, 64, device="cuda", dtype=torch.float16) for _ in range(2))
c = torch.empty(64, 64, device="cuda")
product[lambda meta: (64 // meta["M"], 64 // meta["N"])](a, b, c, 64, 64, 64, 64)
expected = nbtc.matmul(a.cpu().numpy(), b.cpu().numpy(), arch="sm_90")
assert torch.equal(c.cpu(), torch.from_numpy(expected)), "the bits of tensor cores"

class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(w)
        o = torch.empty_like(x)
        add[(1,)](x * w, x, o, x.numel(), B=1024)
        return o
    @staticmethod
    def backward(ctx, g):
        return g * (ctx.saved_tensors[0] + 1), None

x = torch.randn(100, device="cuda", requires_grad=True)
Scale.apply(x, torch.full((100,), 2.0, device="cuda")).sum().backward()
assert torch.equal(x.grad, torch.full((100,), 3.0, device="cuda"))

@triton.jit
def sums(x, o, lock, n, B: tl.constexpr):
    v = tl.load(x + tl.program_id(0) * B + tl.arange(0, B))
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    tl.store(o + tl.arange(0, B), tl.load(o + tl.arange(0, B)) + v)
    tl.atomic_xchg(lock, 0)

x, o = torch.ones(16 * 128, device="cuda"), torch.zeros(128, device="cuda")
sums[(16,)](x, o, torch.zeros(1, dtype=torch.int32, device="cuda"), 0, B=128)
assert torch.equal(o, torch.full((128,), 16.0, device="cuda"))

@torch.compile
def fused(x, y):
    return (torch.relu(x * 2 + y).sum(dim=1), x @ y.T)

x, y = (torch.randint(-9, 9, (16, 64), device="cuda").float() for _ in range(2))  # whose sums are exact
one, two = fused(x, y)
assert one.is_cuda and torch.equal(one, torch.relu(x * 2 + y).sum(1)) and torch.equal(two, x @ y.T)
""",
    )


def test_descriptors_dependent_launches_and_graphs_of_triton(tmp_path):
    client(
        tmp_path,
        """
import triton, triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

@triton.jit
def product(a, b, c, o, m, n, k, M: tl.constexpr, N: tl.constexpr, K: tl.constexpr, STEP: tl.constexpr):
    made = tl.make_tensor_descriptor(o, shape=[m, n], strides=[n, 1], block_shape=[M, N])
    across = tl.cdiv(n, N)
    for t in tl.range(tl.program_id(0), tl.cdiv(m, M) * across, STEP, flatten=True):
        y, x = t // across * M, t % across * N
        acc = tl.zeros((M, N), tl.float32)
        for i in range(tl.cdiv(k, K)):
            acc = tl.dot(a.load([y, i * K]), b.load([x, i * K]).T, acc)
        c.store([y, x], acc.to(tl.float16))
        made.store([y, x], acc.to(tl.float16))

a, b = (torch.randn(128, 64, device="cuda").half() for _ in range(2))
c, o = (torch.empty(128, 128, device="cuda", dtype=torch.float16) for _ in range(2))
triton.set_allocator(lambda size, align, stream: torch.empty(size, device="cuda", dtype=torch.int8))
of = lambda t, *block: TensorDescriptor.from_tensor(t, list(block))
product[(2,)](of(a, 64, 32), of(b, 64, 32), of(c, 64, 64), o, 128, 128, 64, M=64, N=64, K=32, STEP=2, num_stages=2)
assert torch.equal(c, o) and torch.allclose(c, a @ b.T, atol=0.0625)

@triton.jit
def add(x, o, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.extra.cuda.gdc_wait()
    v = tl.load(x + i, mask=i < n)
    tl.extra.cuda.gdc_launch_dependents()
    tl.store(o + i, v + 1, mask=i < n)

x, y, z = torch.zeros(500, device="cuda"), torch.empty(500, device="cuda"), torch.empty(500, device="cuda")
add[(4,)](x, y, 500, B=128, launch_pdl=True)
add[(4,)](y, z, 500, B=128, launch_pdl=True)
assert torch.equal(z, x + 2)
assert triton.testing.do_bench_cudagraph(lambda: add[(4,)](z, z, 500, B=128, launch_pdl=True), rep=1) > 0
assert z[0] > 3 and torch.equal(z, z[0].expand(500))
""",
    )


def test_pytorch_loads_it_by_itself():
    found = importlib.metadata.entry_points(group="torch.backends")
    if not any(e.value == "nbtc.interop.torch_cuda:autoload" for e in found):
        pytest.skip("nbtc was installed before it had this entry point: pip install -e .")
    code = "import torch; assert torch.ones(3, device='cuda').sum().item() == 3"
    command = [sys.executable, "-P", "-m", "nbtc", "run", sys.executable, "-P", "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert not done.returncode, done.stderr[-3000:]


def test_another_pytorch_is_still_imported(monkeypatch):
    from nbtc.interop import torch_cuda

    assert not torch_cuda.on_driver(), "this process has no driver of nbtc's"
    torch_cuda.autoload()
    assert "nbtc.interop.torch_cuda.operations" not in sys.modules
    monkeypatch.setattr(torch_cuda, "on_driver", lambda: True)
    monkeypatch.setitem(sys.modules, "nbtc.interop.torch_cuda.operations", None)  # it can't be imported
    with pytest.warns(RuntimeWarning, match=r"can't be handed to the CPU.*ModuleNotFoundError"):
        torch_cuda.autoload()
