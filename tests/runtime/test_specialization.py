"""Specializations: equal results for all sizes, few kernels, the same from several threads and after pickling; what is refused, and what is not specialized."""

import pickle
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import taskfuse as tf
from taskfuse.cuda import arrays
from taskfuse.cuda.arrays import Kinds
from taskfuse.errors import InputError, UnsupportedError
from taskfuse.runtime import specialization
from taskfuse.runtime.chain import Chain
from taskfuse.runtime.kernel import CompiledKernel
from taskfuse.runtime.specialization import Specialized
from taskfuse.schedule.copy import narrowed
from tests.cuda.fakes import FakeDriver, FakeTensor, FakeTorch, aligned

RNG = np.random.default_rng(0)
LARGE = {"M": 4096, "N": 4096}


@pytest.fixture
def all_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Specialize for small arrays, too: the simulator takes its time."""
    monkeypatch.setattr(specialization, "SMALL", 0.0)


def array(*shape: int) -> Any:
    return RNG.uniform(0.5, 1.0, shape).astype(np.float32)


def doubled() -> tf.Fusion:
    with tf.Fusion("doubled") as fusion:
        fusion.add_output(tf.relu(tf.define_tensor(["M", "N"], name="x")) * 2)
    return fusion


def centered() -> tf.Fusion:
    """Rows that are read again."""
    with tf.Fusion("centered") as fusion:
        x = tf.define_tensor(["M", "N"], name="x")
        fusion.add_output(x - x.max(1, keepdims=True))
    return fusion


def scores() -> tf.Fusion:
    """Two kernels, and a run-time scalar."""
    with tf.Fusion("scores") as fusion:
        x = tf.define_tensor(["N", "M"], name="x")
        a = tf.define_scalar(tf.float32, name="a")
        y = tf.exp(x) * a
        fusion.add_output(y.sum(1).reshape("N", 1) * y.T.sum(1))
    return fusion


def specialized(fusion: tf.Fusion, **options: Any) -> Specialized:
    run = tf.compile(fusion, **options)
    assert isinstance(run, Specialized)
    return run


def facts(run: Specialized) -> list[str]:
    return [", ".join(map(str, s.facts)) for s in run.specializations]


def explained(run: Specialized, m: int, n: int) -> str:
    """Why it is scheduled so for M and N."""
    schedule = run.at({"M": m, "N": n}).schedule
    assert schedule is not None
    return schedule.explain()


@pytest.mark.usefixtures("all_sizes")
def test_results_are_equal_for_all_sizes() -> None:
    fusion = doubled()
    run = specialized(fusion)
    for m in (1, 5, 33):
        for n in (1, 2, 3, 4, 20, 100):
            x = array(m, n)
            assert np.array_equal(run(x)[0], fusion.evaluate(x)[0])
    assert 1 < len(run.specializations) <= specialization.MOST


@pytest.mark.usefixtures("all_sizes")
def test_rows_that_are_read_again() -> None:
    fusion = centered()
    run = specialized(fusion)
    for shape in ((2, 64), (40, 64), (3, 65), (3, 6), (1, 1)):
        x = array(*shape)
        assert np.array_equal(run(x)[0], fusion.evaluate(x)[0])


def test_vectors_where_rows_have_a_divisor() -> None:
    run = specialized(doubled())
    base = tf.compile(doubled(), specialize=False)
    assert str(run.kernel) == str(base.kernel)
    assert run.schedule is not None
    assert base.schedule is not None
    assert run.schedule.explain() == base.schedule.explain()
    assert "width" not in str(run.kernel)
    assert "width 4" in str(run.at(LARGE).kernel)
    assert "width 2" in str(run.at({"M": 4096, "N": 4098}).kernel)
    assert run.at({"M": 4096, "N": 4097}).kernel is run.kernel  # nothing to gain: it is the kernel for all extents
    assert facts(run) == ["tf.dim('M'), tf.dim('N', multiple_of=4)", "tf.dim('M'), tf.dim('N', multiple_of=2)"]
    assert str(run.specializations[1]) == "tf.dim('M'), tf.dim('N', multiple_of=2); chosen for M=4096, N=8192"
    assert repr(run) == "Specialized('doubled', 2 specializations, backend='auto')"
    assert all(s.run.certificate.is_proved for s in run.specializations)


def test_what_the_user_declared_stays() -> None:
    with tf.Fusion("declared") as fusion:
        x = tf.define_tensor([tf.dim("M", max=5000), tf.dim("N", multiple_of=6, min=0)], name="x")
        fusion.add_output(tf.relu(x))
    run = specialized(fusion)
    assert "width 2" in str(run.kernel)
    assert "width 4" in str(run.at({"M": 4096, "N": 4200}).kernel)
    assert facts(run) == ["tf.dim('M', max=5000), tf.dim('N', multiple_of=12)"]
    assert run.at({"M": 4096, "N": 6 * 5001}).kernel is run.kernel


def test_sizes_with_the_same_schedule_share_a_kernel() -> None:
    run = specialized(doubled())
    wide = run.at(LARGE)
    assert run.at({"M": 100_000, "N": 12_288}) is wide
    assert run.at({"M": 1 << 20, "N": 1 << 14}) is wide
    assert run.at({"M": 1 << 20, "N": 32}) is not wide


def test_rows_of_one_length_are_constants_where_that_pays() -> None:
    run = specialized(centered())
    assert "registers kept" in explained(run, 4096, 2048)
    assert run.at({"M": 3072, "N": 2048}) is run.at({"M": 4096, "N": 2048})
    run.at({"M": 4096, "N": 2000})
    assert facts(run) == [f"tf.dim('M'), tf.dim('N', min={n}, max={n})" for n in (2048, 2000)]
    assert "nothing kept" in explained(run, 4096, 10_000_000)  # too long to keep: of any length
    assert facts(run)[2:] == ["tf.dim('M'), tf.dim('N', multiple_of=4)"]


def test_few_long_rows_are_shared_by_blocks() -> None:
    with tf.Fusion("sums") as fusion:
        fusion.add_output(tf.define_tensor(["M", "N"], name="x").sum(1))
    run = specialized(fusion)
    assert "16 blocks per row" in explained(run, 5, 1 << 20)
    assert facts(run) == ["tf.dim('M', max=8), tf.dim('N', multiple_of=4)"]
    assert run.at({"M": 9, "N": 1 << 20}) is not run.at({"M": 8, "N": 1 << 20})


def test_there_are_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specialization, "MOST", 2)
    run = specialized(centered())
    rows = [run.at({"M": 4096, "N": n}) for n in (1024, 1025, 1026, 1028)]
    assert len(run.specializations) == 1
    assert rows[2] is rows[3] is run.at({"M": 64, "N": 4099})  # those for all extents
    assert rows[2].kernel is run.kernel
    assert run.at({"M": 64, "N": 1024}) is rows[0]


def test_shapes_are_remembered_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specialization, "SHAPES", 2)
    fusion = doubled()
    run = specialized(fusion)
    for n in (3, 4, 5, 3, 6):
        x = array(2, n)
        assert np.array_equal(run(x)[0], fusion.evaluate(x)[0])


@pytest.mark.usefixtures("all_sizes")
def test_cut_fusions_scalars_and_out() -> None:
    fusion = scores()
    run = specialized(fusion)
    for n, m in ((4, 8), (5, 7)):
        x = array(n, m)
        (found,) = run(x, 2.0)
        assert np.allclose(found, fusion.evaluate(x, 2.0)[0], rtol=1e-5)
        out = np.zeros_like(found)
        assert run(x, 2.0, out=out)[0] is out
        assert np.array_equal(out, found)
    assert any(isinstance(s.run, Chain) for s in run.specializations)


def test_threads_make_each_specialization_once() -> None:
    run = specialized(doubled())
    sizes = [{"M": 4096, "N": n} for n in (4096, 4098, 4100, 64, 66, 68)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(run.at, sizes * 4))
    for k, size in enumerate(sizes * 4):
        assert found[k] is run.at(size)
    assert len(facts(run)) == len({s.run.kernel for s in run.specializations})


def test_pickling_keeps_them() -> None:
    run = specialized(doubled(), backend="sim", fast_math=True)
    run.at(LARGE)
    again = pickle.loads(pickle.dumps(run))
    assert facts(again) == facts(run)
    assert str(again.at(LARGE).kernel) == str(run.at(LARGE).kernel)
    assert again.at(LARGE) is again.specializations[0].run
    assert again.at({"M": 4096, "N": 4098}).backend == "sim"
    x = array(3, 5)
    assert np.array_equal(again(x)[0], run(x)[0])


def test_a_fusion_that_changes_later_changes_nothing() -> None:
    fusion = doubled()
    run = specialized(fusion)
    fusion.tensor("x").cache_after()
    assert "width 4" in str(run.at(LARGE).kernel)


def test_what_is_not_specialized() -> None:
    assert not isinstance(tf.compile(doubled(), specialize=False), Specialized)
    with tf.Fusion("scheduled") as fusion:
        y = tf.relu(tf.define_tensor(["N"], name="x"))
        fusion.add_output(y)
    y.axis(0).parallelize(tf.ParallelType.BIDx)
    assert not isinstance(tf.compile(fusion), Specialized)
    assert not isinstance(tf.compile(narrowed(doubled(), (tf.dim("M", min=8, max=8), tf.dim("N", min=4, max=4)))), Specialized)
    run = tf.compile(doubled(), specialize=False)
    assert run.at(LARGE) is run
    assert run.specializations == ()
    small = specialized(doubled())
    small(array(16, 16))
    assert not small.specializations


def test_cuts_are_specialized_by_segment() -> None:
    with tf.Fusion("segments") as fusion:
        y = tf.exp(tf.define_tensor(["M", "N"], name="x"))
        fusion.add_output(tf.relu(y))
    parts = tf.segment(fusion, [[tv] for tv in fusion.tensors() if not tv.is_input])
    x = array(300, 300)
    for specialize in (True, False):
        run = tf.compile(parts, specialize=specialize)
        assert isinstance(run, Chain)
        assert [type(link.run) for link in run.links] == [Specialized if specialize else CompiledKernel] * 2
        assert np.allclose(run(x)[0], np.exp(x))


@pytest.mark.parametrize(
    ("sizes", "reason"),
    [
        ({"M": 4}, "'N' is not given"),
        ({"M": 4, "N": 4, "Q": 4}, "'Q' is not a dimension of it"),
        ({"M": 4, "N": 0}, "N is 0, but the fusion declares tf.dim('N')"),
    ],
)
def test_extents_that_it_does_not_have(sizes: dict[str, int], reason: str) -> None:
    with pytest.raises(UnsupportedError) as caught:
        specialized(doubled()).at(sizes)
    assert caught.value.location is not None
    assert caught.value.location.file == __file__
    lines = str(caught.value).splitlines()
    assert lines[0] == f"a specialization of fusion 'doubled' is not supported: {reason}"
    assert lines[-1] == "help: give all of its dimensions: M, N"


@pytest.mark.parametrize("arguments", [(), (array(2, 3, 4),), (array(0, 4),), (array(2, 3), 1)])
def test_arguments_that_do_not_fit_are_refused_as_without(arguments: tuple[Any, ...]) -> None:
    texts: list[str] = []
    for run in (tf.compile(doubled()), tf.compile(doubled(), specialize=False)):
        with pytest.raises(InputError) as caught:
            run(*arguments)
        texts.append(str(caught.value))
    assert texts[0] == texts[1]


def test_what_has_no_shape_runs() -> None:
    with tf.Fusion("doubles") as fusion:
        fusion.add_output(tf.relu(tf.define_tensor(["M", "N"], dtype=tf.float64, name="x")) * 2)
    assert tf.compile(fusion)([[1.0, -1.0]])[0].tolist() == [[2.0, 0.0]]


def test_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = FakeDriver()
    monkeypatch.setitem(sys.modules, "torch", FakeTorch())
    monkeypatch.setattr(arrays, "kinds", lambda: Kinds(driver))
    run = specialized(doubled())
    for shape in ((256, 256), (256, 256), (256, 254), (2, 4)):
        (y,) = run(FakeTensor(aligned(shape, "float32")))
        assert isinstance(y, FakeTensor)
        assert y.shape == shape
    assert len(driver.launches) == 4
    assert [s.facts[1].multiple_of for s in run.specializations] == [4, 2]


def kept() -> tf.Fusion:
    with tf.Fusion("kept") as fusion:
        x = tf.define_tensor(["M", "N"], name="x")
        fusion.add_output(tf.relu(x[:, : tf.define_integer("pos", max="N")]) * 2)
    return fusion


def emptied() -> tf.Fusion:
    """Several kernels, of an extent and an integer that may be 0."""
    with tf.Fusion("emptied") as fusion:
        x = tf.define_tensor(["M", tf.dim("N", min=0)], name="x")
        first = x[:, : tf.define_integer("pos", max="N")]
        fusion.add_output(tf.relu(first) * 2, tf.cumsum(x, 0).sum(1))
    return fusion


@pytest.mark.usefixtures("all_sizes")
@pytest.mark.parametrize(("make", "lengths"), [(kept, (8,)), (emptied, (8, 0))])
def test_specializations_run_the_calls_that_they_are_made_for(make: Callable[[], tf.Fusion], lengths: tuple[int, ...]) -> None:
    """Facts are weakened while the schedule stays the same, and never exclude what was declared: integers and extents of 0."""
    fusion = make()
    run = specialized(fusion)
    for n in lengths:
        x = array(4, n)
        for pos in {0, min(n, 3)}:
            for found, wanted in zip(run(x, pos), fusion.evaluate(x, pos), strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert run.specializations
    assert all(s.facts[2].min == 0 for s in run.specializations)
    assert isinstance(run.at({"M": 4, "N": 8, "pos": 0}), CompiledKernel if make is kept else Chain)


@pytest.mark.usefixtures("all_sizes")
def test_another_integer_specializes_nothing() -> None:
    run = specialized(kept())
    x = array(16, 64)
    for pos in (64, 7, 32, 33):
        (y,) = run(x, pos)
        assert np.array_equal(y, np.maximum(x[:, :pos], 0) * 2)
    assert len(run.specializations) <= 1
    assert not any("pos" in str(s.facts[2]) and s.facts[2] != kept().dims["pos"] for s in run.specializations)
    with pytest.raises(InputError, match="pos is 65; it must be at least 0, at most N where N is 64"):
        run(x, 65)


@pytest.mark.usefixtures("all_sizes")
def test_integers_are_expected_to_be_what_the_sizes_say(monkeypatch: pytest.MonkeyPatch) -> None:
    """Extents that they alone decide make no specialization; beside others, cost models assume the value that was given."""
    with tf.Fusion("flat") as flat:
        n = tf.define_integer("n", 1)
        flat.add_output(tf.relu(tf.define_tensor([n * 4], name="x")) * n)
    run = specialized(flat, sizes={"n": 512})
    searches: list[Any] = []
    search = specialization.choose_segments

    def watched(fusion: tf.Fusion, **given: Any) -> Any:
        searches.append(given["sizes"])
        return search(fusion, **given)

    monkeypatch.setattr(specialization, "choose_segments", watched)
    assert run.at({"n": 100}).schedule is run.schedule
    assert not searches
    specialized(kept(), sizes={"M": 64, "N": 64, "pos": 16}, cache=False).at({"M": 4, "N": 32, "pos": 5})
    assert {sizes["pos"] for sizes in searches} == {16}


def test_extents_near_the_expected_ones_need_no_search(monkeypatch: pytest.MonkeyPatch) -> None:
    with tf.Fusion("scaled") as fusion:
        fusion.add_output(tf.relu(tf.define_tensor(["M", 1024], name="x")) * 2)
    run = specialized(fusion, sizes={"M": 4096})
    found = [run.at({"M": m}) for m in (1024, 5000, 16384)]
    assert all(one is run.at({"M": 4096}) for one in found)
    assert not run.specializations
    searches: list[Any] = []

    def watched(fusion: tf.Fusion, **given: Any) -> None:
        searches.append(given)

    monkeypatch.setattr(specialization, "choose_segments", watched)
    pickle.loads(pickle.dumps(run)).at({"M": 3000})
    assert not searches
    run.at({"M": 100_000})
    assert searches
