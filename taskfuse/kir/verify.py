"""The verifier of kernel IR: the rules for every kernel before and after each pass.

The rules are one function each, in tables: of declarations (:mod:`taskfuse.kir.declaration_rules`), of statements
(:mod:`taskfuse.kir.statement_rules`, :mod:`taskfuse.kir.synchronization_rules`, :mod:`taskfuse.kir.instruction_rules`), and of the witness
(:mod:`taskfuse.kir.witness_rules`). Races, deadlocks and dynamic bounds are left to the checker.
"""

from __future__ import annotations

from functools import cache
from typing import Any, get_type_hints

from taskfuse.errors import VerifyError
from taskfuse.kir.declaration_rules import DECLARATION_RULES
from taskfuse.kir.instruction_rules import INSTRUCTION_RULES
from taskfuse.kir.kernel import Kernel
from taskfuse.kir.nodes import Bind, Branch, For, If, Stmt
from taskfuse.kir.printer import LineMap, layout
from taskfuse.kir.scope import Declarations, Scope
from taskfuse.kir.statement_rules import STATEMENT_RULES, StatementRule, Subject
from taskfuse.kir.synchronization import CursorInit
from taskfuse.kir.synchronization_rules import SYNCHRONIZATION_RULES
from taskfuse.kir.witness_rules import definition_problem, holds_problem
from taskfuse.location import Location

RULES: tuple[StatementRule, ...] = (*STATEMENT_RULES, *SYNCHRONIZATION_RULES, *INSTRUCTION_RULES, holds_problem)


@cache
def rules_of(kind: type[Subject]) -> tuple[StatementRule, ...]:
    """The rules of a class of statements, in the order of the table: those whose first parameter admits the class."""
    return tuple(rule for rule, subject in _subjects() if issubclass(kind, subject))


@cache
def _subjects() -> tuple[tuple[StatementRule, Any], ...]:
    """The rules, and of each the type of its first parameter."""
    return tuple((rule, get_type_hints(rule)["subject"]) for rule in RULES)


def verify_kernel(kernel: Kernel) -> None:
    """Check every rule of kernel IR, once for each (immutable) kernel object.

    Raises:
        VerifyError: for the first statement (in the order of the text) that breaks one. The message quotes the whole kernel, with the
            rule's message under the statement, and then the statement's user line.
    """
    if kernel.keeps_rules:
        return
    declarations = Declarations.of(kernel)
    for rule in DECLARATION_RULES:
        problem = rule(declarations)
        if problem is not None:
            name, message = problem
            laid = layout(kernel)
            raise _error(kernel, laid, laid.declarations.get(name, 0), message)
    wrong = definition_problem(declarations)
    if wrong is not None:
        number, message = wrong
        laid = layout(kernel, witness=True)
        raise _error(kernel, laid, laid.definitions[number], message)
    _Verifier(kernel).body(kernel.body, Scope.outermost(declarations))
    object.__setattr__(kernel, "keeps_rules", True)


class _Verifier:
    """Walks statements in the order in which :func:`layout` numbers them."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.number = -1

    def body(self, body: tuple[Stmt, ...], scope: Scope) -> Scope:
        """Check a list of statements; returns the scope after it."""
        for stmt in body:
            scope = self.stmt(stmt, scope)
        return scope

    def stmt(self, stmt: Stmt, scope: Scope) -> Scope:
        self.check(stmt, scope)
        match stmt:
            case For():
                self.body(stmt.body, scope.with_loop(stmt.var, unroll=stmt.unroll))
            case Bind():
                return self.body(stmt.body, scope)  # no code: what its body initializes is initialized after it
            case If():
                for branch in stmt.branches:
                    self.check(branch, scope)
                    self.body(branch.body, scope)
            case CursorInit():
                return scope.with_cursor(stmt.name)
            case _:
                pass
        return scope

    def check(self, subject: Subject, scope: Scope) -> None:
        self.number += 1
        for rule in rules_of(type(subject)):
            message = rule(subject, scope)
            if message is not None:
                laid = layout(self.kernel, witness=rule is holds_problem)
                raise _error(self.kernel, laid, laid.statements[self.number], message, None if isinstance(subject, Branch) else subject.location)


def _error(kernel: Kernel, laid: LineMap, line: int, message: str, location: Location | None = None) -> VerifyError:
    lines = laid.lines
    if line < len(lines):
        indent = len(lines[line]) - len(lines[line].lstrip())
        lines.insert(line + 1, f"{' ' * indent}^ {message}")
    quoted = "\n".join(f"  | {text}".rstrip() for text in lines)
    return VerifyError(reason=f"kernel '{kernel.name}': {message}\n{quoted}", location=location)
