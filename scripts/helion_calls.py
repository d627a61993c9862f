"""As library_calls.py, of kernels that Helion writes in Triton from PyTorch's operations, with given configurations."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  its usual name
from library_calls import close, numbers, seeded  # noqa: F401  a fixture

helion = pytest.importorskip("helion", exc_type=ImportError)
hl = pytest.importorskip("helion.language", exc_type=ImportError)


@helion.kernel(config=helion.Config(block_sizes=[32, 32, 32], num_warps=4, num_stages=2))
def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    (m, k), (_, n) = x.size(), y.size()
    out = torch.empty([m, n], dtype=torch.float32, device=x.device)
    for tile_m, tile_n in hl.tile([m, n]):
        acc = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(k):
            acc = torch.addmm(acc, x[tile_m, tile_k], y[tile_k, tile_n])
        out[tile_m, tile_n] = torch.relu(acc)
    return out


@helion.kernel(config=helion.Config(block_sizes=[1]))
def softmax(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    for tile in hl.tile(x.size(0)):
        row = x[tile, :]
        powers = torch.exp(row - torch.amax(row, dim=1, keepdim=True))
        out[tile, :] = powers / torch.sum(powers, dim=1, keepdim=True)
    return out


@helion.kernel(config=helion.Config(block_sizes=[4, 16]))
def column_sums(x: torch.Tensor) -> torch.Tensor:
    out = torch.zeros([x.size(1)], dtype=x.dtype, device=x.device)
    for tile_m, tile_n in hl.tile(x.size()):
        hl.atomic_add(out, [tile_n], x[tile_m, tile_n].sum(0))
    return out


@helion.kernel(config=helion.Config(block_sizes=[16, 16]))
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    m, n, d = q.size(0), k.size(0), hl.specialize(q.size(1))
    out = torch.empty_like(q)
    for tile_m in hl.tile(m):
        most = hl.full([tile_m], float("-inf"), dtype=torch.float32)
        total = hl.zeros([tile_m], dtype=torch.float32)
        acc = hl.zeros([tile_m, d], dtype=torch.float32)
        rows = q[tile_m, :]
        for tile_n in hl.tile(n):
            scores = torch.matmul(rows, k[tile_n, :].transpose(0, 1)).to(torch.float32) * 0.25
            new = torch.maximum(most, torch.amax(scores, -1))
            powers, old = torch.exp(scores - new[:, None]), torch.exp(most - new)
            total = total * old + torch.sum(powers, -1)
            acc = torch.addmm(acc * old[:, None], powers.to(v.dtype), v[tile_n, :])
            most = new
        out[tile_m, :] = (acc / total[:, None]).to(out.dtype)
    return out


def test_helion_product():
    x, y = numbers(70, 96, dtype=torch.float16), numbers(96, 48, dtype=torch.float16)
    close(product(x, y), F.relu(x.float() @ y.float()), 1e-3)


def test_helion_softmax():
    x = numbers(6, 90)
    close(softmax(x), F.softmax(x, -1), 1e-5)


def test_helion_atomics():
    x = numbers(40, 50)
    close(column_sums(x), x.sum(0), 1e-4)


def test_helion_attention():
    q, k, v = numbers(3, 48, 16, dtype=torch.float16)
    close(attention(q, k, v), F.scaled_dot_product_attention(*(x.float()[None] for x in (q, k, v)))[0], 1e-2)
