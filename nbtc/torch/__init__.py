"""PyTorch models with the bits of a GPU's tensor cores, on the CPU (extra `nbtc[torch]`).

`emulated` is a context in which matrix products are emulated, `compare` runs a model on several architectures and says
which layer diverges first.
"""

from nbtc.interop.extras import need

need("torch", "torch")

from nbtc.torch.comparison import Comparison, LayerDifference, compare  # noqa: E402
from nbtc.torch.inductor.backend import ModelReport, backend, compile  # noqa: E402
from nbtc.torch.inductor.options import inductor_options  # noqa: E402
from nbtc.torch.mode import emulated  # noqa: E402
from nbtc.torch.report import Report  # noqa: E402

__all__ = [
    "Comparison", "LayerDifference", "ModelReport", "Report", "backend", "compare", "compile", "emulated",
    "inductor_options",
]  # fmt: skip
