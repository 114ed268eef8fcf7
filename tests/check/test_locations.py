"""What the proof says against a kernel names the user's line of each statement that it quotes; of a kernel text, the line of the text."""

import pickle
from collections.abc import Callable
from dataclasses import replace

import pytest

import taskfuse as tf
from taskfuse import ParallelType as P
from taskfuse.check import Certificate, Layer, Verdict
from taskfuse.errors import ProofError
from taskfuse.ir.elementwise import ELEMENTWISE
from taskfuse.ir.scalar import sym
from taskfuse.kir import map_expressions, map_stmts, parse_kernel
from taskfuse.kir.nodes import Compute, Stmt
from taskfuse.kir.synchronization import Arrive, Barrier
from tests.lines import pipeline, snippet


def shared() -> tf.Fusion:
    with tf.Fusion("shared") as fusion:
        x = tf.define_tensor([64], name="x")
        a = tf.exp(x)
        y = tf.flip(a, 0)
        fusion.add_output(y)
    for tv in (a, y):
        tv.axis(0).parallelize(P.TIDx)
    return fusion


def edited(kernel: tf.Kernel, edit: Callable[[Stmt], Stmt | tuple[Stmt, ...]]) -> tf.Kernel:
    return replace(kernel, body=map_stmts(kernel.body, edit))


def shown(certificate: Certificate, layer: Layer, subject: str) -> list[str]:
    """The lines of the first obligation of a layer about a subject that does not hold."""
    found = next(o for o in certificate.failures if o.layer is layer and o.subject.startswith(subject))
    return str(found).split("\n")


def indented(lines: list[str]) -> list[str]:
    return [f"  {line}" for line in lines]


def test_nothing_is_named_where_all_holds() -> None:
    for build in (pipeline, shared):
        certificate = tf.lower(build()).verify()
        assert certificate.is_proved
        assert "-->" not in str(certificate)


def test_a_gap_names_the_line_of_each_statement() -> None:
    wrong = edited(tf.lower(pipeline()), lambda s: () if isinstance(s, Arrive) and s.barrier.name.endswith("full") else s)
    certificate = wrong.verify()
    a, y = snippet("a = tf.exp(x)", pipeline), snippet("y = a + 1.0", pipeline)
    race = shown(certificate, Layer.ADDRESS, "tv1")
    assert race[2:5] == indented(a)  # behind what is written
    assert race[6:9] == indented(y)  # behind what is read
    wait = shown(certificate, Layer.STRUCTURE, "mbarrier ch0.full")
    assert wait[1] == "  WAIT ch0.full[ch0.c.slot] parity ch0.c.parity in use"
    assert wait[2:] == indented(a)  # the tensor of the ring


def test_a_counterexample_names_the_line_of_each_wait() -> None:
    wrong = edited(tf.lower(pipeline()), lambda s: () if isinstance(s, Arrive) and s.barrier.name.endswith("full") else s)
    with pytest.raises(ProofError) as caught:
        wrong.verify().require()
    lines = str(caught.value).split("\n")
    assert lines[0] == "pipeline: refuted: deadlock: no thread can continue"
    assert "in load wait: WAIT ch0.empty[ch0.p.slot]" in lines[1]
    assert lines[2:5] == snippet("a = tf.exp(x)", pipeline)
    assert "in use wait: WAIT ch0.full[ch0.c.slot]" in lines[5]
    assert lines[6] == snippet("a = tf.exp(x)", pipeline)[0]  # the source is shown above


def test_a_missing_barrier_names_both_sides() -> None:
    wrong = edited(tf.lower(shared()), lambda s: () if isinstance(s, Barrier) else s)
    certificate = wrong.verify()
    assert certificate.verdict is Verdict.REFUTED
    text = "\n".join(shown(certificate, Layer.INSTANCE, "tv1"))
    assert "\n".join(indented(snippet("a = tf.exp(x)", shared))) in text
    assert "\n".join(indented(snippet("y = tf.flip(a, 0)", shared))) in text


def test_an_index_outside_names_the_statement() -> None:
    def shifted(s: Stmt) -> Stmt:
        return map_expressions(s, lambda e: e + 1 if e is sym("threadIdx.x") else e) if isinstance(s, Compute) and s.out.buffer == "tv1" else s

    wrong = edited(tf.lower(shared()), shifted)
    certificate = wrong.verify()
    assert certificate.verdict is Verdict.REFUTED
    found = shown(certificate, Layer.INSTANCE, "")
    assert "is outside 0..64" in found[0]
    assert found[-3:] == indented(snippet("a = tf.exp(x)", shared))


def test_a_wrong_value_names_what_stored_it() -> None:
    wrong = edited(tf.lower(shared()), lambda s: replace(s, op=ELEMENTWISE["sin"]) if isinstance(s, Compute) and s.out.buffer == "tv1" else s)
    certificate = wrong.verify()
    assert certificate.open_layers == {Layer.VALUES}
    text = str(certificate)
    assert "\n".join(f"  {line}" for line in indented(snippet("a = tf.exp(x)", shared))) in text


def test_the_text_of_a_kernel_is_its_own_place(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("text") / "shared.kir"
    kernel = tf.lower(shared())
    path.write_text("\n".join(line for line in str(kernel).split("\n") if not line.startswith("SYNC")))
    found = parse_kernel(path.read_text(), str(path)).verify()
    number, line = next((k, line) for k, line in enumerate(path.read_text().split("\n"), 1) if "exp(" in line)
    text = "\n".join(shown(found, Layer.INSTANCE, "tv1"))
    indent = len(line) - len(line.lstrip())
    assert f"  --> shared.kir:{number}\n     | {line}\n     | {' ' * indent}^" in text
    assert "-->" not in str(parse_kernel(path.read_text()).verify())


def test_a_pickled_certificate_says_the_same() -> None:
    wrong = edited(tf.lower(shared()), lambda s: () if isinstance(s, Barrier) else s)
    certificate = wrong.verify()
    assert str(pickle.loads(pickle.dumps(certificate))) == str(certificate)
    assert "-->" in str(certificate)
