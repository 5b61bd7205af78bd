"""No decision depends on the wording of messages: with all sentences rewritten, `verify` gives the same results."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from arranger.events.kinds import Watched
from arranger.kube.translate import job_seen
from tests.commands import to_file
from tests.servers import REPOSITORY
from tests.unit.test_histories import ENDS, HISTORIES
from tests.unit.tyjob_table import tyjob_with
from tests.world import World, shape

PLAIN = (sys.executable, "-m", "arranger.cli.main")
REWRITTEN = (sys.executable, "-m", "tests.rewritten")


def said(program: tuple[str, ...], *arguments: object) -> str:
    done = subprocess.run(
        [*program, *map(str, arguments)], check=False, capture_output=True, text=True, timeout=120, cwd=REPOSITORY
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def same_whatever_is_said(log: Path) -> dict[str, Any]:
    """The output of `arranger verify` for a log, with the present sentences and with rewritten ones."""
    answers = [json.loads(said(program, "verify", "--log", log, "-o", "json")) for program in (PLAIN, REWRITTEN)]
    assert answers[0] == answers[1]
    events = [said(program, "events", "--log", log) for program in (PLAIN, REWRITTEN)]
    assert events[0] != events[1], "nothing was rewritten"
    answer: dict[str, Any] = answers[0]
    return answer


@pytest.mark.parametrize("name", sorted(ENDS))
def test_every_cycle_of_a_history_comes_out_the_same_whatever_words_are_said(name: str) -> None:
    verified = same_whatever_is_said(HISTORIES / name)
    assert (verified["cycles"], verified["identical"]) == (ENDS[name][1], ENDS[name][1])


def test_a_log_with_a_wrong_spec_comes_out_the_same_whatever_words_are_said(tmp_path: Path) -> None:
    world = World()
    world.node("n1")
    wrong = tyjob_with({"spec/priority": 99, "metadata/uid": "uid-wrong"})
    world.say(job_seen(wrong, world.terms[Watched.JOB], with_status=False))
    world.job("good", workers=1)
    world.settle()
    world.job("good", workers=1, worker=shape(cpu=2), generation=2)
    world.settle()
    assert {str(job.stage) for job in world.state.jobs.values()} == {"Failed"}
    to_file(world.entries, tmp_path / "log")
    verified = same_whatever_is_said(tmp_path / "log")
    assert verified["cycles"] == verified["identical"] > 0


def test_every_sentence_is_rewritten_wherever_it_is_said() -> None:
    program = "import json, tests.rewritten; print(json.dumps(tests.rewritten.rewrite()))"
    replaced = json.loads(said((sys.executable, "-c"), program))
    assert {
        "stage_text",
        "replaced_text",
        "shortage_text",
        "reason_text",
        "quota_text",
        "faults_text",
    } <= replaced.keys()
    assert all(replaced.values())
