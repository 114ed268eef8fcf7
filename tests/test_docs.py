"""The documentation is true: its Python blocks run and print what the page shows, its links and paths lead somewhere, and the map is complete.

A page is one program: its blocks marked ``python`` run in order. A block marked ``text`` right below one is what that one prints (``...``
stands for anything); ``make golden`` rewrites those that show the output in full.
"""

import re
from pathlib import Path
from statistics import geometric_mean

import pytest

from taskfuse.cli.main import main
from taskfuse.errors import FusionError
from tests.documents import Page, matches, rewritten
from tests.golden import Golden

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
FOLDERS = ("taskfuse/", "tests/", "docs/", "examples/", "typings/")


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_python_blocks_print_what_the_page_shows(path: Path, golden: Golden) -> None:
    page = Page.read(path)
    results = page.run()
    if golden.update:
        path.write_text(rewritten(page, results), encoding="utf-8")
        return
    for block, shown, printed in results:
        expected = "" if shown is None else "\n".join(shown.lines)
        assert matches(expected, printed), (
            f"{name(path)}:{block.line}: the block does not print what the page shows\n--- the page\n{expected}\n--- printed\n{printed}"
        )


@pytest.mark.parametrize("path", [p for p in PAGES if Page.read(p).commands()], ids=name)
def test_commands_print_what_the_page_shows(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    printed: dict[tuple[str, ...], str] = {}
    for block, arguments, shown in Page.read(path).commands():
        key = tuple(arguments)
        if key not in printed:
            assert main(arguments) == 0, f"{name(path)}:{block.line}: the command fails: {capsys.readouterr().err}"
            printed[key] = capsys.readouterr().out
        expected = "\n".join(shown.lines)
        assert matches(expected, printed[key]), f"{name(path)}:{block.line}: the command does not print what the page shows\n{printed[key]}"


def test_the_tour_goes_through_every_stage() -> None:
    stages = [a[1] for _, a, _ in Page.read(ROOT / "docs" / "tour.md").commands() if a[0] == "show" and not a[1].endswith(".py")]
    assert list(dict.fromkeys(stages)) == ["fusion", "kernel", "cuda", "ptx", "sass"]


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_links_lead_somewhere(path: Path) -> None:
    for target in Page.read(path).links():
        file, _, anchor = target.partition("#")
        to = (path.parent / file).resolve() if file else path
        assert to.is_relative_to(ROOT), f"{name(path)}: the link to {target} leaves the repository"
        assert to.exists(), f"{name(path)}: there is no {target}"
        if anchor:
            assert anchor in Page.read(to).anchors(), f"{name(path)}: {name(to)} has no heading #{anchor}"


@pytest.mark.parametrize("path", PAGES, ids=name)
def test_paths_in_the_text_exist(path: Path) -> None:
    for code in Page.read(path).code():
        if code.startswith(FOLDERS) and " " not in code and "<" not in code:
            assert any(ROOT.glob(code.rstrip("/"))), f"{name(path)}: there is no {code}"


def test_the_map_has_a_line_for_every_module() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    modules = [p for p in sorted((ROOT / "taskfuse").rglob("*.py")) if p.name != "__init__.py"]
    missing = [name(p) for p in modules if f"`{name(p)}`" not in text]
    assert missing == [], "ARCHITECTURE.md says in one line what each module decides: add these"


def test_stored_figures_begin_with_when_or_how_they_were_taken() -> None:
    heads = {name(p): p.read_text(encoding="utf-8").split("\n")[0] for p in (ROOT / "benchmarks" / "results").glob("*.txt")}
    assert {file: head for file, head in heads.items() if re.match(r"20\d\d-\d\d-\d\d, |python ", head) is None} == {}


def test_the_index_has_a_line_for_every_page() -> None:
    links = Page.read(ROOT / "docs" / "README.md").links()
    assert {p.name for p in (ROOT / "docs").glob("*.md")} - {"README.md"} <= set(links)


PAGE = """# A page
Text with `code`, a [link](other.md#part-two) and [the web](https://example.org).

```python
x = 2
print(x + 1)
```
```text
3
```

```python
print(x, "and more")
```

```text
2 and ...
```

```python
x = 3
```

Not the output of the last one:

```text
4
```

```sh
python -m taskfuse show --step order "a b.py"
```

```text
LOOP ...
```

```sh
make test
```

## Part two: `it` works
"""


def page(text: str) -> Page:
    return Page(Path("page.md"), tuple(text.split("\n")))


def test_a_page_is_one_program() -> None:
    results = page(PAGE).run()
    assert [(b.line, None if s is None else s.lines, p) for b, s, p in results] == [(4, ("3",), "3\n"), (12, ("2 and ...",), "2 and more\n"), (20, None, "")]
    assert page(PAGE).links() == ["other.md#part-two"]
    assert page(PAGE).code() == ["code", "it"]
    assert [(a, s.lines) for _, a, s in page(PAGE).commands()] == [(["show", "--step", "order", "a b.py"], ("LOOP ...",))]
    assert page(PAGE).anchors() == {"a-page", "part-two-it-works"}


def test_a_wrong_output_is_found_and_rewritten() -> None:
    wrong = PAGE.replace("```text\n3", "```text\n5\n6").replace("```text\n2 and", "```text\n9 and")
    results = page(wrong).run()
    assert [matches("\n".join(s.lines), p) for _, s, p in results if s is not None] == [False, False]
    # what is shown in part is for a person to mend
    assert rewritten(page(wrong), results) == PAGE.replace("```text\n2 and", "```text\n9 and")


def test_an_error_that_the_page_shows_is_output() -> None:
    text = "```python\nimport taskfuse as tf\ntf.Fusion(\"f\").tensor(\"x\")\n```\n```text\nfusion 'f': there is no tensor named 'x'\n...\n```"
    ((_, shown, printed),) = page(text).run()
    assert shown is not None
    assert matches("\n".join(shown.lines), printed)
    with pytest.raises(FusionError, match="no tensor named"):
        page(text.split("```text")[0]).run()


@pytest.mark.parametrize(("row", "stored", "columns"), [("programs as people", "programs.txt", 12), ("graphs traced from models", "traces_h200.txt", 11)])
def test_figures_of_many_cases_are_those_of_their_latest_rows(row: str, stored: str, columns: int) -> None:
    """A file of results may end with rows of a later run of some cases."""
    latest: dict[str, float] = {}
    for line in (ROOT / "benchmarks" / "results" / stored).read_text(encoding="utf-8").splitlines():
        words = line.split()
        if len(words) >= columns and line.startswith("  ") and words[1].isdigit():
            latest[words[0]] = float(words[10])
    (said,) = (line for line in (ROOT / "README.md").read_text(encoding="utf-8").splitlines() if row in line)
    count, mean, least = said.split()[1], *said.rstrip(" |").replace("|", " ").split()[-2:]
    assert (int(count), mean, least) == (len(latest), f"{geometric_mean(latest.values()):.2f}", f"{min(latest.values()):.2f}")
