"""How the console's page is built where the machine has no Node of its own."""

import os
import subprocess
from importlib.util import module_from_spec, spec_from_file_location
from typing import Any

import pytest

from tests.servers import REPOSITORY


def test_scripts_of_npm_find_the_node_of_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """npm came from the wheel, and its script called a node that wasn't there."""
    spec = spec_from_file_location("page", REPOSITORY / "console" / "page.py")
    assert spec is not None and spec.loader is not None
    page = module_from_spec(spec)
    spec.loader.exec_module(page)
    calls: list[dict[str, Any]] = []
    monkeypatch.setattr(page, "_npm", lambda: ["/wheel/bin/node", "/wheel/npm-cli.js"])
    monkeypatch.setattr(subprocess, "run", lambda command, **how: calls.append({"command": command, **how}))
    monkeypatch.setenv("PATH", "/bin")
    page._call("run", "build")
    [call] = calls
    assert call["command"] == ["/wheel/bin/node", "/wheel/npm-cli.js", "run", "build"]
    assert call["env"]["PATH"].split(os.pathsep) == ["/wheel/bin", "/bin"]
