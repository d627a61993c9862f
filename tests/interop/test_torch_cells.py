"""Fused cells of recurrent nets, against one step of an LSTM and of a GRU cell and their gradients on an H200."""

from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton")

import nbtc  # noqa: E402
from nbtc.torch.inductor import cells  # noqa: E402
from nbtc.torch.products import Settings  # noqa: E402
from nbtc.torch.report import Recorder  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::nbtc.errors.NbtcWarning", "ignore::DeprecationWarning")


def _load(name):
    with np.load(Path(__file__).parents[1] / "golden" / "libraries" / name) as file:
        return {name: torch.from_numpy(x).view(torch.bfloat16) for name, x in file.items()}


@pytest.fixture(scope="module")
def recorded():
    """bfloat16 (torch 2.11, an H200): operands and results of the last of three steps of a net with 48 hidden units."""
    return _load("lstm.npz")


def settings():
    return Settings("sm_90", None, None, "rn", "unfold", 1, Recorder())


def test_a_step_and_its_gradient(recorded):
    s, r = settings(), recorded
    hy, cy, saved = cells.lstm(s, r["inner"], r["hidden"], r["cx"], r["bias_ih"], r["bias_hh"])
    assert torch.equal(hy, r["hy"])
    gates, _, bias = cells.lstm_gradient(s, r["grad_hy"], None, r["cx"], cy, saved, True)
    assert torch.equal(gates, r["gates"]) and torch.equal(bias, r["grad_bias"])
    assert not s.recorder.report("sm_90").left


def test_a_cell_in_a_compiled_model(recorded):
    """Its head writes into a part of a larger tensor: the bias is added after a rounding."""
    r = recorded
    cell, head = torch.nn.LSTMCell(32, 48).bfloat16(), torch.nn.Linear(48, 32).bfloat16()
    with torch.no_grad():
        for name in ("bias_ih", "bias_hh"):
            getattr(cell, name).copy_(r[name])
        head.weight.copy_(r["head"])
        head.bias.copy_(r["head_bias"])

    def f(h, x):
        h, _ = cell(x, (h, h))
        return torch.cat([head(h), head(r["hy"])], 1)

    fast = nbtc.torch.compile(f, arch="H200", fullgraph=True)
    y = fast(torch.zeros(8, 48).bfloat16(), torch.ones(8, 32).bfloat16())
    assert torch.equal(y[:, 32:], r["y"]) and not fast.report().left
    y.float().sum().backward()
    assert all(p.grad is not None for p in cell.parameters())


def test_a_step_of_a_gru_and_its_gradient():
    """Recorded as above, of a net with 40 hidden units."""
    s, r = settings(), _load("gru.npz")
    hy, saved = cells.gru(s, r["inner"], r["hidden"], r["hx"], r["bias_ih"], r["bias_hh"])
    assert torch.equal(hy, r["hy"])
    found = cells.gru_gradient(s, r["grad_hy"], saved, True)
    names = ("grad_inner", "grad_hidden", "grad_hx", "grad_bias_ih", "grad_bias_hh")
    assert [n for n, x in zip(names, found, strict=True) if not torch.equal(x, r[n])] == []
    assert cells.gru_gradient(s, r["grad_hy"], saved, False)[3:] == (None, None)


@pytest.mark.parametrize("bias", [True, False])
def test_a_gru_cell_in_a_compiled_model(bias):
    cell = torch.nn.GRUCell(32, 40, bias=bias).bfloat16()
    fast = nbtc.torch.compile(lambda x, h: cell(x, cell(x, h)), arch="H200", fullgraph=True)
    y = fast(torch.ones(8, 32).bfloat16(), torch.zeros(8, 40).bfloat16())
    assert y.shape == (8, 40) and not fast.report().left
    y.float().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in cell.parameters())


def test_many_rows_are_summed_by_several_threads():
    """An H200 was recorded with 8 rows; from 64 on a GPU's threads divide them, and the report says so."""
    assert cells.divided(192) == 64
    x = torch.randn(63, 192, dtype=torch.float64).to(torch.float32)
    assert torch.allclose(cells.column_sums(x), x.sum(0), atol=1e-5)
    s = settings()
    made = [torch.zeros(64, 48).bfloat16(), torch.zeros(64, 48).bfloat16(), torch.zeros(64, 192).bfloat16()]
    cells.lstm_gradient(s, made[0], None, *made, True)
    assert "divides" in s.recorder.report("sm_90").left[0].reason
