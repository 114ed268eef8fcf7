"""The text of a small function of PTX, around lines."""

from __future__ import annotations

from taskfuse.testing.ptx.nodes import PtxFunction, PtxInstruction
from taskfuse.testing.ptx.text import read

TEXT = """\
.version 9.5
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 shared[];
.visible .entry k(
	.param .u64 k_param_0,
	.param .align 4 .b8 k_param_1[12]
)
.maxntid 64, 1, 1
.minnctapersm 1
{
	.reg .pred 	%p<9>;
	.reg .b32 	%r<99>;
	.reg .b64 	%rd<99>;
	mov.u32 	%r1, %tid.x;
	mov.u32 	%r2, %tid.y;
BODY	ret;
}
"""


def function(body: str) -> PtxFunction:
    """The function with some lines."""
    return read(TEXT.replace("BODY", body))


def instruction(line: str) -> PtxInstruction:
    """The one instruction of a line."""
    return function(line + "\n").code[2]
