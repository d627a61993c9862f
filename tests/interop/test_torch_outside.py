"""What a compiled model runs outside of its graphs shows in its report; what does not compile is refused by name."""

import threading
import warnings

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")
nn = torch.nn

import nbtc  # noqa: E402
from nbtc.errors import UncompiledWarning, UnsupportedOperationError  # noqa: E402

quiet = pytest.mark.filterwarnings("ignore::nbtc.errors.NbtcWarning", "ignore::DeprecationWarning")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


@pytest.fixture(autouse=True)
def forgotten():
    """Every test compiles anew."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrent_module_is_named(kind):
    net = kind(4, 8)
    fast = nbtc.torch.compile(net, arch="H200")
    x = torch.randn(3, 2, 4)
    with pytest.warns(UncompiledWarning, match="allow_rnn") as warned:
        for _ in range(2):
            y, _ = fast(x)
    assert len(warned) == 1 and torch.equal(y, net(x)[0]) and not fast.kernels
    left = fast.report().left
    assert left and all("allow_rnn" in row.reason and row.module.startswith("test_torch_outside.py:") for row in left)
    assert left[0].module in str(fast.report())


@quiet
def test_a_recurrent_module_is_compiled_where_dynamo_may(monkeypatch):
    monkeypatch.setattr(torch._dynamo.config, "allow_rnn", True)
    net, x = nn.GRU(4, 8).bfloat16(), torch.randn(2, 3, 4).bfloat16()
    fast = nbtc.torch.compile(net, arch="H200", fullgraph=True)
    y, _ = fast(x)
    y.sum().backward()
    assert torch.allclose(y.float(), net(x)[0].float(), atol=0.02) and fast.kernels and not fast.report().left


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_a_fused_step_is_named(kind):
    weight = torch.ones(4, requires_grad=True)
    step = nbtc.torch.compile(kind([weight], lr=0.1, fused=True).step, arch="H200")
    weight.sum().backward()
    with pytest.warns(UncompiledWarning, match="fused=False"):
        step()
    assert not step.kernels and weight.max() < 1
    assert any(row.op.startswith("_fused_") and "fused=False" in row.reason for row in step.report().left)


@quiet
def test_a_step_is_one_of_all_tensors_as_on_a_gpu():
    """On CPU tensors PyTorch's default is a step a tensor, whose kernels are others."""
    from torch.optim import optimizer

    texts = []
    for options in ({}, {"foreach": True}, {"foreach": False}):
        torch._dynamo.reset()
        weights = [torch.ones(n, requires_grad=True) for n in (4, 6)]
        step = nbtc.torch.compile(torch.optim.SGD(weights, lr=0.5, **options).step, arch="H200")
        sum(w.sum() for w in weights).backward()
        step()
        assert all(torch.equal(w, torch.full_like(w, 0.5)) for w in weights) and not step.report().left
        texts.append([k.ptx for k in step.kernels.values()])
    assert texts[0] == texts[1] != texts[2]
    assert "cpu" not in optimizer._get_foreach_kernels_supported_devices()


def test_the_part_after_a_break_is_named():
    @torch.compiler.disable
    def between(x):
        return torch.tanh(x)[:, :1].contiguous()

    fast = nbtc.torch.compile(lambda x: between(x * 2) + 1, arch="A100")
    x = torch.randn(4, 3)
    with pytest.warns(UncompiledWarning, match=r"tanh at test_torch_outside.py:\d+ .*A100.*graph_breaks"):
        y = fast(x)
    assert torch.allclose(y, torch.tanh(x * 2)[:, :1] + 1)
    assert [(row.op, row.calls) for row in fast.report().left] == [("tanh", 1)]


def test_what_moves_bits_or_computes_with_integers_is_not():
    @torch.compiler.disable
    def between(x):
        print(x)
        return x.flip(0).T.clone(), (x > 0).sum() // 2, torch.arange(3) * 2

    fast = nbtc.torch.compile(lambda x: between(x * 2), arch="A100")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UncompiledWarning)
        fast(torch.randn(4, 3))
    assert not fast.report().left and fast.kernels


def test_random_integers_outside_are_named():
    @torch.compiler.disable
    def between(x):
        return x + torch.randint(9, x.shape)

    fast = nbtc.torch.compile(lambda x: between(x * 2), arch="A100")
    with pytest.warns(UncompiledWarning, match="randint"):
        fast(torch.zeros(4, dtype=torch.int64))


@pytest.mark.filterwarnings("ignore:Using `torch.compile")
def test_a_model_inside_emulated_is_not_outside():
    fast = nbtc.torch.compile(nn.Linear(8, 8).bfloat16(), arch="H200")
    with nbtc.torch.emulated("sm_90") as mode, warnings.catch_warnings():
        warnings.simplefilter("error", UncompiledWarning)
        y = fast(torch.ones(4, 8).bfloat16())
    assert y.shape == (4, 8)
    assert mode.report().products and not fast.report().left


def test_nothing_stays_exchanged_when_threads_call():
    from torch.nn.attention import flex_attention
    from torch.optim import optimizer

    from nbtc.torch.inductor.tracing import tracing

    def names():
        return flex_attention._validate_device, optimizer._get_foreach_kernels_supported_devices

    before, entered, leave = names(), threading.Event(), threading.Event()

    def call():
        with tracing:
            entered.set()
            leave.wait()

    thread = threading.Thread(target=call)
    with tracing:
        thread.start()
        entered.wait()
        assert all(a is not b for a, b in zip(before, names(), strict=True))
        assert optimizer._get_foreach_kernels_supported_devices() == before[1]()  # no trace
        x = torch.zeros(1, 1, 1, 1, requires_grad=True)
        with pytest.raises(NotImplementedError, match="CPU"):
            flex_attention._validate_device(x, x, x)
    assert names() != before
    leave.set()
    thread.join()
    assert names() == before


def _scan(x):
    from torch._higher_order_ops.scan import scan

    return scan(lambda c, a: (c + a, c * a), torch.zeros(4), x)[1]


def _associative(x):
    from torch._higher_order_ops.associative_scan import associative_scan

    return associative_scan(lambda a, b: a + b, x, 0)


@quiet
@pytest.mark.parametrize(
    ("model", "x", "way"),
    [
        (nn.Embedding(8, 4, sparse=True), torch.arange(3), "sparse=False"),
        (nn.EmbeddingBag(8, 4, sparse=True), torch.arange(4).reshape(2, 2), "sparse=False"),
        (_scan, torch.ones(3, 4), "capture_scalar_outputs"),
        (_associative, torch.ones(3, 4), "combine_mode='generic'"),
    ],
    ids=["embedding", "embedding_bag", "scan", "associative_scan"],
)
def test_what_does_not_compile_is_refused_with_what_does(model, x, way):
    with pytest.raises(Exception, match=way) as refusal:
        nbtc.torch.compile(model, arch="H200")(x)
    assert isinstance(refusal.value, UnsupportedOperationError) or "UnsupportedOperationError" in str(refusal.value)


@quiet
def test_a_sparse_embedding_without_gradients_compiles():
    net = nn.Embedding(8, 4, sparse=True)
    with torch.no_grad():
        assert torch.equal(nbtc.torch.compile(net, arch="H200")(torch.arange(3)), net.weight[:3])
