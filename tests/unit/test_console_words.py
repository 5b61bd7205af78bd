"""The console says what jobs wait for, as the commands do: it has lists of its own."""

import re

from arranger.cli.inputs.alternative import choices
from arranger.cli.rendering import ledger_page
from tests.crd_fields import CONSOLE, console_text
from tests.servers import REPOSITORY

SOURCES = REPOSITORY / "console" / "src"


def block(file: str, name: str) -> str:
    """What a constant of a source file has between its brackets."""
    found = re.search(rf"const {name}\b[^=]*= [\[{{](.*?)\n?[\]}}];", (SOURCES / file).read_text(), re.DOTALL)
    assert found, f"{file} has no {name}"
    return found[1]


def test_what_jobs_wait_for_has_the_words_of_the_command() -> None:
    words = dict(re.findall(r'(\w+): "(.*)"', block("words.ts", "CAUSES")))
    assert words == {cause.value: said for cause, said in ledger_page._CAUSES.items()}


def test_the_offered_policies_are_those_that_arranger_brings() -> None:
    assert CONSOLE.read_text(encoding="utf-8") == console_text(), "python -m tests.crd_fields writes it"


def test_the_choices_of_the_what_if_form_are_those_of_the_command() -> None:
    fields = re.findall(r'name: "(\w+)".*options: \[(.*)\]', block("whatif.tsx", "FURTHER"))
    offered = {name: tuple(re.findall(r'"(\w+)"', options)) for name, options in fields}
    assert offered == {name: choices(name) for name in ("preemption", "backfill")}
