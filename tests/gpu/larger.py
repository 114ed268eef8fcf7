"""Examples on a GPU: at sizes that fill it, and how far their results may lie from the exact ones."""

from collections.abc import Sequence

LARGER: dict[str, Sequence[Sequence[tuple[int, ...]]]] = {
    "founding": [[(3000, 5, 8)], [(700, 16, 8)], [(64, 2, 64)]],
    **{f"founding_persistent_{n}": [[(1000, 5, 8)], [(299, 16, 8)]] for n in (2, 3, 6)},
    "cat_gather": [[(501, 1000), (501, 333)]],
    "cat_scatter_shared_loop": [[(501, 1000)]],
    "cat_scatter_horizontal": [[(300, 500), (300, 7), (300, 1033)]],
    "horizontal_fusion": [[(333, 2000), (555, 250)]],
    "nested_groups": [[(801, 777), (801, 777)]],
    "pipeline": [[(700, 3333), (3333,)]],
    "stream": [[(1000, 2052)], [(513, 64)]],
    "block_roles": [[(500, 333), (500, 33, 333)], [(1, 64), (1, 700, 64)]],
    "transpose": [[(1023, 2047)], [(4096, 4096)]],
    "matmul": [[(333, 170), (170, 401)], [(512, 512), (512, 512)]],
    "gemm": [[(1000, 520), (712, 520), (712,)]],
    **{name: [[(1000, 520), (712, 520)]] for name in ("gemm_pingpong", "gemm_cluster")},
    "gemm_fp8_scaled": [[(1000, 1024), (640, 1024), (8, 1000), (5, 8)]],
    "moe": [[(150, 64), (3, 64, 64), (150, 64), (4,)]],  # its extents are constants
    "syr2k": [[(64, 64), (64, 64), (64, 64), (128, 64), (32, 64), (160, 64)]],  # its extents are constants
    "syr2k_triangle": [[(160, 32), (160, 32)]],  # its extents are constants
    "linear_attention": [[(2, 3, 8, 8), (2, 3, 8, 8), (2, 3, 8)]],  # its extents are constants
    "gemm_dynamic": [[(1000, 520), (712, 520), (712,)]],
    "gemm_split_cluster": [[(1000, 512), (712, 512)]],  # the length that is summed over is a constant
    "gemm_stream_k": [[(128, 512), (192, 512)]],  # its extents are constants
    "gemm_multistage": [[(1000, 512), (712, 512)]],
    "gemm_quad_pairs": [[(512, 256), (320, 256)]],
}

ULP = {
    "founding": 6,
    **{f"founding_persistent_{n}": 6 for n in (2, 3, 6)},
    "cat_gather": 6,
    "cat_scatter_shared_loop": 2,
    "cat_scatter_horizontal": 2,
    "horizontal_fusion": 8,
    "nested_groups": 4,
    "pipeline": 8,
    "stream": 2,
    "block_roles": 6,
    "transpose": 0,
    "matmul": 4,
    **dict.fromkeys(
        (
            "gemm",
            "gemm_pingpong",
            "gemm_cluster",
            "gemm_multistage",
            "gemm_quad_pairs",
            "gemm_split_cluster",
            "gemm_stream_k",
            "gemm_dynamic",
            "syr2k",
            "syr2k_triangle",
        ),
        0.05,
    ),
    "gemm_fp8_scaled": 40,  # Hopper adds products of 8-bit floats with fewer bits
    "moe": 4,
    "linear_attention": 8,
}
"""The bound on the difference from the exact result, in ulp as in tests/examples: what CUDA's functions are allowed (CUDA C++ Programming Guide, "Mathematical
Functions") through each fusion."""
