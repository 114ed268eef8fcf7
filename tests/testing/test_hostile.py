"""What nobody should believe gets an answer: badly formed witnesses, mutants of all kinds and edited texts never make the checker fail."""

import math
import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import pytest

import taskfuse as tf
from taskfuse.check import Verdict
from taskfuse.cli.load import load
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.scalar import evaluate, parse_expr, sym
from taskfuse.kir import Kernel
from taskfuse.kir.operands import Access
from taskfuse.kir.witness import Apply
from taskfuse.testing.case import seeded_case
from taskfuse.testing.hostile import crash, crash_of_text, hostile_texts, hostile_witnesses
from taskfuse.testing.mutations import Operator
from taskfuse.testing.operators import OPERATORS
from taskfuse.testing.options import Mix
from taskfuse.testing.value_operators import VALUE_OPERATORS

EXAMPLES = ("pipeline", "founding", "gemm_multistage")
SEEDS = [(mix, 3 + k) for k, mix in enumerate(Mix) if k % 2 and mix not in (Mix.TILES, Mix.SHARED)]
"""Kernels of persistent blocks in tiles of tensor cores have long texts, and so have products whose tiles blocks share."""


def kernels(name: str) -> Iterator[Kernel]:
    return (tf.lower(program.required_fusion()) for program in load(name))


def random_kernel(mix: Mix, seed: int) -> Kernel:
    """One whose proof is quick: its text is short, and few threads are run where values are shown by execution."""
    cases = (seeded_case(s, mix) for s in range(seed, seed + 400, 20))
    return next(k for case in cases if (k := case.kernel) is not None and len(str(k)) < 3500 and threads(k, case.sizes) <= 256)


def threads(kernel: Kernel, sizes: dict[str, int]) -> int:
    return math.prod(int(evaluate(e, sizes)) for e in (*kernel.grid, *kernel.block))


def crashes(kernel: Kernel, chance: random.Random, count: int) -> list[str]:
    text = kernel.text(witness=True)
    found = [crash(k) for k in islice(hostile_witnesses(kernel, chance), count)]
    found += [crash_of_text(t) for t in islice(hostile_texts(text, chance), count)]
    return [said for said in found if said is not None]


@pytest.mark.parametrize("name", EXAMPLES)
def test_witnesses_and_texts_of_examples(name: str) -> None:
    for kernel in kernels(name):
        assert crashes(kernel, random.Random(name), 12) == []


@pytest.mark.parametrize(("mix", "seed"), SEEDS, ids=lambda v: v.value if isinstance(v, Mix) else str(v))
def test_random_kernels(mix: Mix, seed: int) -> None:
    kernel, chance = random_kernel(mix, seed), random.Random(seed)
    assert crashes(kernel, chance, 5) == []
    for op in chance.sample([*VALUE_OPERATORS, *OPERATORS], 4):
        assert planted(op, kernel, chance) is None


def planted(op: Operator, kernel: Kernel, chance: random.Random) -> str | None:
    made = [*islice(op.apply(kernel), 50)]
    return crash(chance.choice(made), searched=chance.random() < 0.2) if made else None


def mutants(name: str, kernel: Kernel) -> list[Kernel]:
    return [*next(op for op in (*VALUE_OPERATORS, *OPERATORS) if op.name == name).apply(kernel)]


def test_an_operand_of_another_rank() -> None:
    """The element of a tensor with one axis where one of a tensor with two is wanted."""
    with tf.Fusion("ranks") as fusion:
        x, y = tf.define_tensor([4, 8], name="x"), tf.define_tensor([8], name="y")
        a, b = tf.exp(x), tf.sin(y)
        fusion.add_output(a - b)
    kernel = tf.lower(fusion)
    kernel.verify().require()
    assert mutants("operands swapped", kernel)
    for mutant in mutants("operands swapped", kernel):
        assert not mutant.verify().is_proved
    for mutant in mutants("another tensor said", kernel):
        assert crash(mutant, searched=True) is None


def test_a_block_that_nobody_is_in() -> None:
    """One block less than one is none: tables have no rows then, whatever else has many values."""
    (kernel,) = kernels("horizontal_fusion")
    for name in ("one block more or less", "role begins one thread early"):
        for mutant in mutants(name, kernel):
            assert crash(mutant) is None


def test_rules_are_not_taken_for_granted() -> None:
    """A kernel that breaks a rule, here one of its witness, is outside the model, and nothing of it is argued."""
    with tf.Fusion("one") as fusion:
        fusion.add_output(tf.exp(tf.define_tensor([8], name="x")))
    kernel = tf.lower(fusion)
    kernel.verify().require()
    (d,) = kernel.definitions
    circular = replace(kernel, definitions=(replace(d, rule=Apply(ELEMENTWISE["copy"], (Access(d.tensor, (sym("i0"),)),), d.dtype)),))
    (obligation,) = circular.verify().argument
    assert (obligation.subject, obligation.verdict) == ("rules of kernel IR", Verdict.OUTSIDE)
    assert obligation.reason == f"kernel 'one': there is no input, or tensor that is defined above, '{d.tensor}'"
    assert circular.verify().verdict is Verdict.OUTSIDE


def test_constants_of_a_launch_obey_rules_too() -> None:
    """At given extents, too."""
    with tf.Fusion("one") as fusion:
        fusion.add_output(tf.exp(tf.define_tensor(["N"], name="x")))
    kernel = tf.lower(fusion)
    kernel.verify({"N": 5}).require()
    (d,) = kernel.definitions
    shifted = replace(kernel, definitions=(replace(d, shape=(parse_expr("N + 1"),), space=(parse_expr("N + 1"),)),))
    assert [o.verdict for o in shifted.verify({"N": 5}).argument] == [Verdict.OUTSIDE]
