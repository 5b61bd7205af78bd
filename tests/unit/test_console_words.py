"""The console says what jobs wait for, as the commands do: it has lists of its own."""

import re

from arranger.cli.inputs.alternative import choices
from arranger.cli.rendering import ledger_page
from arranger.replay.what_if.one_cycle import COMPARED, JobPlan
from arranger.web.naming import camel
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


def test_each_way_in_which_a_run_ended_has_a_colour_of_its_own_in_the_gantt_chart() -> None:
    ends = re.findall(r"(\w+): \"", block("gantt.tsx", "ENDS"))
    colours = dict(re.findall(r'(\w+): "(--\w+)"', block("gantt.tsx", "END_COLOURS")))
    assert sorted(colours) == sorted(ends)
    for scheme in (SOURCES / "style.css").read_text().split("}")[:2]:
        shown = [re.search(rf"{name}: (#\w+);", scheme) for name in (*colours.values(), "--runs")]
        assert all(shown) and len({found[1] for found in shown if found}) == len(ends) + 1


def test_the_offered_policies_are_those_that_arranger_brings() -> None:
    assert CONSOLE.read_text(encoding="utf-8") == console_text(), "python -m tests.crd_fields writes it"


def test_the_choices_of_the_what_if_form_are_those_of_the_command() -> None:
    fields = re.findall(r'name: "(\w+)".*options: \[(.*)\]', block("whatif.tsx", "FURTHER"))
    offered = {name: tuple(re.findall(r'"(\w+)"', options)) for name, options in fields}
    assert offered == {name: choices(name) for name in ("preemption", "backfill")}


def test_the_jobs_of_a_what_if_have_the_fields_of_the_answer_and_show_all_in_which_they_are_compared() -> None:
    """Else two cells would look alike in a table of what differs."""
    declared = re.search(r"interface WhatIfJob \{(.*?)\n\}", (SOURCES / "types.ts").read_text(), re.DOTALL)
    assert declared
    fields = {camel(name) for name in JobPlan.__struct_fields__}
    assert set(re.findall(r"^  (\w+):", declared[1], re.MULTILINE)) <= fields
    shown = re.search(r"^function got\(.*?^\}", (SOURCES / "whatif.tsx").read_text(), re.DOTALL | re.MULTILINE)
    assert shown
    assert {camel(name) for name in COMPARED} <= set(re.findall(r"\bjob\.(\w+)", shown[0]))
