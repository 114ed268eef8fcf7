"""Random math: every op that the options leave is drawn, extents stay within them, and all tensors serve an output."""

from dataclasses import replace

import pytest

from taskfuse.ir.expr import Assemble, FirstValid, Gather, Reduction, Scan, Update, View
from taskfuse.testing import RandomChooser
from taskfuse.testing.graphs import EVERY_COMPOSITE, EVERY_REDUCTION, EVERY_SCAN, Graph
from taskfuse.testing.options import EXACT, POINTWISE, USUAL, CaseOptions, Mix
from taskfuse.testing.program import Recorder
from tests.random_cases import random_case_of


def grown(seed: int, options: CaseOptions) -> Graph:
    graph = Graph(RandomChooser(seed), options, Recorder())
    graph.grow()
    return graph


@pytest.mark.parametrize(
    ("share", "kinds"),
    [
        ("views", {View}),
        ("selects", {FirstValid}),
        ("reductions", {Reduction}),
        ("scans", {Scan}),
        ("gathers", {Gather}),
        ("scatters", {Update, Assemble}),
        ("matmuls", {Reduction}),
        ("jagged", {FirstValid}),
    ],
)
def test_each_share_draws_its_ops(share: str, kinds: set[type]) -> None:
    options = replace(POINTWISE, symbolic=40, **{share: 90})
    found = {type(e) for seed in range(12) for e in grown(seed, options).fusion.exprs()}
    without = {type(e) for seed in range(12) for e in grown(seed, replace(options, **{share: 0})).fusion.exprs()}
    assert kinds <= found
    assert not kinds & without


def test_extents_stay_in_the_options() -> None:
    for seed in range(10):
        graph = grown(seed, USUAL)
        for tv in graph.fusion.tensors():
            size = 1
            for n in graph.shape(tv):
                size *= n
            assert size <= USUAL.elements
        assert {tv.dtype for tv in graph.fusion.inputs if tv.dtype.is_float} <= {*USUAL.dtypes}
        assert all(tv.is_input or tv.is_output or tv.uses for tv in graph.fusion.tensors())


def test_exact_math_has_no_function_that_rounds() -> None:
    lines = [line for seed in range(15) for line in grown(seed, EXACT).recorder.lines]
    assert not [line for line in lines if any(f"tf.{name}(" in line for name in ("exp", "sin", "sqrt", "tanh", "softmax"))]


def test_ops_that_are_called_by_their_kind_take_no_more() -> None:
    """What a quantile or a similarity asks for besides is not what all of their kind take."""
    called = {*EVERY_REDUCTION, *EVERY_SCAN, *EVERY_COMPOSITE}
    assert {"sum", "std", "cumsum", "softmax"} <= called
    assert called.isdisjoint({"quantile", "cosine_similarity"})


@pytest.mark.parametrize("share", ["jagged", "views", "gathers", "matmuls"])
def test_sizes_are_values_of_the_dimensions_that_are_declared(share: str) -> None:
    """An op never names a dimension before an input has declared its facts."""
    options = replace(POINTWISE, symbolic=90, sizes=(0, 1, 3), **{share: 90})
    for seed in range(40):
        graph = grown(seed, options)
        for name, d in graph.fusion.dims.items():
            assert d.admits(graph.sizes[name], graph.sizes)


@pytest.mark.parametrize("seed", [20028, 20049, *range(12)])
def test_inputs_determine_the_width_of_padded_rows(seed: int) -> None:
    """A ragged tensor may be padded to an extent that some input has; no call says another one."""
    fusion = random_case_of(seed, Mix.JAGGED).plain
    given = {name for tv in fusion.inputs for e in tv.shape for name in e.free}
    assert {name for tv in fusion.outputs for e in tv.shape for name in e.free} <= {*given, *fusion.integers}
