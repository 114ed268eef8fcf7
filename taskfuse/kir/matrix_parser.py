"""The tensor-core statements of kernel text: products of matrices, and matrices between Shared memory and registers."""

from __future__ import annotations

import re

from taskfuse.dtypes import DTYPES, DType, float32
from taskfuse.ir.scalar import Token
from taskfuse.kir.nodes import LdMatrix, Mma, StMatrix, Wgmma
from taskfuse.kir.operand_parser import OperandParser
from taskfuse.kir.reader import known
from taskfuse.kir.words import TF32

WGMMA_SHAPE = re.compile(r"WGMMA\.m64n(\d+)k(\d+)\.(\w+)(?:\.(\w+))?")
MMA_SHAPE = re.compile(r"MMA\.m16n8k(\d+)\.(\w+)(?:\.(\w+))?")
MATRICES = re.compile(r"(?:LD|ST)MATRIX(?:\.x([124]))?(\.trans)?")
OPERAND_TYPES = DTYPES | {TF32: float32}


class MatrixParser(OperandParser):
    """One method per tensor-core statement."""

    def wgmma(self) -> Wgmma:
        reader = self.reader
        token = reader.advance()
        shape = WGMMA_SHAPE.fullmatch(token.text)
        if shape is None:
            raise token.error(f"expected WGMMA.m64n<n>k<k>.<dtype>, found {token}")
        dtypes = self.operand_types(token, shape[3], shape[4])
        acc = self.access()
        reader.expect(",")
        a = self.descriptor() if reader.at("desc") else self.access()
        reader.expect(",")
        b = self.descriptor()
        reader.expect(",")
        reader.expect("accumulate")
        return Wgmma(int(shape[1]), int(shape[2]), acc, a, b, reader.expression(), *dtypes)

    def mma(self) -> Mma:
        reader = self.reader
        token = reader.advance()
        shape = MMA_SHAPE.fullmatch(token.text)
        if shape is None:
            raise token.error(f"expected MMA.m16n8k<k>.<dtype>, found {token}")
        dtypes = self.operand_types(token, shape[2], shape[3])
        acc = self.access()
        reader.expect(",")
        a = self.access()
        reader.expect(",")
        return Mma(int(shape[1]), acc, a, self.access(), *dtypes)

    def operand_types(self, token: Token, a: str, b: str | None) -> tuple[DType, DType | None]:
        """The element types of A and B in the name of a product of matrices."""
        if float32.name in (a, b):
            raise token.error(f"products of {float32} operands are {TF32}: say so")
        return known(token, a, OPERAND_TYPES, "operand type"), None if b is None else known(token, b, OPERAND_TYPES, "operand type")

    def matrices(self) -> tuple[int, bool]:
        """How many matrices an instruction moves, and whether it transposes them: ``.x<n>`` and ``.trans`` behind its name."""
        token = self.reader.token
        found = MATRICES.fullmatch(token.text)
        if found is None:
            raise token.error(f"expected {token.text.partition('.')[0]} with .x1, .x2 or .x4, and .trans, found {token}")
        return int(found[1] or 4), found[2] is not None

    def ld_matrix(self) -> LdMatrix:
        count, transpose = self.matrices()
        return LdMatrix(*self.transfer(), count, transpose)

    def st_matrix(self) -> StMatrix:
        count, transpose = self.matrices()
        return StMatrix(*self.transfer(), count, transpose)
