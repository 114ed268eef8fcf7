"""The error tree: every mistake a user can make ends in one of these.

A subclass states its message as a class attribute ``template``; the constructor fills it. The text of every error has the same shape::

    <template, filled>
      --> file.py:12:4          where the user wrote it (if known)
       |  tv9 = tf.add(a, b)
       |        ^
    note: <a fact; if it quotes a statement, with the line that this comes from, as above>
    help: <what to do>
"""

from __future__ import annotations

import warnings
from typing import ClassVar

from taskfuse.location import Location, caller, with_snippets


class TaskfuseError(Exception):
    """Base of all errors raised by taskfuse.

    Args:
        location: where the user made the call that is at fault.
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
        """An error of another process reads as it does there: a pool of workers hands errors on by pickling them."""
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
    """Something that was left out or done in a slower way; the kernel is right all the same."""


def warn(text: str) -> None:
    """Warns of ``text`` at the user's line, whatever was warned of there before."""
    location = caller() or Location("taskfuse", 1)
    warnings.warn_explicit(TaskfuseWarning(text), TaskfuseWarning, location.file, location.line)


class ShapeError(TaskfuseError):
    """Shapes that an operation cannot take."""

    template = "{op}: {reason}"


class DTypeError(TaskfuseError):
    """Dtypes that an operation cannot take."""

    template = "{op}: {reason}"


class InputError(TaskfuseError):
    """Arguments of a call that do not fit the fusion's inputs."""

    template = "input {index} of fusion '{fusion}': {reason}"


class SymbolError(TaskfuseError, TypeError):
    """A question about a symbolic extent that only its value at a call answers."""

    template = "{what} is not known: it depends on values that a call gives"


class FusionError(TaskfuseError):
    """A fusion built or used wrongly."""

    template = "fusion '{fusion}': {reason}"


class TaskError(TaskfuseError):
    """A law of tasks and groups is broken (see docs/tasks-and-groups.md)."""

    template = "{node}: {reason}"


class ScheduleError(TaskfuseError):
    """A scheduling call that would make no valid schedule. Names the call, the tensor, the axis and the task."""

    template = "{call}({tensor}): {reason}"


class LoweringError(TaskfuseError):
    """A schedule that cannot become a kernel."""

    template = "cannot lower {what}: {reason}"


class ParseError(TaskfuseError):
    """Text that is not in the grammar. ``line`` and ``column`` count from 1."""

    template = "line {line}, column {column}: {reason}"


class VerifyError(TaskfuseError):
    """Kernel IR that breaks a rule of its verifier. The message quotes the kernel with the rule under the offending statement."""

    template = "{reason}"


class SimulationError(TaskfuseError):
    """A kernel did something that a GPU would not forgive: out of bounds, uninitialized, misused barrier."""

    template = "{kernel}: {reason}"


class DeadlockError(SimulationError):
    """No agent of the simulated kernel can go on. The notes say who waits for what."""

    template = "{kernel}: deadlock: {reason}"


class ProofError(TaskfuseError):
    """A kernel that is not proved free of deadlock and race. The notes are the counterexample, or say what is outside the model."""

    template = "{kernel}: {verdict}: {reason}"


class UnsupportedError(TaskfuseError):
    """Something that taskfuse does not do. Names the construct and what to use instead."""

    template = "{what} is not supported: {reason}"


class OptionError(TaskfuseError):
    """An environment variable of taskfuse that does not exist, or a value that it cannot have."""

    template = "environment variable {name}: {reason}"


class CudaUnavailableError(TaskfuseError):
    """A part of CUDA that is not installed, or that finds no GPU. The help says how to get it, or how to go on without."""

    template = "{what} is not available: {reason}"


class CudaCompileError(TaskfuseError):
    """CUDA text that NVRTC refuses. ``fields["log"]`` has all that it said, ``fields["text"]`` the whole text."""

    template = "the CUDA text of kernel '{kernel}' does not compile for {arch}: {reason}"


class RegisterError(TaskfuseError):
    """Machine code whose registers are not what the kernel counts on: accumulators that spill, ``wgmma`` in series, a register budget ignored."""

    template = "kernel '{kernel}' for {arch}: {reason}"


class OutputError(TaskfuseError):
    """An array given as ``out=`` that cannot take an output of the fusion."""

    template = "output {index} of fusion '{fusion}': {reason}"


class LaunchError(TaskfuseError):
    """A kernel that this GPU cannot run with the arguments given."""

    template = "kernel '{kernel}' cannot be launched: {reason}"


class CudaError(TaskfuseError):
    """A call of the CUDA driver that failed. ``fields["name"]`` is the driver's name of the error."""

    template = "{what}: {name}: {reason}"


class HangError(TaskfuseError):
    """A wait of a debug build that took too long: task, barrier, slot and phase."""

    template = "kernel '{kernel}' hangs: {reason}"
