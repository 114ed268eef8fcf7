"""The error tree: every user mistake raises one of these.

A subclass states its message as a class attribute ``template``, and the constructor fills it. The text of every error has the same form::

    <template, filled>
      --> file.py:12:4          the user's line, if known
       |  tv9 = tf.add(a, b)
       |        ^
    note: <a fact; if it quotes a statement, followed by the statement's line, as above>
    help: <what to do>
"""

from __future__ import annotations

import warnings
from typing import ClassVar, Final

from taskfuse.location import Location, caller, with_snippets

MOST_SHOWN: Final = 80
"""The most characters of a value in the text of an error."""


def shown(value: object) -> str:
    """The ``repr`` of a value that the text of an error quotes, in one line; if it is longer than :data:`MOST_SHOWN`, its beginning and its type."""
    text = " ".join(repr(value).split("\n"))
    if len(text) <= MOST_SHOWN:
        return text
    end = f"... ({type(value).__name__})"
    return text[: MOST_SHOWN - len(end)] + end


class TaskfuseError(Exception):
    """Base of all errors raised by taskfuse.

    Args:
        location: the user's call that caused the error.
        notes: facts that explain the error, one line each.
        help: what to do about it.
        fields: values for the class's ``template``.
    """

    template: ClassVar[str] = "{message}"

    def __init__(self, *, location: Location | None = None, notes: tuple[str, ...] = (), help: str | None = None, **fields: object) -> None:
        self.location = location
        self.notes = notes
        self.help = help
        self.fields = fields
        self.message = self.template.format(**fields)
        super().__init__(self.message)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle the error with its message: process pools pass errors between processes."""
        return _again, (type(self), self.__dict__)

    def __str__(self) -> str:
        lines = [self.message]
        if self.location is not None:
            lines += self.location.snippet()
        lines += with_snippets("note: " + note for note in self.notes)
        if self.help is not None:
            lines.append(f"help: {self.help}")
        return "\n".join(lines)


def _again(kind: type[TaskfuseError], state: dict[str, object]) -> TaskfuseError:
    error = kind.__new__(kind, state["message"])
    error.__dict__.update(state)
    return error


class TaskfuseWarning(UserWarning):
    """A part of the work was skipped or done more slowly; the kernel is still correct."""


def warn(text: str) -> None:
    """Warn with ``text`` at the user's line, regardless of earlier warnings there."""
    location = caller() or Location("taskfuse", 1)
    warnings.warn_explicit(TaskfuseWarning(text), TaskfuseWarning, location.file, location.line)


class ShapeError(TaskfuseError):
    """An operation does not accept the shapes of its operands."""

    template = "{op}: {reason}"


class DTypeError(TaskfuseError):
    """An operation does not accept the dtypes of its operands."""

    template = "{op}: {reason}"


class InputError(TaskfuseError):
    """The arguments of a call do not fit the fusion's inputs."""

    template = "input {index} of fusion '{fusion}': {reason}"


class CallError(TaskfuseError, TypeError):
    """The arguments of a call do not fit its parameters."""

    template = "{call}: {reason}"


class SymbolError(TaskfuseError, TypeError):
    """The value of a symbolic extent is needed, and known only at a call."""

    template = "{what} is not known: it depends on values that are known only at a call"


class FusionError(TaskfuseError):
    """The program builds or uses a fusion wrongly."""

    template = "fusion '{fusion}': {reason}"


class TaskError(TaskfuseError):
    """A law of tasks and groups is broken (see docs/tasks-and-groups.md)."""

    template = "{node}: {reason}"


class ScheduleError(TaskfuseError):
    """A scheduling call would make the schedule invalid. The message names the call, the tensor, the axis and the task."""

    template = "{call}({tensor}): {reason}"


class LoweringError(TaskfuseError):
    """The schedule cannot become a kernel."""

    template = "cannot lower {what}: {reason}"


class ParseError(TaskfuseError):
    """A text is not in the grammar. ``line`` and ``column`` count from 1."""

    template = "line {line}, column {column}: {reason}"


class VerifyError(TaskfuseError):
    """A kernel breaks a rule of kernel IR. The message quotes the kernel with the rule under the offending statement."""

    template = "{reason}"


class SimulationError(TaskfuseError):
    """A simulated kernel accessed memory out of bounds, read uninitialized memory, or misused a barrier."""

    template = "{kernel}: {reason}"


class DeadlockError(SimulationError):
    """No agent of the simulated kernel can continue. The notes say what each agent waits for."""

    template = "{kernel}: deadlock: {reason}"


class ProofError(TaskfuseError):
    """A kernel is not proved. The notes give the counterexample, or the obligations outside the model."""

    template = "{kernel}: {verdict}: {reason}"


class UnsupportedError(TaskfuseError):
    """taskfuse does not support a construct. The message names the construct and the alternative."""

    template = "{what} is not supported: {reason}"


class OptionError(TaskfuseError):
    """An environment variable of taskfuse does not exist, or has an invalid value."""

    template = "environment variable {name}: {reason}"


class CudaUnavailableError(TaskfuseError):
    """A component of CUDA is not installed, or finds no GPU. The help says how to install it, or how to continue without it."""

    template = "{what} is not available: {reason}"


class CudaCompileError(TaskfuseError):
    """NVRTC refuses a CUDA text. ``fields["log"]`` has the compiler's log, ``fields["text"]`` the whole text."""

    template = "the CUDA text of kernel '{kernel}' does not compile for {arch}: {reason}"


class RegisterError(TaskfuseError):
    """The machine code exceeds the register budget of the kernel: accumulators spill, ``wgmma`` is serialized, a register budget is ignored, or
    one instruction needs more registers than a thread has."""

    template = "kernel '{kernel}' for {arch}: {reason}"


class OutputError(TaskfuseError):
    """An array passed as ``out=`` cannot hold an output of the fusion."""

    template = "output {index} of fusion '{fusion}': {reason}"


class LaunchError(TaskfuseError):
    """This GPU cannot run the kernel with the given arguments."""

    template = "kernel '{kernel}' cannot be launched: {reason}"


class CudaError(TaskfuseError):
    """A CUDA driver call failed. ``fields["name"]`` is the driver's name of the error."""

    template = "{what}: {name}: {reason}"


class HangError(TaskfuseError):
    """A wait of a debug build took too long. The message names task, barrier, slot and phase."""

    template = "kernel '{kernel}' hangs: {reason}"
