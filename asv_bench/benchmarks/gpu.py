"""The fast products of the examples on a GPU, relative to PyTorch's: those of scripts/kernels_gpu.py."""

import importlib.util
import runpy
from functools import partial
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "kernels_gpu.py"
PRODUCTS = ("f16 wgmma, TMA", "f16 mma.sync", "bf16 wgmma, TMA", "e4m3 wgmma, TMA")


class HopperProducts:
    params = (PRODUCTS, [4096, 8192])
    param_names = ("product", "size")
    timeout = 300

    def setup(self, name, size):
        if importlib.util.find_spec("torch") is None:
            raise NotImplementedError("PyTorch is not installed")
        import torch

        if not torch.cuda.is_available() or torch.cuda.get_device_capability()[0] != 9:
            raise NotImplementedError("no Hopper GPU here")
        script = runpy.run_path(str(SCRIPT))
        elements, product = name.split(" ", 1)
        row = next(row for row in script["ELEMENTS"] if row.name == elements)
        a, b = (torch.randn(size, size, device="cuda").to(row.operands) for _ in range(2))
        d, other = (torch.empty(size, size, dtype=row.result, device="cuda") for _ in range(2))
        ours, theirs = partial(row.products[product][0], a, b, d), partial(row.torch, a, b, other)
        self.times = partial(script["milliseconds"], {"ours": ours, "theirs": theirs})

    def track_milliseconds_relative_to_pytorch(self, name, size):
        found = self.times()
        return found["ours"] / found["theirs"]

    track_milliseconds_relative_to_pytorch.unit = "of PyTorch's"
