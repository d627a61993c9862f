"""What programs ask of a device, one row an architecture (CUDA C++ Programming Guide, "Compute Capabilities")."""

from __future__ import annotations

from typing import NamedTuple


class Device(NamedTuple):
    """shared: KiB that a block may have; processors: of the device that has it."""

    shared: int
    processors: int


DEVICES = {
    "sm_75": Device(64, 40),  # T4
    "sm_80": Device(163, 108),  # A100
    "sm_86": Device(99, 84),  # A40
    "sm_87": Device(163, 16),  # Orin
    "sm_89": Device(99, 142),  # L40S
    "sm_90": Device(227, 132),  # H100
    "sm_100": Device(227, 148),  # B200
    "sm_103": Device(227, 148),  # B300
    "sm_110": Device(227, 20),  # Thor
    "sm_120": Device(99, 170),  # RTX 5090
    "sm_121": Device(99, 48),  # GB10
}
REGISTERS = 65536  # of a multiprocessor
THREADS = 1024  # of a block
THREAD_REGISTERS = 64  # that a thread is said to take: nobody assembles the program, so the true number is unknown
