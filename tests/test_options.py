"""Environment variables: what they mean, and what is refused."""

import os
from pathlib import Path

import pytest

from taskfuse import options
from taskfuse.errors import OptionError
from taskfuse.options import VARIABLES, Options, read_options

DEFAULT = Options(frozenset(), frozenset(), None, Path("/home/u/.cache/taskfuse"), 1 << 30, True, False, "auto", "auto", True, None, 2000, "")


def read(**env: str) -> Options:
    return read_options({"HOME": "/home/u", "PATH": "/bin", **env})


def test_nothing_set() -> None:
    assert read() == DEFAULT


@pytest.mark.parametrize("name", VARIABLES)
def test_set_to_nothing_is_not_set(name: str) -> None:
    assert read(**{name: ""}) == DEFAULT


@pytest.mark.parametrize(
    ("name", "value", "field", "expected"),
    [
        ("DUMP", "cuda", "dump", {"cuda"}),
        ("DUMP", "plan:nest, plan:emit", "dump_steps", {"nest", "emit"}),
        ("DUMP", "fusion, kernel,cuda,ptx,sass,cuda,", "dump", {"fusion", "kernel", "cuda", "ptx", "sass"}),
        ("DUMP_DIR", "/d", "dump_dir", Path("/d")),
        ("DUMP_DIR", "~/d", "dump_dir", Path("/home/u/d")),
        ("DUMP_DIR", "d", "dump_dir", Path.cwd() / "d"),
        ("CACHE_DIR", "/c", "cache_dir", Path("/c")),
        ("CACHE_DIR", "~", "cache_dir", Path("/home/u")),
        ("CACHE_DIR", "~other/c", "cache_dir", Path.cwd() / "~other/c"),
        ("PROGRESS", "1", "progress", "1"),
        ("VERIFY", "0", "verify", False),
        ("VERIFY", "1", "verify", True),
        ("CHAOS", "0", "chaos", 0),
        ("CHAOS", "1234", "chaos", 1234),
        ("CACHE_BYTES", "0", "cache_bytes", 0),
        ("CACHE_BYTES", "4096", "cache_bytes", 4096),
        ("CACHE_BYTES", "3k", "cache_bytes", 3 << 10),
        ("CACHE_BYTES", " 512M ", "cache_bytes", 512 << 20),
        ("CACHE_BYTES", "2G", "cache_bytes", 2 << 30),
        ("ALWAYS_COMPILE", "1", "always_compile", True),
        ("ALWAYS_COMPILE", "0", "always_compile", False),
        ("BACKEND", "sim", "backend", "sim"),
        ("BACKEND", "auto", "backend", "auto"),
        ("WATCHDOG_MS", "1", "watchdog_ms", 1),
        ("WATCHDOG_MS", "010000", "watchdog_ms", 10000),
    ],
)
def test_values(name: str, value: str, field: str, expected: object) -> None:
    found = read(**{f"TASKFUSE_{name}": value})
    assert getattr(found, field) == expected
    assert [f for f in Options.__slots__ if f != field and getattr(found, f) != getattr(DEFAULT, f)] == []


def test_the_folder_of_the_cache() -> None:
    assert read(XDG_CACHE_HOME="/x").cache_dir == Path("/x/taskfuse")
    assert read(XDG_CACHE_HOME="x").cache_dir == Path("/home/u/.cache/taskfuse")
    assert read(XDG_CACHE_HOME="/x", TASKFUSE_CACHE_DIR="/c").cache_dir == Path("/c")
    assert read_options({}).cache_dir == Path.home() / ".cache/taskfuse"


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    def home() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", home)
    with pytest.raises(OptionError) as caught:
        read_options({"TASKFUSE_WATCHDOG_MS": "77"})
    assert str(caught.value) == ("environment variable TASKFUSE_CACHE_DIR: this user has no home directory\nhelp: set TASKFUSE_CACHE_DIR to an absolute path")
    assert read_options({"TASKFUSE_WATCHDOG_MS": "77", "TASKFUSE_CACHE_DIR": "/c"}).cache_dir == Path("/c")


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("TASKFUSE_DMUP", "cuda", "there is no such variable\nhelp: did you mean TASKFUSE_DUMP?"),
        ("TASKFUSE_CACHE", "/c", "there is no such variable\nhelp: did you mean TASKFUSE_CACHE_DIR?"),
        ("TASKFUSE_dump", "cuda", "there is no such variable\nhelp: did you mean TASKFUSE_DUMP?"),
        ("TASKFUSE_Q", "1", f"there is no such variable\nhelp: use one of {', '.join(VARIABLES)}"),
        ("TASKFUSE_DUMP", "cuda,kernl", "'kernl' is not a value of it\nhelp: did you mean kernel?"),
        ("TASKFUSE_DUMP", "1", "'1' is not a value of it\nhelp: use one of fusion, kernel, cuda, ptx, sass, plan:STEP"),
        ("TASKFUSE_BACKEND", "gpu", "'gpu' is not a value of it\nhelp: use one of auto, cuda, sim"),
        ("TASKFUSE_BACKEND", "CUDA", "'CUDA' is not a value of it\nhelp: did you mean cuda?"),
        ("TASKFUSE_ALWAYS_COMPILE", "yes", "'yes' is not a value of it\nhelp: use 0 or 1"),
        ("TASKFUSE_CACHE_BYTES", "-1", "'-1' is not a value of it\nhelp: use a number of bytes, or one with K, M or G: 512M"),
        ("TASKFUSE_CACHE_BYTES", "1.5G", "'1.5G' is not a value of it\nhelp: use a number of bytes, or one with K, M or G: 512M"),
        ("TASKFUSE_CACHE_BYTES", "²", "'²' is not a value of it\nhelp: use a number of bytes, or one with K, M or G: 512M"),
        ("TASKFUSE_WATCHDOG_MS", "0", "'0' is not a value of it\nhelp: use a number from 1 to 999999999, such as 2000"),
        ("TASKFUSE_WATCHDOG_MS", "2s", "'2s' is not a value of it\nhelp: use a number from 1 to 999999999, such as 2000"),
    ],
)
def test_refused(name: str, value: str, expected: str) -> None:
    with pytest.raises(OptionError) as caught:
        read(**{name: value})
    assert str(caught.value) == f"environment variable {name}: {expected}"


def test_the_environment_is_read_at_each_call(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    before = read_options()
    monkeypatch.setenv("TASKFUSE_BACKEND", "sim")
    assert (before.backend, read_options().backend) == ("auto", "sim")
    assert read_options() is read_options()
    monkeypatch.setenv("TASKFUSE_BACKENDS", "sim")
    for _ in range(2):
        with pytest.raises(OptionError, match="TASKFUSE_BACKENDS"):
            read_options()


def test_every_variable_is_described() -> None:
    assert all(f"``{name}``" in (options.__doc__ or "") for name in VARIABLES)


def test_the_cores_that_the_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of its affinity, where a system has that, and not all that a machine has."""

    def two(_: int) -> set[int]:
        return {3, 5}

    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", two, raising=False)
    assert options.cores() == 2
    monkeypatch.delattr(os, "sched_getaffinity")
    assert options.cores() == 64
    monkeypatch.setattr(os, "cpu_count", lambda: None)
    assert options.cores() == 1
