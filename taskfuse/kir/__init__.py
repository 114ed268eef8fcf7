"""Kernel IR: nodes, text, verifier, traversal. docs/kernel-ir.md has its grammar and the meaning of each statement."""

from taskfuse.kir.arguments import specialized
from taskfuse.kir.kernel import Kernel, KernelMethods, bind_readers
from taskfuse.kir.parser import parse_head, parse_kernel
from taskfuse.kir.printer import stmt_text, to_text
from taskfuse.kir.readers import KirReaders
from taskfuse.kir.verify import verify_kernel
from taskfuse.kir.walk import accesses, barrier_slots, bodies, expressions, held, map_access, map_expressions, map_operand, map_stmts, walk, with_bodies

bind_readers(KirReaders())

__all__ = [
    "Kernel",
    "KernelMethods",
    "KirReaders",
    "accesses",
    "barrier_slots",
    "bind_readers",
    "bodies",
    "expressions",
    "held",
    "map_access",
    "map_expressions",
    "map_operand",
    "map_stmts",
    "parse_head",
    "parse_kernel",
    "specialized",
    "stmt_text",
    "to_text",
    "verify_kernel",
    "walk",
    "with_bodies",
]
