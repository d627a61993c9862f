"""Whole models: a model's generated kernels run as a GPU's programs, and torch is as it was afterwards."""

import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
nn = torch.nn

import nbtc  # noqa: E402
from nbtc.errors import ArchError, GuessedOrderWarning, OptionError  # noqa: E402
from nbtc.torch.inductor import engine, philox, private  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::nbtc.errors.NbtcWarning", "ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def forgotten():
    """Every test compiles anew."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


class Net(nn.Module):
    """Small integers, with which no sum is rounded, in whatever order."""

    def __init__(self, d=16):
        super().__init__()
        self.a, self.b = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        return x + self.b(torch.relu(self.a(x)))


def integers(*shape):
    return torch.randint(-1, 2, shape, generator=torch.Generator().manual_seed(sum(shape))).bfloat16()


def step(model, net, x):
    """Output and gradients."""
    x = x.clone().requires_grad_()
    for p in net.parameters():
        p.grad = None
    y = model(x)
    y.sum().backward()
    return [y.detach(), x.grad, *(p.grad for p in net.parameters())]


def test_a_step_of_training():
    net, x = Net().bfloat16(), integers(2, 4, 16)
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(integers(*p.shape))
    fast = nbtc.torch.compile(net, arch="H200", fullgraph=True)
    before = torch.cuda.is_available, torch.autograd.grad, torch.cuda.get_device_properties
    made = step(fast, net, x)
    assert before == (torch.cuda.is_available, torch.autograd.grad, torch.cuda.get_device_properties)
    for expected in (step(net, net, x), step(fast, net, x)):
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(made, expected, strict=True))

    report = fast.report()
    assert {p.op for p in report.products} | {"addmm"} == {"addmm", "mm"} and not report.left  # 2.10 adds biases itself
    assert all(k.launches == 2 for k in report.kernels) and report.gpu == "NVIDIA H200"
    assert any("test_torch_compile.py" in k.source for k in report.kernels)
    name = report.kernels[0].name
    assert ".target sm_90" in fast.kernels[name].ptx and "tl.load" in fast.kernels[name].source
    assert name in str(report) and fast.kernels[name].program.name == name


def test_kernels_tell_their_names():
    fast = nbtc.torch.compile(nn.Sequential(nn.ReLU()), arch="A100")
    assert repr(fast.kernels) == "<kernels: none before the first call>"
    fast(integers(4, 8))
    (name,) = fast.kernels
    assert repr(fast.kernels) == f"<kernels: {name}>"
    with pytest.raises(KeyError, match=rf"is not a kernel of this model, which has {name}: did you mean {name}\?"):
        fast.kernels[name[:-1]]
    assert fast.kernels.get("nothing") is None and "nothing" not in fast.kernels
    (row,) = (line for line in str(fast.report()).splitlines() if line.startswith(name))
    assert row.split()[1] == (fast.kernels[name].origin or "-")


def test_the_example_has_help():
    command = (sys.executable, "-m", "nbtc.examples.characters", "--help")
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0 and "steps of training" in done.stdout


def test_found_by_name():
    fast = torch.compile(lambda x: (x * 2 + 1).sum(-1), backend="nbtc", options={"arch": "A100"})
    x = torch.arange(64.0).reshape(4, 16)
    assert torch.equal(fast(x), (x * 2 + 1).sum(-1))
    assert not torch.cuda.is_available()


def test_what_a_clock_would_choose_is_refused():
    with pytest.raises(OptionError, match="clock"):
        nbtc.torch.compile(nn.Linear(4, 4), options={"max_autotune": True})
    with pytest.raises(OptionError, match="neither nbtc's"):
        nbtc.torch.compile(nn.Linear(4, 4), options={"maximal": True})
    with pytest.raises(ArchError):
        nbtc.torch.compile(nn.Linear(4, 4), arch="H2000")
    options = nbtc.torch.inductor_options()
    assert options["deterministic"] and torch.compile(nn.Linear(4, 4), options=options) is not None


def test_cudnn_decides_the_strides_of_a_convolution():
    """Recorded on an H200: a weight of more than 64 channels has inductor lay out convolutions channels last."""
    net = nn.Sequential(nn.Conv2d(8, 16, 3), nn.ReLU(), nn.Conv2d(16, 96, 1)).bfloat16()
    with torch.no_grad():
        for p in net.parameters():
            p.copy_(integers(*p.shape))
    fast, x = nbtc.torch.compile(net, arch="H200", fullgraph=True), integers(2, 8, 6, 6)
    for ours, theirs in zip(step(fast, net, x), step(net, net, x), strict=True):
        assert torch.equal(ours, theirs)
    forward = Path(fast.session.wrappers[0]).read_text(encoding="utf-8")
    assert re.search(r"\(2, 16, 4, 4\), \(256, 1, 64, 16\),.* 'torch.ops.aten.convolution.default'\)", forward)
    assert not fast.report().left


def test_what_was_generated_is_kept_on_disk(tmp_path, monkeypatch):
    from torch._dynamo.utils import counters

    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    made = []
    for arch in ("H200", "H200", "A100"):
        torch._dynamo.reset()
        counters.clear()
        fast = nbtc.torch.compile(lambda x: (x * 3).relu().sum(-1), arch=arch, dynamic=False)
        x = integers(8, 16).float().requires_grad_()
        y = fast(x)
        y.sum().backward()
        assert torch.equal(y, (x * 3).relu().sum(-1)) and torch.equal(x.grad, 3.0 * (x > 0))
        kernels = list(fast.kernels.values())  # forward and backward
        assert [k.launches for k in kernels] == [1, 1] and "test_torch_compile.py" in kernels[0].origin
        hits = counters["aot_autograd"]["autograd_cache_hit"], counters["inductor"]["fxgraph_cache_hit"]
        made.append((hits, [k.ptx for k in kernels]))
    assert [hits for hits, _ in made] == [(0, 0), (1, 2), (0, 0)]
    assert made[0][1] == made[1][1] and ".target sm_80" in made[2][1][0]


def test_the_lines_of_a_model_are_its_own(tmp_path, monkeypatch):
    """Another model of the same graph has the same kernels, from other lines."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    places = []
    for name in ("one.py", "two.py", "one.py"):
        torch._dynamo.reset()
        text = "\n" * len(places) + "def f(x):\n    return x * 2 + 1\n"
        (tmp_path / name).write_text(text)
        scope = {}
        exec(compile(text, str(tmp_path / name), "exec"), scope)
        fast = nbtc.torch.compile(scope["f"], arch="A100", dynamic=False)
        fast(integers(64))
        (kernel,) = fast.kernels.values()
        places.append(kernel.origin)
    assert places == ["one.py:2", "two.py:3", "one.py:4"]


def test_a_kernel_is_launched_by_hand():
    fast = nbtc.torch.compile(lambda x: x * 2 + 1, arch="A100", dynamic=False)
    x = integers(64)
    fast(x)
    out = torch.zeros_like(x)
    (kernel,) = fast.kernels.values()
    kernel.launch(x, out, 64)
    assert torch.equal(out, x * 2 + 1) and kernel.launches == 1


def test_other_threads_see_what_is_there():
    seen = []

    def look():
        seen.append((torch.cuda.is_available(), torch.cuda.device_count()))

    def adopted(module):
        raise AssertionError("nothing is compiled here")

    from nbtc.isa.archs import gpu

    look()
    with private.believing(gpu("A100"), adopted):
        assert torch.cuda.get_device_properties(0).multi_processor_count == 108 and torch.cuda.is_available()
        thread = threading.Thread(target=look)
        thread.start()
        thread.join()
    assert seen[0] == seen[1] == (torch.cuda.is_available(), torch.cuda.device_count())


def test_the_walk_gives_what_the_engine_gives():
    def outputs(x, w):
        y = torch.tanh(x @ w)
        return [y * y.sum(0), (y + x[:, :3]).cumsum(1)]

    leaves = [
        torch.randn(5, 4, requires_grad=True),
        torch.randn(4, 3, requires_grad=True),
        torch.ones(2, requires_grad=True),
    ]
    made = outputs(*leaves[:2])
    given = [torch.randn_like(y) for y in made]
    walked = engine.grad(made, leaves, given)
    expected = torch.autograd.grad(made, leaves, given, allow_unused=True, retain_graph=True)
    assert walked[2] is None and expected[2] is None
    assert all(torch.equal(a, b) for a, b in zip(walked[:2], expected[:2], strict=True))


def test_random_words_are_those_of_the_paper():
    """Known answers of Philox 4x32-10 (Random123's kat_vectors)."""
    import numpy as np

    ones = philox.philox(2**64 - 1, np.array([2**64 - 1], np.uint64), 2**64 - 1)
    assert [hex(w) for w in ones[0]] == ["0x408f276d", "0x41c83b0e", "0xa20bc7c6", "0x6d5451fd"]


class OwnGenerator:
    """A GPU's generator, as PyTorch has one."""

    seed = offset = 0

    def initial_seed(self):
        return self.seed

    def get_offset(self):
        return self.offset

    def set_offset(self, to):
        self.offset = to


@pytest.mark.parametrize("begun", [False, True], ids=["no GPU in use", "a GPU in use"])
def test_random_integers_are_those_of_a_gpu(begun, monkeypatch):
    """`torch.randint(-(2**63), 2**63 - 1, [n], device="cuda")` of torch 2.11 on an H200, calls after a seed.

    Once PyTorch has a GPU in use, a seed goes to the GPU's generator at once, and its numbers go on from there.
    """
    own = OwnGenerator()
    monkeypatch.setattr(philox.private, "gpu_generator", lambda: own if begun else None)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: begun)  # a seed waits until it is
    monkeypatch.setattr(torch.cuda.random, "device_count", lambda: 0)  # a real one has no generator until it is used
    recorded = {
        0: [[-1862263915586927219], [8711312585543254235, 5367436018037784045]],
        1: [[7199011086300483260], [3172808047433469118, -4948440797913919360]],
        1234567890123: [[-4247721872115855327], [24082056805673310, 7023130228923423202]],
    }
    generator = philox.Generator()
    for seed, calls in recorded.items():
        torch.manual_seed(seed)
        own.seed, own.offset = seed, 0
        for expected in calls:
            out = torch.empty(len(expected), dtype=torch.int64)
            assert generator.integers(-(2**63), 2**63 - 1, out).tolist() == expected
        assert own.offset == philox.WORDS * len(calls) * begun


def test_shapes_that_change_and_graphs_that_break():
    def f(x):
        y = x * 2
        torch._dynamo.graph_break()
        return (y + torch.ones(3)).cpu().sum(0)

    fast = nbtc.torch.compile(f, arch="A100", dynamic=True)
    for rows in (4, 9):
        x = integers(rows, 3).float()
        assert torch.equal(fast(x), f(x))
    assert all(".target sm_80" in kernel.ptx for kernel in fast.kernels.values()) and len(fast.kernels) == 2


def test_importing_compiles_nothing():
    code = "import nbtc.torch, sys; sys.exit('torch._inductor.compile_fx' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_first_kernel_where_two_gpus_part():
    torch.manual_seed(1)
    net = nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 64)).bfloat16()
    found = nbtc.torch.compare(net, torch.randn(64, 256).bfloat16(), ("A100", "H100"), kernels=True)
    first = found.first_kernel
    assert first is not None and first.name in ("addmm", "mm") and 0 < first.differ < first.elements
    assert "native_layer_norm" in found.kernels[0].name and not found.kernels[0].differ
    assert {row.backward for row in found.kernels} == {False, True}
    assert f"ward, sm_90): {first.name}" in str(found)
    assert all(p.grad is None for p in net.parameters())
    with pytest.raises(OptionError, match="GPUs"):
        nbtc.torch.compare(net, torch.randn(32, 256).bfloat16(), "H100", kernels=True)


def test_orders_that_nobody_recorded_for_a_gpu_are_guesses():
    fast = nbtc.torch.compile(torch.nn.Linear(32, 16).bfloat16(), arch="A100", dynamic=False)
    with pytest.warns(GuessedOrderWarning, match="no recording of cublas 13.0 on NVIDIA A100"), torch.no_grad():
        fast(torch.randn(8, 32).bfloat16())
    (product,) = fast.report().products
    assert product.evidence.startswith("guess: no recording")
