"""The places that CONTRIBUTING.md names are there."""

import re

from tests.servers import REPOSITORY

_TEXT = (REPOSITORY / "CONTRIBUTING.md").read_text(encoding="utf-8")


def test_every_path_that_is_named_exists() -> None:
    named = re.findall(r"`([\w./-]+/[\w./-]*)`|\]\(([^)#]+)\)", _TEXT)
    paths = {one or other for one, other in named}
    assert len(paths) > 30
    packages = {path for path in paths if re.fullmatch(r"[a-z]+/", path)}
    missing = [path for path in paths - packages if not (REPOSITORY / path).exists()]
    missing += [path for path in packages if not (REPOSITORY / "arranger" / path).exists()]
    assert missing == []


def test_every_command_of_make_that_is_named_exists() -> None:
    makefile = (REPOSITORY / "Makefile").read_text(encoding="utf-8")
    commands = set(re.findall(r"`make ([\w-]+)`", _TEXT))
    assert commands and all(re.search(rf"^{command}:", makefile, re.M) for command in commands)
