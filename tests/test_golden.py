"""The golden-file fixture itself."""

from pathlib import Path

import pytest

from tests.golden import Golden


def test_update_writes_the_file_that_check_accepts(tmp_path: Path) -> None:
    Golden(tmp_path, update=True).check("folder/a.txt", "FOR i in 0..4:\n  x = 1")
    assert (tmp_path / "folder/a.txt").read_text() == "FOR i in 0..4:\n  x = 1\n"
    Golden(tmp_path, update=False).check("folder/a.txt", "FOR i in 0..4:\n  x = 1\n")


def test_a_difference_fails_and_shows_the_diff(tmp_path: Path) -> None:
    Golden(tmp_path, update=True).check("a.txt", "one\ntwo")
    with pytest.raises(pytest.fail.Exception) as failure:
        Golden(tmp_path, update=False).check("a.txt", "one\nthree")
    assert str(failure.value) == (
        "golden file a.txt differs\n--- goldens/a.txt\n+++ now\n@@ -1,2 +1,2 @@\n one\n-two\n+three\nhelp: if the change is meant, `make golden` rewrites it"
    )


def test_a_missing_file_fails(tmp_path: Path) -> None:
    with pytest.raises(pytest.fail.Exception) as failure:
        Golden(tmp_path, update=False).check("a.txt", "one")
    assert str(failure.value) == "golden file a.txt does not exist\nhelp: `make golden` writes it"
