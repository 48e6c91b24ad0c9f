"""Ways to write a path or a name, of which redaction leaves nothing that tells of a person."""

from __future__ import annotations

import json
import unicodedata

import pytest

from foretrace.knowledge.sharing import Category
from foretrace.view.sharing.redaction import Redactor

ALL = tuple(Category)
NFD = unicodedata.normalize("NFD", "josé")

# What is written → what may not be left of it, neither there nor, for names, in another string.
PATHS = {
    "an apostrophe": ("/home/o'neill/secretproj/x.py", "o'neill"),
    "an apostrophe on Windows": (r"C:\Users\O'Neill\secretproj\x.py", "O'Neill"),
    "two spaces": ("/home/kimberly/my  secretproj/x.py", "kimberly"),
    "a tab": ("/home/kimberly/my\tsecretproj/x.py", "kimberly"),
    "a line end": ("/home/kimberly/my\nsecretproj/x.py", "kimberly"),
    "a bar": ("/home/kimberly/my|secretproj/x.py", "kimberly"),
    "WSL": (r"\\wsl$\Ubuntu\home\kimberly\secretproj\x.py", "kimberly"),
    "WSL's other name": (r"\\wsl.localhost\Ubuntu\home\kimberly\secretproj\x.py", "kimberly"),
    "a device path": (r"\\?\C:\Users\kimberly\secretproj\x.py", "kimberly"),
    "a repository over ssh": ("git@github.com:kimberly/secretproj.git", "kimberly"),
    "a repository's address": ("ssh://git@host.example:22/kimberly/secretproj.git", None),
    "a repository's page": ("https://github.com/kimberly/secretproj", "kimberly"),
    "a URL": ("file%3A%2F%2Fhome%2Fkimberly%2Fsecretproj%2Fx.py", "kimberly"),
    "a URL in a URL": ("file%253A%252F%252Fhome%252Fkimberly%252Fsecretproj%252Fx.py", "kimberly"),
    "a URL in a URL in a URL": ("x%25252Fhome%25252Fkimberly%25252Fsecretproj%25252Fx.py", "kimberly"),
    "Windows in a URL": ("C%3A%5CUsers%5Ckimberly%5Csecretproj%5Cx.py", "kimberly"),
    "bytes": (r"\x2fhome\x2fkimberly\x2fsecretproj\x2fx.py", "kimberly"),
    "a long escape": (r"\U0000002fhome\U0000002fkimberly\U0000002fsecretproj\U0000002fx.py", "kimberly"),
    "accents in two pieces": (f"/home/{NFD}/secretproj/x.py", "josé"),
    "accents in one piece": ("/home/josé/secretproj/x.py", NFD),
    "accents in a URL": ("%2Fhome%2Fjos%C3%A9%2Fsecretproj%2Fx.py", "josé"),
    "a space that is none": ("/home/kimberly\u00a0b/secretproj/x.py", None),
    "a space for a shell": (r"/home/kimberly\ b/my\ secretproj/x.py", None),
    "a variable": ("$HOME/../kimberly/secretproj/x.py", None),
    "a variable in braces": ("${HOME}/secretproj/x.py", None),
    "a variable on Windows": (r"%USERPROFILE%\secretproj\x.py", None),
    "octal bytes": (r"\057home\057kimberly\057secretproj\057x.py", "kimberly"),
    "nothing below it": ("/scratch/kimberly", "kimberly"),
    "homes by number": ("/home2/kimberly/secretproj/x.py", "kimberly"),
    **{
        root: (f"/{root}/kimberly/secretproj/x.py", "kimberly")
        for root in ("scratch", "data", "work", "mnt", "nfs", "fsx", "lustre", "gpfs")
    },
    "a shared folder of users": ("/mnt/nfs/users/kimberly/secretproj/x.py", "kimberly"),
    "a shared folder's URL": ("file:///lustre/kimberly/secretproj/x.py", "kimberly"),
    "stuck to a flag": ("-I/scratch/kimberly/secretproj/x.py", "kimberly"),
}


@pytest.mark.parametrize("place", PATHS)
@pytest.mark.parametrize("spelling", ["plain", "as JSON in JSON"])
def test_nothing_of_a_path_is_left_but_its_end(place: str, spelling: str):
    path, name = PATHS[place]
    text = json.dumps({"at": path}) if spelling != "plain" else f"see {path} twice"
    redactor = Redactor(ALL)
    redactor.learn(text)

    made = redactor.redact(text).lower()

    assert redactor.redact(made) == made  # what was taken out stays out, and nothing more goes
    gone = ["secretproj", "kimberly", "neill", "jos"]
    assert [word for word in gone if word in made] == []
    if name is not None:
        assert redactor.redact(f"run of {name}, again") == "run of user, again"


@pytest.mark.parametrize("place", [place for place in PATHS if not place.startswith("a variable")])
def test_users_alone_go_as_well(place: str):
    text = PATHS[place][0]
    redactor = Redactor([Category.USERS])
    redactor.learn(text)

    made = redactor.redact(text).lower()

    assert Redactor([Category.USERS]).redact(made) == made
    assert [word for word in ("kimberly", "neill", "josé", NFD, "jos%c3") if word in made] == []


def test_a_login_in_an_address_goes():
    redactor = Redactor([Category.USERS])

    assert redactor.redact("https://kimberly:hunter2@host.example/x") == "https://user@host/x"


@pytest.mark.parametrize("text", ["GeluCUDAKernelImpl@sm90", "memcpy@plt2x", "git@github.com:kim/x.git", "foo@v2"])
def test_what_is_before_an_at_is_not_always_a_user(text: str):
    redactor = Redactor([Category.USERS])
    redactor.learn(text)

    for name in ("GeluCUDAKernelImpl", "memcpy", "git"):
        assert redactor.redact(f"call {name} now") == f"call {name} now"


@pytest.mark.parametrize("text", ["root@gpu-17", "ada.l@gpu-17.example.org", "ada_l@10.1.2.3"])
def test_accounts_on_machines_go(text: str):
    assert Redactor([Category.USERS]).redact(f"ssh {text}") == "ssh user@host"


def test_folders_below_a_shared_root_that_are_words_stay():
    redactor = Redactor([Category.USERS])
    text = "/data/models/x.bin and /mnt/data/train/y.bin"
    redactor.learn(text)

    assert redactor.redact(text) == text
    assert redactor.redact("models to train") == "models to train"
