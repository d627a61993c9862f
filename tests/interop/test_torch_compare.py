"""`compare` finds the layer that was planted, and says what it saw."""

import json
import xml.etree.ElementTree as ElementTree

import pytest
import torch
from torch import nn

import nbtc
from nbtc.errors import OptionError


class Exact(nn.Module):
    """A product of small whole numbers: every architecture gives the same bits."""

    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.eye(width).flip(0), requires_grad=False)

    def forward(self, x):
        return x.round() @ self.weight


INPUT = torch.arange(64.0).reshape(8, 8)


class Chaotic(nn.Module):
    """tf32 products, whose float32 sums differ between architectures."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(200, 200)

    def forward(self, x):
        return self.layer(x)


@pytest.fixture
def tf32():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision(before)


def test_the_planted_layer_is_found(tf32):
    torch.manual_seed(3)
    net = nn.Sequential(Exact(200), nn.ReLU(), Chaotic(), nn.ReLU(), Chaotic())
    found = nbtc.torch.compare(net, 3 * torch.randn(16, 200))
    assert found.first is not None and found.first.module == "2.layer" and found.first.kind == "Linear"
    assert not found.first.inputs_differ and found.first.differ > 0 and found.first.ulps >= 1
    rows = {row.module: row for row in found.layers}
    assert list(rows) == ["0", "1", "2.layer", "2", "3", "4.layer", "4", ""]
    assert rows["0"].differ == rows["1"].differ == 0 and rows["3"].inputs_differ and rows["4"].inputs_differ
    assert not rows[""].inputs_differ and rows[""].elements == 3200 and 0 < rows[""].error < 1e-3
    assert "the first to part: 2.layer on sm_90" in str(found)
    assert json.loads(found.json())["first"]["module"] == "2.layer"
    assert len(list(ElementTree.fromstring(found.svg()).iter("{http://www.w3.org/2000/svg}circle"))) == 8
    assert [report.arch for report in found.reports] == ["sm_80", "sm_90"]


def test_equal_bits_part_nowhere(tf32):
    found = nbtc.torch.compare(nn.Sequential(Exact(8), nn.ReLU(), Exact(8)), INPUT, ("sm_80", "sm_86", "sm_90"))
    assert found.first is None and not any(row.differ for row in found.layers)
    assert "no layer" in str(found) and found.svg().startswith("<svg")


def test_a_product_outside_of_any_layer_is_found_in_its_parent(tf32):
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.before, self.after = nn.Identity(), nn.Identity()

        def forward(self, x):
            return self.after(nn.functional.scaled_dot_product_attention(*[self.before(x)] * 3))

    torch.manual_seed(0)
    found = nbtc.torch.compare(nn.Sequential(Attention(), nn.ReLU()), torch.randn(1, 2, 64, 64))
    assert found.first.module == "0" and found.first.kind == "Attention"
    assert [row.call for row in found.layers if row.module == "0.before"] == [0]


def test_orders_of_one_architecture_and_keyword_inputs(tf32):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(64, 16)
            self.norm = nn.BatchNorm1d(16)
            self.drop = nn.Dropout()

        def forward(self, x):
            return self.drop(self.norm(self.layer(x)))

    torch.manual_seed(0)
    net = Net()
    mean, state = net.norm.running_mean.clone(), torch.random.get_rng_state()
    ways = [nbtc.torch.emulated("sm_90"), nbtc.torch.emulated("sm_90", order="slice64/2")]
    found = nbtc.torch.compare(net, {"x": torch.randn(32, 64, generator=torch.Generator().manual_seed(1))}, ways)
    assert found.archs == ("sm_90 #0", "sm_90 #1") and found.first.module == "layer"
    assert torch.equal(net.norm.running_mean, mean) and torch.equal(torch.random.get_rng_state(), state)


def test_what_is_no_module_is_refused():
    with pytest.raises(OptionError, match=r"model is a function: pass a torch\.nn\.Module"):
        nbtc.torch.compare(lambda x: x @ x, INPUT)


def test_one_architecture_is_no_comparison():
    with pytest.raises(OptionError, match="two or more"):
        nbtc.torch.compare(nn.ReLU(), INPUT, ("sm_90",))


def test_one_architecture_is_compared_with_torch_here():
    """Each letter of "sm_90" was an architecture once."""
    model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(256, 8)).bfloat16()
    found = nbtc.torch.compare(model, torch.ones(4, 256).bfloat16(), "sm_90")
    assert found.archs == ("torch", "sm_90") and {row.arch for row in found.layers} == {"sm_90"}
    assert found.layers[0].differ == 0
    assert nbtc.torch.compare(model, torch.ones(4, 256).bfloat16(), 90).archs == found.archs
