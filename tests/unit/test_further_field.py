"""To give a TYJob one more scalar field, at most four places change: the test does it in a copy of the code."""

import inspect
from pathlib import Path

from arranger.model.job import JobSpec
from tests.code_copy import CodeCopy

#: The class up to its last field: its properties follow.
_FIELDS = inspect.getsource(JobSpec).partition("\n\n    @property")[0]
#: The first place. The second is `crds/tyjob.yaml`, which a command writes, the third `docs/jobs.md`, which says what
#: the field is for. What it does is a fourth, wherever that is.
_PLACES = {
    "arranger/model/job.py": [
        (
            _FIELDS,
            f"""{_FIELDS}
    warmup_s: Annotated[
        int | None,
        ManifestField("warmupSeconds", Whole(2, 60), "Seconds of a warm-up; none if unset.", ChangesUntil.STARTED),
    ] = None""",
        ),
    ],
}
_TESTS = ("test_crd_schema.py", "test_tyjob_validation.py", "test_pseudonyms.py", "test_snapshot_fields.py")
_SAYS = """
from arranger.messages.faults import faults_text
from arranger.model.tyjob import job_spec, refused_change
from arranger.model.validation import validate
from arranger.replay.reading.edits import changed
from tests.unit.tyjob_table import tyjob_with

def of(value):
    return tyjob_with({"spec/warmupSeconds": value})

print(faults_text(validate(of(1))))
before, after = job_spec(of(5)), job_spec(of(6))
print(before.warmup_s, job_spec(tyjob_with({})).warmup_s, changed(before, after))
print(*[fault.field for fault in refused_change(before, after)])
"""


def test_one_more_scalar_of_a_tyjob_is_declared_in_one_place_and_written_into_the_definition(tmp_path: Path) -> None:
    copy = CodeCopy(tmp_path, _PLACES)
    copy.run("-m", "tests.crd_fields")
    told = copy.run("-c", _SAYS).splitlines()
    assert told == [
        "spec.warmupSeconds: Invalid value: 1: should be greater than or equal to 2",
        "5 None warmupSeconds 5 → 6",
        "spec.warmupSeconds",
    ]
    definition = (tmp_path / "crds" / "tyjob.yaml").read_text(encoding="utf-8")
    for part in ("warmupSeconds:\n", "fieldPath: .spec.warmupSeconds\n", "warmupSeconds: *opaque\n"):
        assert definition.count(part) == 1
    copy.test(*_TESTS)
