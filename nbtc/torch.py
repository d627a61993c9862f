"""PyTorch models with the bits of a GPU's tensor cores, on the CPU (extra `nbtc[torch]`).

`emulate` is a context in which matrix products are emulated, `compare` runs a model on several architectures and says
which layer parts first.
"""

from nbtc.interop.extras import need

need("torch", "torch")

from nbtc.interop.pytorch.compare import Comparison, LayerDifference, compare  # noqa: E402
from nbtc.interop.pytorch.inductor.backend import compile  # noqa: E402
from nbtc.interop.pytorch.inductor.options import inductor_options  # noqa: E402
from nbtc.interop.pytorch.mode import emulate  # noqa: E402
from nbtc.interop.pytorch.report import Report  # noqa: E402

__all__ = ["Comparison", "LayerDifference", "Report", "compare", "compile", "emulate", "inductor_options"]
