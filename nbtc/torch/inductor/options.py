"""The choices of TorchInductor that a GPU's run and its emulation have to share: none is made by a clock."""

from __future__ import annotations

from typing import Any

from nbtc.torch.inductor import private

OPTIONS: dict[str, Any] = {
    "deterministic": True,  # one configuration a reduction, none by the registers ptxas takes; no split by trial
    "triton.autotune_pointwise": False,  # one configuration a pointwise kernel
    "shape_padding": False,  # pads where a benchmark says so
    "max_autotune": False,
    "max_autotune_pointwise": False,
    "max_autotune_gemm": False,  # Triton's templates, the fastest, in place of cuBLAS
    "coordinate_descent_tuning": False,
    "benchmark_fusion": False,
    "benchmark_combo_kernel": False,
    "triton.multi_kernel": 0,
    "triton.cudagraphs": False,
    "autotune_local_cache": False,  # choices of earlier runs
    "autotune_remote_cache": False,
}

# Of the emulation alone: kernels are compiled in this process and keep their PTX.
HERE: dict[str, Any] = {
    "compile_threads": 1,
    "use_static_cuda_launcher": False,
    "cpp_wrapper": False,
    "fx_graph_remote_cache": False,
}


def inductor_options() -> dict[str, Any]:
    """Options of `torch.compile` under which a GPU makes the choices that `nbtc.torch.compile` makes.

    No kernel and no configuration is then chosen by measuring time, so a GPU runs the kernels that nbtc runs, with the
    same bits in every run.  Attention has to be decomposed on the GPU too: run the model inside
    `torch.nn.attention.sdpa_kernel(SDPBackend.MATH)` with
    `torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)`.

    >>> import torch, nbtc
    >>> fast = torch.compile(torch.nn.Linear(8, 8), options=nbtc.torch.inductor_options())
    """
    return private.known_options(OPTIONS)
