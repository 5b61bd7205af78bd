"""What is wrong with a process: remembered since when, told with the heartbeat, read by versions that know less."""

import msgspec

from arranger.workers.members.membership import Member
from arranger.workers.members.problems import MemberProblem, MemberProblems, ProblemKind
from tests.members import HandClock


def test_a_problem_lasts_from_when_it_was_first_found_until_it_is_over() -> None:
    clock = HandClock()
    problems = MemberProblems(clock)
    problems.tell(ProblemKind.WATCH, True, subject="pod", cause="silent")
    clock.now_s += 2
    problems.tell(ProblemKind.WATCH, True, subject="node", since_s=1.5)
    problems.tell(ProblemKind.WATCH, True, subject="pod", cause="gone")
    assert problems.present() == (
        MemberProblem(ProblemKind.WATCH, "node", lasts_ms=1500),
        MemberProblem(ProblemKind.WATCH, "pod", lasts_ms=2000, cause="gone"),
    )
    problems.tell(ProblemKind.WATCH, False, subject="pod")
    problems.tell(ProblemKind.WATCH, False, subject="node")
    problems.tell(ProblemKind.API, False)
    assert problems.present() == ()
    clock.now_s += 2
    problems.tell(ProblemKind.WATCH, True, subject="pod")
    assert [problem.lasts_ms for problem in problems.present()] == [0]


def test_a_cause_is_cut_because_every_heartbeat_has_it() -> None:
    problems = MemberProblems(HandClock())
    problems.tell(ProblemKind.API, True, cause="x" * 5000)
    assert len(problems.present()[0].cause) == 300


def test_a_member_of_another_version_is_read_with_what_is_known_of_it() -> None:
    old = b'{"id":"m","roles":["applier"],"epoch":1,"offset":2,"started_ms":3}'
    assert msgspec.json.decode(old, type=Member) == Member("m", ("applier",), 1, 2, 3, layout=0, problems=())
    new = old[:-1] + b',"layout":12,"problems":[{"kind":"Fever","degrees":41},{"kind":"Clock","offMs":-5}]}'
    member = msgspec.json.decode(new, type=Member)
    assert (member.layout, member.problems) == (
        12, (MemberProblem(ProblemKind.OTHER), MemberProblem(ProblemKind.CLOCK, off_ms=-5)),
    )  # fmt: skip
