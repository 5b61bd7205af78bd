"""To watch one more optional kind of objects, five places change: the test watches ConfigMaps in a copy of the code."""

from pathlib import Path

from tests.code_copy import CodeCopy

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
    told = CodeCopy(tmp_path, _PLACES).test(*_TESTS)
    assert "test_what_is_observed_is_known_then_and_gone_after_its_deletion[configmap] PASSED" in told
