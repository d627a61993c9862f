"""GPUs through NVIDIA's driver library alone: PTX text in, launches on device arrays out; no toolkit, no package.

`launch` is all that a kernel needs; `is_device_array` says which arrays it takes.  (CUDA Driver API.)
"""

from nbtc.driver.launching import launch, synchronize
from nbtc.formats.device_arrays import is_device_array

__all__ = ["is_device_array", "launch", "synchronize"]
