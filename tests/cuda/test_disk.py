"""The folder of entries, treated badly: damage, killed writers, clocks, crowds."""

import errno
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taskfuse.cuda import disk
from taskfuse.cuda.disk import DiskCache

KEY = "ab" * 32
OTHER = "cd" * 32
ROOMY = 1 << 20


@pytest.fixture
def cache(tmp_path: Path) -> DiskCache:
    return DiskCache(tmp_path / "deep" / "cache", ROOMY)


def entry(cache: DiskCache, key: str = KEY) -> Path:
    return cache.folder / f"{key}.kernel"


def names(cache: DiskCache) -> list[str]:
    return sorted(path.name for path in cache.folder.iterdir())


def key(number: int) -> str:
    return f"{number:064x}"


def test_what_was_put_is_there(cache: DiskCache) -> None:
    assert (cache.get(KEY), cache.usage()) == (None, (0, 0))
    cache.put(KEY, b"content")
    cache.put(OTHER, b"")
    assert (cache.get(KEY), cache.get(OTHER), cache.get(key(1))) == (b"content", b"", None)
    assert DiskCache(cache.folder, ROOMY).get(KEY) == b"content"
    assert cache.usage() == (2, 2 * (18 + 32) + 7)
    cache.put(KEY, b"new")
    assert cache.get(KEY) == b"new"
    assert names(cache) == [f"{KEY}.kernel", f"{OTHER}.kernel"]


@given(st.binary(max_size=200))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    cache = DiskCache(tmp_path_factory.getbasetemp() / "bytes", ROOMY)
    cache.put(KEY, content)
    assert cache.get(KEY) == content


# -- damage ----------------------------------------------------------------------------------------------------------------------------


def test_every_flipped_bit_is_noticed(cache: DiskCache) -> None:
    cache.put(KEY, b"some content")
    whole = entry(cache).read_bytes()
    for position in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[position] ^= 1 << bit
            entry(cache).write_bytes(damaged)
            assert cache.get(KEY) is None, (position, bit)
    entry(cache).write_bytes(whole)
    assert cache.get(KEY) == b"some content"


def test_every_truncation_is_noticed(cache: DiskCache) -> None:
    cache.put(KEY, b"some content")
    whole = entry(cache).read_bytes()
    for length in range(len(whole)):
        entry(cache).write_bytes(whole[:length])
        assert cache.get(KEY) is None, length
    for more in (b"\0", b"x", whole):
        entry(cache).write_bytes(whole + more)
        assert cache.get(KEY) is None


SPOILERS: list[Callable[[Path, bytes], object]] = [
    lambda path, whole: path.write_bytes(b""),
    lambda path, whole: path.write_bytes(b"\x7fELF" + bytes(500)),
    lambda path, whole: path.write_bytes(whole.replace(b"kernel 1", b"kernel 2")),
    lambda path, whole: path.symlink_to(path),
    lambda path, whole: path.symlink_to("nowhere"),
    lambda path, whole: path.symlink_to("/dev/null"),
]


@pytest.mark.parametrize(
    "spoil",
    SPOILERS,
    ids=["empty", "foreign", "other form", "loop", "dangling", "device"],
)
def test_what_is_no_entry_is_replaced(cache: DiskCache, spoil: Callable[[Path, bytes], object]) -> None:
    cache.put(KEY, b"content")
    whole = entry(cache).read_bytes()
    entry(cache).unlink()
    spoil(entry(cache), whole)
    assert cache.get(KEY) is None
    cache.put(KEY, b"content")
    assert cache.get(KEY) == b"content"
    assert not entry(cache).is_symlink()


def test_an_entry_under_another_key(cache: DiskCache) -> None:
    cache.put(KEY, b"content")
    entry(cache).rename(entry(cache, OTHER))
    assert (cache.get(KEY), cache.get(OTHER)) == (None, None)


def test_a_folder_in_place_of_an_entry(cache: DiskCache) -> None:
    entry(cache).mkdir(parents=True)
    assert cache.get(KEY) is None
    with pytest.raises(OSError, match=r"Is a directory|Not a directory"):
        cache.put(KEY, b"content")
    cache.put(OTHER, b"content")
    assert names(cache) == [f"{KEY}.kernel", f"{OTHER}.kernel"]


# -- writing that fails ----------------------------------------------------------------------------------------------------------------


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        cache = DiskCache(folder, ROOMY)
        assert (cache.get(KEY), cache.usage(), cache.clear()) == (None, (0, 0), 0)
        with pytest.raises(OSError, match=r"exists|Not a directory"):
            cache.put(KEY, b"content")
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write to read-only folders")
def test_a_read_only_folder(cache: DiskCache) -> None:
    cache.put(KEY, b"content")
    cache.folder.chmod(0o500)
    try:
        assert cache.get(KEY) == b"content"
        with pytest.raises(PermissionError):
            cache.put(OTHER, b"content")
    finally:
        cache.folder.chmod(0o700)


@pytest.mark.parametrize("call", ["write", "replace"])
def test_a_full_disk(cache: DiskCache, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    cache.put(KEY, b"old")

    class Full:
        def __init__(self, path: Path, mode: str) -> None:
            self.file = path.open(mode)

        def __enter__(self) -> Self:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def write(self, data: bytes) -> None:
            self.file.write(data[:10])
            raise OSError(errno.ENOSPC, "No space left on device")

    def replace(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        if call == "write":
            patch.setattr(disk, "open", Full, raising=False)
        else:
            patch.setattr(os, "replace", replace)
        with pytest.raises(OSError, match="No space left"):
            cache.put(KEY, b"new")
    assert cache.get(KEY) == b"old"
    assert names(cache) == [f"{KEY}.kernel"]


def test_an_entry_that_vanishes_while_it_is_touched(cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.put(KEY, b"content")

    def touched(path: str) -> None:
        Path(path).unlink()
        os.stat(path)

    monkeypatch.setattr(os, "utime", touched)
    assert cache.get(KEY) == b"content"
    assert cache.get(KEY) is None


# -- the bound -------------------------------------------------------------------------------------------------------------------------


def put_at(cache: DiskCache, number: int, when: float, size: int = 50) -> None:
    cache.put(key(number), bytes(size))
    os.utime(entry(cache, key(number)), (when, when))


def kept(cache: DiskCache) -> list[int]:
    return [int(name.split(".")[0], 16) for name in names(cache)]


def test_the_bound_holds_after_every_write(cache: DiskCache) -> None:
    chance = random.Random(0)
    cache.limit = 5000
    fullest = 0
    for number in range(300):
        cache.put(key(number), bytes(chance.randrange(600)))
        used = cache.usage()[1]
        assert used <= 5000
        assert cache.get(key(number)) is not None
        fullest = max(fullest, used)
    assert fullest > 4000


def test_the_least_recently_used_go_first(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 1000)  # ten entries of 100 bytes
    now = time.time()
    for number in range(10):
        put_at(cache, number, now - 100 + number)
    assert cache.get(key(0)) is not None  # now the most recent
    cache.put(key(10), bytes(50))
    # room for an eighth of the limit: 11 entries, down to 8
    assert kept(cache) == [0, *range(4, 11)]


def test_an_entry_larger_than_the_bound_is_not_kept(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path / "c", 1000)
    cache.put(KEY, bytes(950))
    cache.put(OTHER, bytes(951))
    assert names(cache) == [f"{KEY}.kernel"]
    DiskCache(tmp_path / "none", 0).put(KEY, b"")
    assert not (tmp_path / "none").exists()


def test_what_another_process_wrote_counts(tmp_path: Path) -> None:
    ours, theirs = DiskCache(tmp_path, 10_000), DiskCache(tmp_path, 10_000_000)
    ours.put(key(0), bytes(50))
    for number in range(1, 201):
        put_at(theirs, number, 1e9 + number)
    for number in range(201, 234):
        ours.put(key(number), bytes(50))
    assert ours.usage()[1] <= 10_000
    assert set(kept(ours)) >= set(range(201, 234))


def test_entries_from_the_future_are_the_oldest(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 500)
    now = time.time()
    put_at(cache, 0, now + 1e8)
    put_at(cache, 1, now - 1e8)
    put_at(cache, 2, now + 100)  # within what clocks of machines that share a folder may differ
    put_at(cache, 3, now)
    put_at(cache, 4, now)
    cache.put(key(5), bytes(50))
    assert kept(cache) == [2, 3, 4, 5]


def test_files_of_others_stay(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 300)
    foreign = ["notes.txt", f"{KEY}.kernel.bak", "x.kernel", f"{KEY.upper()}.kernel", f"{KEY}.tmp", "a.tmp"]
    for name in foreign:
        (tmp_path / name).write_bytes(bytes(1000))
        os.utime(tmp_path / name, (0, 0))
    for number in range(6):
        cache.put(key(number), bytes(50))
    assert cache.usage()[0] in (2, 3)
    assert cache.clear() > 0
    assert names(cache) == sorted(foreign)


# -- killed writers, crowds ------------------------------------------------------------------------------------------------------------


def test_temporary_files_are_removed_when_their_writer_is_gone(cache: DiskCache) -> None:
    cache.folder.mkdir(parents=True)
    process = subprocess.Popen([sys.executable, "-S", "-c", ""])
    process.wait()
    here = os.uname().nodename
    now = time.time()
    ages = {
        f"{KEY}.{here}.{process.pid}.00.tmp": now,  # its process has ended
        f"{KEY}.{here}.{os.getpid()}.01.tmp": now - 4000,  # no write takes an hour
        f"{KEY}.elsewhere.1.02.tmp": now - 4000,
        f"{KEY}.elsewhere.1.03.tmp": now + 4000,
        f"{KEY}.{here}.{10**30}.04.tmp": now - 4000,
    }
    stay = {f"{KEY}.{here}.{os.getpid()}.05.tmp": now, f"{KEY}.elsewhere.1.06.tmp": now}
    for name, when in (ages | stay).items():
        (cache.folder / name).write_bytes(b"half of an ent")
        os.utime(cache.folder / name, (when, when))
    cache.put(OTHER, b"content")
    assert names(cache) == sorted([*stay, f"{OTHER}.kernel"])
    cache.clear()
    assert names(cache) == sorted(stay)


# Runs without the package: a process is there in 30 ms.
WRITER = """
import runpy, sys
from pathlib import Path
DiskCache = runpy.run_path(sys.argv[1], run_name="disk")["DiskCache"]
cache = DiskCache(Path(sys.argv[2]), 1 << 30)
print("ready", flush=True)
number = 0
while True:
    cache.put(f"{number % 4:064x}", bytes([number % 256]) * 3_000_000)
    number += 1
"""


def until_it_writes(cache: DiskCache, process: int) -> None:
    end = time.monotonic() + 5
    while not any(f".{process}." in name for name in os.listdir(cache.folder)) and time.monotonic() < end:
        pass


def test_killed_writers_leave_nothing_harmful(cache: DiskCache) -> None:
    cache.folder.mkdir(parents=True)
    chance = random.Random(1)
    halves = 0
    for attempt in range(12):
        process = subprocess.Popen([sys.executable, "-S", "-c", WRITER, disk.__file__, str(cache.folder)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        if attempt % 2:
            time.sleep(chance.uniform(0, 0.03))
        else:
            until_it_writes(cache, process.pid)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        for number in range(4):
            content = cache.get(key(number))
            assert content is None or (len(content) == 3_000_000 and len(set(content)) == 1)
            assert (content is not None) == entry(cache, key(number)).exists()
        halves += any(name.endswith(".tmp") for name in names(cache))
    assert halves > 0, "no writer was killed while it wrote"
    cache.put(KEY, b"content")
    assert [name for name in names(cache) if name.endswith(".tmp")] == []


CROWD = """
import runpy, sys
from pathlib import Path
DiskCache = runpy.run_path(sys.argv[1], run_name="disk")["DiskCache"]
cache = DiskCache(Path(sys.argv[2]), int(sys.argv[3]))
found = 0
for round in range(60):
    for number in range(5):
        key = f"{number:064x}"
        content = cache.get(key)
        assert content in (None, bytes([number]) * 9000), key
        found += content is not None
        cache.put(key, bytes([number]) * 9000)
print(found)
"""


@pytest.mark.parametrize("limit", [1 << 20, 20_000], ids=["room for all", "room for two"])
def test_eight_processes_with_the_same_keys(tmp_path: Path, limit: int) -> None:
    command = [sys.executable, "-S", "-c", CROWD, disk.__file__, str(tmp_path), str(limit)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(8)]
    for process in processes:
        out, err = process.communicate()
        assert (process.returncode, err) == (0, "")
        if limit == 1 << 20:
            assert int(out) > 59 * 5 - 5
    cache = DiskCache(tmp_path, limit)
    assert cache.usage()[0] == 5 or limit == 20_000
    cache.put(KEY, b"content")
    assert cache.usage()[1] <= limit
    assert [name for name in names(cache) if not name.endswith(".kernel")] == []


def test_many_threads_and_a_small_bound(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path, 3000)
    wrong: list[object] = []

    def work(seed: int) -> None:
        chance = random.Random(seed)
        try:
            for _ in range(100):
                number = chance.randrange(20)
                if cache.get(key(number)) not in (None, bytes([number]) * 200):
                    wrong.append(number)
                cache.put(key(number), bytes([number]) * 200)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert cache.usage()[1] <= 3000
