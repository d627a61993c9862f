"""Kinds of layers whose traces need care: constants, nested gradients, libraries' strides, flex_attention."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import nbtc  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::nbtc.errors.NbtcWarning", "ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def forgotten():
    """Every test compiles anew."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def compiled(f, *args):
    """(the compiled function, its result), of one graph."""
    fast = nbtc.torch.compile(f, arch="H200", fullgraph=True)
    return fast, fast(*args)


def test_a_number_made_in_a_model_is_written_into_its_kernels():
    def f(x):
        return torch.where(x > 0, x * torch.tensor(2.0, device=x.device), torch.tensor(0.5)) + torch.tensor(3)

    x = torch.arange(-4.0, 4).requires_grad_()
    fast, y = compiled(f, x)
    assert torch.equal(y, f(x))
    y.sum().backward()
    assert torch.equal(x.grad, 2.0 * (x > 0)) and [k.launches for k in fast.kernels.values()] == [1, 1]
    forward = next(iter(fast.kernels.values()))
    assert "2.0" in forward.source and "in_ptr1" not in forward.source


def test_a_table_made_in_a_model_is_made_at_each_call():
    def f(x):
        table = torch.tensor([1.0, 2.0, 4.0])
        table += x
        return table

    fast, y = compiled(f, torch.ones(3))
    assert y.tolist() == fast(torch.ones(3)).tolist() == [2.0, 3.0, 5.0]


@pytest.mark.parametrize("how", ["checkpoint", "cond"])
def test_tensors_made_inside_of_an_operation_on_graphs(how):
    def inner(x):
        places = torch.arange(3, device=x.device, dtype=x.dtype) + torch.tensor(1.0)
        return x * places * x.new_ones(3) + torch.zeros(3)

    def f(x):
        if how == "cond":
            return torch.cond(x.sum() > 0, inner, lambda x: x * torch.full((3,), 2.0), (x,))
        return torch.utils.checkpoint.checkpoint(inner, x, use_reentrant=False)

    x = torch.arange(3.0).requires_grad_()
    _, y = compiled(f, x)
    y.sum().backward()
    assert y.tolist() == [0.0, 2.0, 6.0] and x.grad.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("transform", ["grad", "jacrev", "vjp", "hessian"])
def test_gradients_inside_a_model(transform):
    def square(x):
        return (x * x * x).sum()

    def f(x):
        if transform == "vjp":
            return torch.func.vjp(lambda y: y * y, x)[1](x)[0]
        inner = (lambda y: y * y) if transform == "jacrev" else square
        return getattr(torch.func, transform)(inner)(x)

    x = torch.arange(3.0)
    fast, y = compiled(f, x)
    assert torch.equal(y, f(x)) and fast.kernels and not fast.report().left


@pytest.mark.parametrize("name", ["svd", "qr", "eigh", "inv", "cholesky"])
def test_results_of_libraries_have_the_strides_of_cuda(name):
    """cuSOLVER's factors are laid out otherwise than LAPACK's, which the generated code asserts."""
    x = torch.randn(4, 6, generator=torch.Generator().manual_seed(3))
    x = x if name in ("svd", "qr") else x @ x.T + torch.eye(4)
    f = getattr(torch.linalg, name)
    fast, found = compiled(lambda x: f(x), x)
    for ours, theirs in zip(*(r if isinstance(r, tuple) else (r,) for r in (found, f(x))), strict=True):
        assert torch.equal(ours, theirs)
    assert any("linalg" in row.op for row in fast.report().left)


def test_flex_attention_and_its_gradients():
    from torch.nn.attention.flex_attention import flex_attention

    generator = torch.Generator().manual_seed(0)
    given = [torch.randn(1, 2, 128, 16, generator=generator).requires_grad_() for _ in range(3)]
    copies = [x.detach().clone().requires_grad_() for x in given]
    fast, y = compiled(flex_attention, *given)
    expected = torch.nn.functional.scaled_dot_product_attention(*copies)
    y.square().sum().backward()
    expected.square().sum().backward()
    for ours, theirs in zip([y, *(x.grad for x in given)], [expected, *(x.grad for x in copies)], strict=True):
        assert torch.allclose(ours, theirs, atol=2e-2, rtol=1e-2)
    assert fast.kernels and not fast.report().left


@pytest.mark.filterwarnings("ignore:.*Disabling autocast", "ignore:TensorFloat32")
@pytest.mark.parametrize("where", ["inside", "around"])
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_autocast(device, where):
    """That of the CPU is the GPU's; around a call PyTorch itself switches the GPU's off, where it has none."""
    layer, x = torch.nn.Linear(16, 16), torch.ones(4, 16)
    with torch.no_grad():
        layer.weight.fill_(1 / 3)
        layer.bias.zero_()

    def f(x):
        with torch.autocast(device, dtype=torch.bfloat16, enabled=where == "inside"):
            return layer(x)

    fast = nbtc.torch.compile(f if where == "inside" else layer, arch="H200", fullgraph=True)
    with torch.autocast(device, dtype=torch.bfloat16, enabled=where == "around"):
        y = fast(x)
    cast = (device, where) != ("cuda", "around") or torch.cuda.is_available()
    assert y.dtype == (torch.bfloat16 if cast else torch.float32)
    y.float().sum().backward()
    assert layer.weight.grad.dtype == torch.float32
    assert any("bf16" in p.instruction for p in fast.report().products) == cast
    assert not torch.is_autocast_enabled("cuda")
    assert fast(x).dtype == (torch.bfloat16 if where == "inside" else torch.float32)  # another trace


def test_a_stable_sort_is_exact_wherever_it_runs():
    x = torch.arange(3000) * 7919 % 11
    fast, (values, places) = compiled(lambda x: torch.sort(x, stable=True), x)
    assert torch.equal(values, x.sort().values) and torch.equal(places, x.argsort(stable=True))
    assert not fast.report().left
