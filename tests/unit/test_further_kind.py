"""To watch one more optional kind of objects, five places change: the test watches ConfigMaps in a copy of the code."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.servers import REPOSITORY

#: File → what is replaced there. The fifth place is the right to list and watch them, in `deploy`.
_PLACES = {
    "arranger/events/watched.py": [
        ('    LIMIT_RANGE = "limitrange"\n', '    LIMIT_RANGE = "limitrange"\n    CONFIG_MAP = "configmap"\n'),
        ("    Watched.LIMIT_RANGE,\n)", "    Watched.LIMIT_RANGE,\n    Watched.CONFIG_MAP,\n)"),
    ],
    "arranger/events/kinds.py": [
        (
            "_OfTheLog = ",
            '''class ConfigMapSeen(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="ConfigMapSeen.1"):
    """A ConfigMap is there."""

    term: int
    namespace: str
    name: str
    uid: str
    resource_version: str


_OfTheLog = ''',
        ),
        ("ObjectSeen = PodGroupSeen | ", "ObjectSeen = ConfigMapSeen | PodGroupSeen | "),
        ("    LimitRangeSeen: Watched", "    ConfigMapSeen: Watched.CONFIG_MAP,\n    LimitRangeSeen: Watched"),
    ],
    "arranger/kube/sources.py": [
        (
            "    Watched.CLAIM: ",
            """    Watched.CONFIG_MAP: ObjectSource(
        c.CONFIG_MAPS,
        lambda item, term: ConfigMapSeen(
            term, *[item["metadata"][of] for of in ("namespace", "name", "uid", "resourceVersion")]
        ),
    ),
    Watched.CLAIM: """,
        ),
        ("import GROUP_WATCHES, Watched", "import GROUP_WATCHES, ConfigMapSeen, Watched"),
    ],
    "arranger/replay/export/pseudonyms.py": [
        ('"limits": "', '"config": "config", "limits": "'),
        (
            "    k.LimitRangeSeen: {",
            '    k.ConfigMapSeen: {"name": _named("config"), **_NAMESPACED},\n    k.LimitRangeSeen: {',
        ),
    ],
}
#: The tests of all watched kinds, and of all kinds of events.
_TESTS = ("test_watched_kinds.py", "test_event_kinds.py", "test_snapshot_fields.py", "test_pseudonyms.py")


def test_one_more_optional_kind_is_watched_after_changes_in_five_places(tmp_path: Path) -> None:
    assert len(_PLACES) + 1 <= 5
    for name in ("arranger", "tests"):
        aside = shutil.ignore_patterns("__pycache__", "static", "histories", "e2e", "contract", ".hypothesis")
        shutil.copytree(REPOSITORY / name, tmp_path / name, ignore=aside)
    shutil.copy(REPOSITORY / "pyproject.toml", tmp_path)
    for name, changes in _PLACES.items():
        file = tmp_path / name
        text = file.read_text()
        for old, new in changes:
            assert text.count(old) == 1, f"{name} has {text.count(old)} times {old!r}"
            text = text.replace(old, new)
        file.write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-vv", "-p", "no:cacheprovider", *(f"tests/unit/{of}" for of in _TESTS)],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert "test_what_is_observed_is_known_then_and_gone_after_its_deletion[configmap] PASSED" in done.stdout
