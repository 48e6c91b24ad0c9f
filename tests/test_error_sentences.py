"""An error becomes one sentence for the user: its own, or what is known of it."""

from __future__ import annotations

from typing import Any

import pytest

from foretrace.errors import InputError, sentence_of


@pytest.mark.parametrize(
    ("error", "options", "sentence"),
    [
        (InputError("there is no step 9"), {}, "there is no step 9"),
        (InputError("there is no step 9"), {"name_files": False, "machine": "m", "defect": "d"}, "there is no step 9"),
        (MemoryError(), {}, "this machine has not enough memory for this; try something smaller"),
        (MemoryError(), {"machine": "the other"}, "the other has not enough memory for this; try something smaller"),
        (OSError(5, "Input/output error", "/a/place"), {}, "/a/place: Input/output error"),
        (
            OSError(5, "Input/output error", "/a/place"),
            {"name_files": False},
            "a file cannot be read: Input/output error",
        ),
        (
            OSError(111, "Connection refused"),
            {},
            "this is a defect of foretrace: ConnectionRefusedError: [Errno 111] Connection refused; please report it",
        ),
        (ValueError(), {}, "this is a defect of foretrace: ValueError; please report it"),
        (ValueError("two\n lines"), {"defect": "run"}, "this is a defect of foretrace: ValueError: two lines; run"),
        (ValueError("x" * 999), {}, f"this is a defect of foretrace: ValueError: {'x' * 300}; please report it"),
    ],
    ids=[
        "ours",
        "ours as it is",
        "memory",
        "memory elsewhere",
        "a file",
        "a file unnamed",
        "no file",
        "silent",
        "lines",
        "long",
    ],
)
def test_an_error_is_one_sentence(error: Exception, options: dict[str, Any], sentence: str) -> None:
    assert sentence_of(error, **options) == sentence


@pytest.fixture
def requirements(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the metadata of an installed foretrace says; a checkout's own may be of an earlier day."""
    listed = [
        "polars>=2.0",
        "isal>=1.6; platform_machine in 'x86_64 AMD64 aarch64 arm64'",
        'ipython>=8.20; extra == "notebook"',
        'triton>=3.0; sys_platform == "linux" and extra == "triton"',
        "huggingface-hub>=2.0 ; extra == 'share'",
        'foretrace[notebook,share]; extra == "dev"',
    ]
    monkeypatch.setattr("importlib.metadata.requires", lambda _: listed)


@pytest.mark.usefixtures("requirements")
@pytest.mark.parametrize(
    ("module", "sentence"),
    [
        ("polars", "polars is needed for this and not installed: pip install 'polars>=2.0'"),
        ("isal", "isal is needed for this and not installed: pip install 'isal>=1.6'"),
        ("IPython", "ipython is needed for this and not installed: pip install 'foretrace[notebook]'"),
        ("triton", "triton is needed for this and not installed: pip install 'foretrace[triton]'"),
        ("huggingface_hub", "huggingface-hub is needed for this and not installed: pip install 'foretrace[share]'"),
    ],
)
def test_a_package_of_ours_that_is_missing_is_said_with_its_command(module: str, sentence: str):
    assert sentence_of(ModuleNotFoundError(f"No module named {module!r}", name=module)) == sentence


@pytest.mark.usefixtures("requirements")
@pytest.mark.parametrize("module", ["nosuch", "polars.nosuch", None])
def test_a_module_of_no_package_of_ours_is_a_defect(module: str | None):
    said = sentence_of(ModuleNotFoundError(f"No module named {module!r}", name=module))
    assert said.startswith("this is a defect of foretrace: ModuleNotFoundError")


@pytest.mark.usefixtures("requirements")
def test_the_command_line_says_so_too(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    from foretrace import cli

    def missing(_: str) -> None:
        raise ModuleNotFoundError("No module named 'polars'", name="polars")

    monkeypatch.setattr(cli, "import_module", missing)
    assert cli.main(["sql", "trace.json", "SELECT 1"]) == 2
    assert capsys.readouterr().err == (
        "foretrace: polars is needed for this and not installed: pip install 'polars>=2.0'\n"
    )


def test_what_the_installed_metadata_asks_for_is_ours():
    assert "defect" not in sentence_of(ModuleNotFoundError("No module named 'numpy'", name="numpy"))
