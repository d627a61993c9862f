"""Gradients of adaptive pooling, 7 x 7 elements to 3 x 3, against PyTorch's CUDA kernel on an H100 (torch 2.11)."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import nbtc  # noqa: E402
from nbtc.torch.inductor.pooling import average_gradient  # noqa: E402

DTYPES = {"bf16": torch.bfloat16, "f16": torch.float16}
pytestmark = pytest.mark.filterwarnings("ignore::nbtc.errors.NbtcWarning", "ignore::DeprecationWarning")


@pytest.fixture(scope="module", params=DTYPES)
def recorded(request):
    """(gradient, result) of 64 planes of a net; the corners of windows are in four of them."""
    with np.load(Path(__file__).parents[1] / "golden" / "libraries" / "adaptive_pool.npz") as file:
        pair = (file[f"{request.param} {what}"] for what in ("gradient", "result"))
        return [torch.from_numpy(x).view(DTYPES[request.param]) for x in pair]


def test_windows_that_overlap_add_in_the_order_of_a_gpu(recorded):
    gradient, result = recorded
    assert torch.equal(average_gradient(gradient, torch.zeros_like(result)), result)


def test_a_compiled_model_takes_it(recorded):
    gradient, result = recorded
    x = torch.zeros_like(result)[None].requires_grad_()
    fast = nbtc.torch.compile(lambda x: torch.nn.functional.adaptive_avg_pool2d(x, 3), arch="H100", fullgraph=True)
    fast(x).backward(gradient[None])
    assert torch.equal(x.grad[0], result) and not fast.report().left


def test_channels_last_are_left_to_pytorch():
    x = torch.zeros(1, 4, 7, 7).to(memory_format=torch.channels_last)
    assert average_gradient(torch.ones(1, 4, 3, 3), x) is None
