"""Resident blocks of a multiprocessor, worked by hand from the tables of the CUDA C++ Programming Guide."""

import pytest

from taskfuse.cuda.resources import occupancy
from taskfuse.errors import UnsupportedError
from taskfuse.reports.resources import Resources
from taskfuse.target import LIMITS, capability


def blocks(arch: str, registers: int, threads: int, static: int = 0, dynamic: int = 0) -> int:
    return occupancy(Resources(registers, static, 0, 0, 0, 1), threads, dynamic, arch)


@pytest.mark.parametrize(
    ("arch", "registers", "threads", "static", "dynamic", "expected"),
    [
        # warps: 64 / (1024/32) and 48 / 32
        ("sm_80", 32, 1024, 0, 0, 2),
        ("sm_90a", 32, 1024, 0, 0, 2),
        ("sm_86", 32, 1024, 0, 0, 1),
        ("sm_120", 32, 1024, 0, 0, 1),
        # blocks of one warp: the limit of resident blocks
        ("sm_80", 16, 32, 0, 0, 32),
        ("sm_86", 16, 32, 0, 0, 16),
        ("sm_89", 16, 32, 0, 0, 24),
        ("sm_90", 16, 32, 0, 0, 32),
        ("sm_100", 16, 32, 0, 0, 32),
        ("sm_120a", 16, 32, 0, 0, 24),
        # registers: 65 of 32 threads are 2080, given as 2304; 16384 // 2304 = 7 warps in each of 4 partitions, 28 // 8 = 3 blocks
        ("sm_90a", 64, 256, 0, 0, 4),
        ("sm_90a", 65, 256, 0, 0, 3),
        # 168 registers: 5376 of a warp, 3 warps a partition, 12 // 12
        ("sm_90a", 168, 384, 0, 0, 1),
        # 13 warps count as 16: 16 * 4096 = 65536 fit, 16 * 4352 do not
        ("sm_80", 128, 416, 0, 0, 1),
        ("sm_80", 136, 416, 0, 0, 0),
        ("sm_80", 255, 32, 0, 0, 8),
        # Shared memory: 1 KiB more for each block, in units of 128 bytes
        ("sm_90a", 32, 128, 0, 227 << 10, 1),
        ("sm_90a", 32, 128, 0, (227 << 10) + 1, 0),
        ("sm_80", 32, 128, 0, 163 << 10, 1),
        ("sm_80", 32, 128, 1, 163 << 10, 0),
        ("sm_90a", 32, 128, 0, 113 << 10, 2),
        ("sm_90a", 32, 128, 128, 113 << 10, 1),
        ("sm_89", 32, 128, 0, 49 << 10, 2),
        ("sm_120", 32, 128, 40000, 10177, 1),
        ("sm_120", 32, 128, 40000, 10176, 2),
        # no block of such a size
        ("sm_90a", 32, 1025, 0, 0, 0),
        ("sm_90a", 32, 0, 0, 0, 0),
    ],
)
def test_by_hand(arch: str, registers: int, threads: int, static: int, dynamic: int, expected: int) -> None:
    assert blocks(arch, registers, threads, static, dynamic) == expected


@pytest.mark.parametrize("arch", ["sm_80", "sm_86", "sm_89", "sm_90a", "sm_100f", "sm_120"])
def test_more_of_anything_never_fits_more_often(arch: str) -> None:
    for threads in (32, 96, 256, 416, 1024):
        by_registers = [blocks(arch, registers, threads) for registers in range(1, 256)]
        assert by_registers == sorted(by_registers, reverse=True)
        by_shared = [blocks(arch, 32, threads, 0, shared) for shared in range(0, 240 << 10, 1 << 10)]
        assert by_shared == sorted(by_shared, reverse=True)
        assert 32 * LIMITS[capability(arch)].warps >= blocks(arch, 16, threads) * threads > 0


@pytest.mark.parametrize("arch", ["sm_75", "sm_999", "compute_90", "90"])
def test_unknown_architectures(arch: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        blocks(arch, 32, 32)
    assert str(caught.value) == (
        f"the architecture {arch!r} is not supported: its limits are not known\n"
        "help: use one of sm_80, sm_86, sm_87, sm_89, sm_90, sm_100, sm_103, sm_110, sm_120, sm_121"
    )
