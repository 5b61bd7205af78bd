"""The lock file of the image is in step with pyproject.toml, and the bill of materials with the lock file.

Both are compared without the network: with the requirements that the installed packages state themselves.
"""

import importlib.metadata
import importlib.util
import json
import re
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.servers import REPOSITORY

LOCK = (REPOSITORY / "deploy" / "requirements.lock").read_text(encoding="utf-8")
PROJECT = (REPOSITORY / "pyproject.toml").read_text(encoding="utf-8")
PAGE_LOCK = (REPOSITORY / "console" / "package-lock.json").read_text(encoding="utf-8")
BILL = (REPOSITORY / "deploy" / "sbom.cdx.json").read_text(encoding="utf-8")


def tool() -> Any:
    """The script that writes the bill of materials."""
    spec = importlib.util.spec_from_file_location("bill", REPOSITORY / "deploy" / "bill_of_materials.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def locked() -> dict[str, str]:
    """Name and version of each package that the lock file gives this Python on this machine."""
    return {
        canonicalize_name(name): version
        for name, version, condition in tool().pins(LOCK)
        if not condition or Marker(condition).evaluate()
    }


def needed(requirement: Requirement, seen: set[tuple[str, str]]) -> Iterator[Requirement]:
    """A requirement, and all that it needs in turn, as the installed packages say."""
    yield requirement
    for extra in {"", *requirement.extras}:
        if (requirement.name, extra) in seen:
            continue
        seen.add((requirement.name, extra))
        for text in importlib.metadata.requires(requirement.name) or ():
            inner = Requirement(text)
            if inner.marker is None or inner.marker.evaluate({"extra": extra}):
                yield from needed(inner, seen)


def test_the_lock_file_has_all_that_arranger_needs_and_nothing_else(locked: dict[str, str]) -> None:
    """If this fails, run `make lock`."""
    asked: dict[str, list[Requirement]] = {}
    seen: set[tuple[str, str]] = set()
    for text in tomllib.loads(PROJECT)["project"]["dependencies"]:
        for requirement in needed(Requirement(text), seen):
            asked.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    assert set(locked) == set(asked)
    for name, requirements in asked.items():
        for requirement in requirements:
            assert requirement.specifier.contains(locked[name], prereleases=True), f"{name}: {requirement}"


def test_every_pin_has_hashes_and_nothing_is_fetched_from_elsewhere() -> None:
    entries = re.split(r"\n(?=\S)", LOCK.partition("make lock\n")[2].strip())
    assert len(entries) == len(tool().pins(LOCK)) > 20
    for entry in entries:
        assert re.fullmatch(r"\S+==\S+( ; [^\\]+)?( \\\n    --hash=sha256:[0-9a-f]{64})+", entry), entry[:200]


def test_the_bill_of_materials_is_that_of_the_lock_files() -> None:
    """If this fails, run `make lock`."""
    assert tool().bill(LOCK, PAGE_LOCK, PROJECT) == BILL
    listed = [part["purl"] for part in json.loads(BILL)["components"]]
    bundled = [name for name in json.loads(PAGE_LOCK)["packages"][""]["dependencies"]]
    assert len(listed) == len(tool().pins(LOCK)) + len(tool().bundled(PAGE_LOCK))
    assert all(
        any(address.startswith(f"pkg:npm/{name.replace('@', '%40')}@") for address in listed) for name in bundled
    )


def test_the_bill_of_materials_is_valid() -> None:
    # Imported here, because it builds forty grammars, which would take each process of the tests more than a second.
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str(BILL) is None
    broken = BILL.replace('"type": "library"', '"type": "thing"', 1)
    assert validator.validate_str(broken) is not None
