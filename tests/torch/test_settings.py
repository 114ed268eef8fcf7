"""Modes and options: what they set, what is refused, what tells graphs apart."""

import pytest

torch = pytest.importorskip("torch")

from taskfuse.errors import UnsupportedError
from taskfuse.torch.settings import settings_of


def test_modes() -> None:
    assert settings_of(None, None) == settings_of("default", {})
    assert settings_of("reduce-overhead", None).cudagraphs
    assert settings_of("max-autotune", None).measure
    assert not settings_of("max-autotune", {"cudagraphs": False}).cudagraphs
    assert not settings_of("max-autotune-no-cudagraphs", None).cudagraphs


@pytest.mark.parametrize(
    ("mode", "options", "text"),
    [
        ("fast", {}, "mode 'fast'"),
        (None, {"speed": 1}, "option 'speed'"),
        (None, {"strict": 1}, "strict=1"),
        (None, {"least": True}, "least=True"),
        (None, {"run": "gpu"}, "run='gpu'"),
        (None, {"budget": "long"}, "budget='long'"),
        (None, {"budget": float("nan")}, "budget=nan"),
        (None, {"most": 0}, "most=0"),
    ],
)
def test_what_does_not_exist_is_refused(mode: str | None, options: dict[str, object], text: str) -> None:
    with pytest.raises(UnsupportedError, match="there is no such choice") as error:
        settings_of(mode, options)
    assert text in str(error.value)


def test_a_tag_for_each_choice() -> None:
    assert settings_of(None, {"least": 3}).tag != settings_of(None, None).tag == settings_of(None, {}).tag
    assert settings_of(None, {"budget": 5}).budget == 5
