"""One row per GPU: what a launcher asks of a device.  `nbtc.isa.archs.gpu` finds the row that an `arch=` names.

Limits of a multiprocessor belong to the compute capability, the rest to the product.  Clocks and memory are those of
the product as NVIDIA sells it; boards of others may be faster.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
GUIDE = 'CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"'


@dataclass(frozen=True)
class Capability:
    """Limits of one compute capability (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").

    warps, blocks: resident on a multiprocessor.  shared: bytes of a multiprocessor; shared_block_optin: that a block
    may have when it asks for more than 48 KiB.  registers: 32-bit words of a multiprocessor.
    """

    arch: str
    warps: int
    blocks: int
    shared: int
    shared_block_optin: int
    registers: int = 65536
    shared_block: int = 48 * KIB
    threads_block: int = 1024
    warp_size: int = 32

    def __post_init__(self) -> None:
        if not self.shared_block < self.shared_block_optin <= self.shared:
            raise ValueError(f"{self.arch}: a block's shared memory of {self.shared_block_optin} bytes")
        reserved = KIB if self.major >= 8 else 0  # the system's own, from compute capability 8.0 on (same page)
        if self.shared - self.shared_block_optin != reserved:
            raise ValueError(
                f"{self.arch}: a multiprocessor has {self.shared} bytes, a block {self.shared_block_optin}"
            )
        if self.threads % self.threads_block and self.threads != 1536:
            raise ValueError(f"{self.arch}: {self.threads} threads are no whole number of blocks")

    @property
    def major(self) -> int:
        """9 of 9.0."""
        return int(self.arch.removeprefix("sm_")) // 10

    @property
    def minor(self) -> int:
        """0 of 9.0."""
        return int(self.arch.removeprefix("sm_")) % 10

    @property
    def threads(self) -> int:
        """Resident on a multiprocessor."""
        return self.warps * self.warp_size


@dataclass(frozen=True)
class GPU:
    """A product.

    name: as the driver gives it.  aliases: further names; case, spaces, "-" and "_" don't matter in any, nor do the
    words NVIDIA, GeForce and Tesla.  arch: "sm_90".  multiprocessors, l2 (bytes), clock and memory_clock (kHz),
    bus_width (bits), memory (bytes).  source: of these figures, but for those that `sources` gives another.

    >>> from nbtc.isa.archs import gpu
    >>> gpu("h100 pcie").multiprocessors, gpu("H200").capability.shared_block_optin, gpu(90).name
    (114, 232448, 'NVIDIA H100 80GB HBM3')
    """

    name: str
    aliases: tuple[str, ...]
    arch: str
    multiprocessors: int
    l2: int
    clock: int
    memory_clock: int
    bus_width: int
    memory: int
    source: str
    sources: tuple[tuple[str, str], ...] = field(default=())

    def __post_init__(self) -> None:
        for name in FIGURES:
            value = getattr(self, name)
            if not isinstance(value, int) or value <= 0:
                raise ValueError(f"{self.name}: {name}={value!r}")
        if unknown := [name for name, _ in self.sources if name not in FIGURES]:
            raise ValueError(f"{self.name}: sources of {unknown}, which are no figures")
        if self.arch not in CAPABILITIES:
            raise ValueError(f"{self.name}: no compute capability {self.arch}")
        if self.bus_width % 32 or self.l2 % (64 * KIB):
            raise ValueError(f"{self.name}: a bus of {self.bus_width} bits, an L2 of {self.l2} bytes")
        if not 10**5 < self.clock < 10**7 or not 10**5 < self.memory_clock < 10**8:
            raise ValueError(f"{self.name}: clocks of {self.clock} and {self.memory_clock} kHz")

    @property
    def capability(self) -> Capability:
        """The limits of its compute capability."""
        return CAPABILITIES[self.arch]

    def resident_blocks(self, threads: int, shared: int) -> int:
        """How many blocks of so many threads and bytes of shared memory are on the GPU at once, registers aside.

        >>> from nbtc.isa.archs import gpu
        >>> gpu("H100").resident_blocks(32, 0), gpu("H100").resident_blocks(1024, 100 << 10)
        (4224, 264)
        """
        limits = self.capability
        reserved = KIB if limits.major >= 8 else 0  # as in `Capability`
        each = min(limits.blocks, limits.warps // -(-threads // limits.warp_size))
        each = min(each, limits.shared // max(1, shared + reserved))
        return max(1, each) * self.multiprocessors

    def source_of(self, figure: str) -> str:
        """Where a figure is from."""
        return dict(self.sources).get(figure, self.source)


FIGURES = ("multiprocessors", "l2", "clock", "memory_clock", "bus_width", "memory")

CAPABILITIES = {
    c.arch: c
    for c in (
        Capability("sm_70", 64, 32, 96 * KIB, 96 * KIB),
        Capability("sm_72", 64, 32, 96 * KIB, 96 * KIB),
        Capability("sm_75", 32, 16, 64 * KIB, 64 * KIB),
        Capability("sm_80", 64, 32, 164 * KIB, 163 * KIB),
        Capability("sm_86", 48, 16, 100 * KIB, 99 * KIB),
        Capability("sm_87", 48, 16, 164 * KIB, 163 * KIB),
        Capability("sm_89", 48, 24, 100 * KIB, 99 * KIB),
        Capability("sm_90", 64, 32, 228 * KIB, 227 * KIB),
        Capability("sm_100", 64, 32, 228 * KIB, 227 * KIB),
        Capability("sm_103", 64, 32, 228 * KIB, 227 * KIB),
        Capability("sm_110", 48, 24, 228 * KIB, 227 * KIB),
        Capability("sm_120", 48, 24, 100 * KIB, 99 * KIB),
        Capability("sm_121", 48, 24, 100 * KIB, 99 * KIB),
    )
}

_NOMINAL = "the nominal size; a driver shows somewhat less"
_QUERY = "printed by the deviceQuery sample on such a GPU"

# Of the GPUs of one architecture the first is the one that the architecture's name stands for.
GPUS = (
    GPU(
        "Tesla V100-SXM2-16GB", ("V100", "V100 SXM2", "V100 16GB"), "sm_70",
        80, 6 * MIB, 1_530_000, 877_000, 4096, 16 * GIB,
        "NVIDIA Tesla V100 GPU Architecture (WP-08608), table 1", (("memory", _NOMINAL),),
    ),
    GPU(
        "Xavier", ("AGX Xavier", "Jetson AGX Xavier"), "sm_72",
        8, 512 * KIB, 1_377_000, 2_133_000, 256, 32 * GIB, "Jetson AGX Xavier Series data sheet",
    ),
    GPU(
        "Tesla T4", ("T4",), "sm_75",
        40, 4 * MIB, 1_590_000, 5_001_000, 256, 15_843_721_216, _QUERY,
    ),
    GPU(
        "NVIDIA A100-SXM4-80GB", ("A100", "A100 80GB", "A100 SXM", "A100 SXM4"), "sm_80",
        108, 40 * MIB, 1_410_000, 1_593_000, 5120, 80 * GIB,
        "NVIDIA A100 Tensor Core GPU Architecture, table 4; A100 80GB data sheet", (("memory", _NOMINAL),),
    ),
    GPU(
        "NVIDIA A100-SXM4-40GB", ("A100 40GB",), "sm_80",
        108, 40 * MIB, 1_410_000, 1_215_000, 5120, 40 * GIB, _QUERY, (("memory", _NOMINAL),),
    ),
    GPU(
        "NVIDIA A40", (), "sm_86",
        84, 6 * MIB, 1_740_000, 7_251_000, 384, 48 * GIB,
        "NVIDIA A40 data sheet; NVIDIA Ampere GA102 GPU Architecture, appendix A", (("memory", _NOMINAL),),
    ),
    GPU(
        "NVIDIA GeForce RTX 3090", ("3090",), "sm_86",
        82, 6 * MIB, 1_695_000, 9_751_000, 384, 24 * GIB,
        "NVIDIA Ampere GA102 GPU Architecture, table 9", (("memory", _NOMINAL),),
    ),
    GPU(
        "Orin", ("AGX Orin", "Jetson AGX Orin"), "sm_87",
        16, 4 * MIB, 1_300_000, 3_200_000, 256, 64 * GIB, "Jetson AGX Orin Series Technical Brief, tables 1 and 2",
    ),
    GPU(
        "NVIDIA L40S", (), "sm_89",
        142, 96 * MIB, 2_520_000, 9_001_000, 384, 46_068 * MIB,
        "NVIDIA Ada GPU Architecture, appendix A; NVIDIA L40S data sheet",
        (("memory", "memory.total of nvidia-smi on such a GPU"),),
    ),
    GPU(
        "NVIDIA GeForce RTX 4090", ("4090",), "sm_89",
        128, 72 * MIB, 2_520_000, 10_501_000, 384, 24_563 * MIB, "printed by NVBench on such a GPU",
    ),
    GPU(
        "NVIDIA H100 80GB HBM3", ("H100", "H100 SXM", "H100 SXM5"), "sm_90",
        132, 50 * MIB, 1_980_000, 2_619_000, 5120, 80 * GIB,
        "NVIDIA H100 Tensor Core GPU Architecture, table 3; clocks as nvidia-smi gives them", (("memory", _NOMINAL),),
    ),
    GPU(
        "NVIDIA H100 PCIe", (), "sm_90",
        114, 50 * MIB, 1_755_000, 1_593_000, 5120, 80 * GIB,
        "NVIDIA H100 Tensor Core GPU Architecture, table 3; clocks as nvidia-smi gives them", (("memory", _NOMINAL),),
    ),
    GPU(
        "NVIDIA H200", ("H200 SXM",), "sm_90",
        132, 60 * MIB, 1_980_000, 3_201_000, 6144, 140 * GIB,
        "NVIDIA H200 data sheet; clocks as nvidia-smi gives them", (("memory", _NOMINAL),),
    ),
    GPU(
        "NVIDIA B200", (), "sm_100",
        148, 129_536 * KIB, 1_965_000, 3_996_000, 7680, 178 * GIB,
        "cudaDeviceProp of such a GPU, in whole GiB where the memory is meant; clocks as nvidia-smi gives them",
    ),
    GPU(
        "NVIDIA B300", (), "sm_103",
        148, 129_536 * KIB, 1_965_000, 3_996_000, 7680, 268 * GIB,
        "as a B200, for want of public figures",
        (("memory", "NVIDIA Blackwell Ultra data sheet: 288 GB, in whole GiB"),),
    ),
    GPU(
        "NVIDIA Thor", ("Thor", "Jetson AGX Thor", "Jetson T5000"), "sm_110",
        20, 32 * MIB, 1_575_000, 4_266_000, 256, 128 * GIB, "Jetson Thor Series Modules data sheet",
    ),
    GPU(
        "NVIDIA GeForce RTX 5090", ("5090",), "sm_120",
        170, 96 * MIB, 2_407_000, 14_001_000, 512, 33_680_457_728,
        _QUERY, (("clock", "NVIDIA RTX Blackwell GPU Architecture, table 2"),),
    ),
    GPU(
        "NVIDIA GB10", ("DGX Spark",), "sm_121",
        48, 24 * MIB, 2_418_000, 4_266_000, 256, 128 * GIB, "NVIDIA DGX Spark data sheet", (("memory", _NOMINAL),),
    ),
)  # fmt: skip


def key_of(name: str) -> str:
    """A name as it is looked up: without what does not matter."""
    return re.sub(r"nvidia|geforce|tesla|[\s_-]", "", name.lower())


def by_key() -> dict[str, GPU]:
    """Every GPU by every name, as `key_of` gives it."""
    found: dict[str, GPU] = {}
    for row in GPUS:
        for name in (row.name, *row.aliases):
            if found.setdefault(key_of(name), row) is not row:
                raise ValueError(f"{name} names both {found[key_of(name)].name} and {row.name}")
    return found


BY_KEY = by_key()

if not set(FIGURES) < {f.name for f in fields(GPU)}:
    raise ValueError(f"a GPU has no such figures: {FIGURES}")
