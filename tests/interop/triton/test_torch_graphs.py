"""CUDA graphs of torch, and operators that have a kernel for CUDA alone."""

import pytest
import triton
import triton.language as tl

import nbtc

torch = pytest.importorskip("torch")


@triton.jit
def added(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(y + i, mask=i < n) + tl.load(x + i, mask=i < n), mask=i < n)


@pytest.fixture
def gpu():
    with nbtc.triton.emulated("sm_90", torch_cuda=True):
        yield


def test_replays_take_the_values_of_now(gpu):
    x, total, graph = torch.ones(40, device="cuda"), torch.zeros(40, device="cuda"), torch.cuda.CUDAGraph()
    out = torch.empty(0)
    with torch.cuda.graph(graph):
        assert torch.cuda.is_current_stream_capturing()
        y = (x * 3).view(4, 10)
        added[(1,)](y, total, 40, B=64)
        total.add_(1)
        torch.sub(total, x, out=out)
        ones = torch.zeros_like(x).add_(1)
    assert not torch.cuda.is_current_stream_capturing()
    assert not total.any()  # a capture runs nothing
    for n in (1, 2):
        graph.replay()
        assert (total == 4 * n).all()
    x.fill_(5)
    graph.replay()
    assert (total == 8 + 16).all()
    assert y.eq(15).all()
    assert out.eq(19).all()
    assert ones.eq(1).all()


def test_what_a_capture_can_not_do(gpu):
    x, graph = torch.ones(4, device="cuda"), torch.cuda.CUDAGraph()
    with pytest.raises(RuntimeError, match="needs values of a GPU"), torch.cuda.graph(graph):
        x.sum().item()
    assert x.sum().item() == 4
    with pytest.raises(RuntimeError, match="has no captured steps"):
        torch.cuda.CUDAGraph().replay()
    with pytest.raises(RuntimeError, match="is being captured already"), torch.cuda.graph(graph):
        torch.cuda.CUDAGraph().capture_begin()
    with pytest.raises(RuntimeError, match="is not being captured"):
        graph.capture_end()


def test_graphs_of_modules_with_gradients(gpu):
    plain, x = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.Linear(4, 2)), torch.randn(5, 3)
    wanted = plain(x).detach(), torch.autograd.grad(plain(x).square().sum(), plain.parameters())
    graphed = torch.cuda.make_graphed_callables(plain, (torch.zeros(5, 3),))
    found = graphed(x)
    found.square().sum().backward()
    assert torch.equal(found, wanted[0])
    assert all(torch.equal(p.grad, g) for p, g in zip(plain.parameters(), wanted[1], strict=True))


def test_what_later_versions_of_torch_pass(gpu):
    x, graph = torch.ones(4, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, enable_annotations=True, check_input_liveness=True):
        y = x.clone().add_(1)
    del x
    graph.replay()
    assert y.eq(2).all()


def test_benchmarks_of_triton_by_graphs(gpu):
    x, y = torch.ones(40, device="cuda"), torch.zeros(40, device="cuda")
    assert triton.testing.do_bench_cudagraph(lambda: added[(1,)](x, y, 40, B=64), rep=1) > 0
    assert y.gt(0).all()


@pytest.fixture
def tripled():
    """An operator as libraries define them: a kernel for CUDA, and one for shapes."""
    library = torch.library.Library("nbtc_test_cuda_alone", "DEF")
    library.define("tripled(Tensor x, Tensor(a!) out) -> ()")
    library.impl("tripled", lambda x, out: [added[(1,)](x, out, x.numel(), B=64) for _ in range(3)] and None, "CUDA")
    yield torch.ops.nbtc_test_cuda_alone.tripled
    library._destroy()


def test_operators_for_cuda_alone(tripled):
    x = torch.ones(7)
    for call in (tripled, tripled.default):
        out = torch.zeros(7)
        with nbtc.triton.emulated("sm_90", torch_cuda=True):
            call(x, out)
            assert out.eq(3).all()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                call(x, out)
            assert out.eq(3).all()
            graph.replay()
            assert out.eq(6).all()
        with pytest.raises(NotImplementedError, match="CPU"):
            call(x, out)


def test_custom_operators_of_a_device(gpu):
    @torch.library.custom_op("nbtc_test_cuda_alone2::doubled", mutates_args=(), device_types="cuda")
    def doubled(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        added[(1,)](x, y, x.numel(), B=64)
        return y

    doubled.register_autograd(lambda _, g: 2 * g)
    x = torch.ones(7, requires_grad=True)
    doubled(x).sum().backward()
    assert x.grad.eq(2).all()
