"""The same products by other means, where they are installed: ml_dtypes through NumPy, torch on the CPU."""

import importlib.util

import numpy as np
from asv_runner.benchmarks.mark import SkipNotImplemented

import nbtc

SIZE = 512


class Float16:
    params = ["nbtc", "numpy float32", "numpy float16", "torch float16", "torch bfloat16"]
    param_names = ("by",)
    timeout = 120

    def setup(self, by):
        library = by.split()[0]
        if importlib.util.find_spec(library) is None:
            raise SkipNotImplemented(f"{library} is not installed")
        rng = np.random.default_rng(0)
        x = rng.standard_normal((2, SIZE, SIZE)).astype(np.float16)
        if library == "torch":
            import torch

            self.x = torch.from_numpy(x).to(getattr(torch, by.split()[1]))
            self.run = lambda: self.x[0] @ self.x[1]
        elif library == "numpy":
            self.x = x.astype(by.split()[1])
            self.run = lambda: self.x[0] @ self.x[1]
        else:
            self.run = lambda: nbtc.matmul(x[0], x[1])
        self.run()

    def time_product(self, by):
        self.run()
