"""To watch one more kind of objects, two files change, and a command writes three more: the test watches ConfigMaps in
a copy of the code."""

from pathlib import Path

from tests.code_copy import CodeCopy

#: File → what is replaced there: always at the beginning of a list, which stays the same when others append to it.
_PLACES = {
    "arranger/events/kinds.py": [
        ('    NODE = "node"\n', '    NODE = "node"\n    CONFIG_MAP = "configmap"\n'),
        (
            "\n_OfTheLog = ",
            '''

class ConfigMapSeen(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="ConfigMapSeen.1"):
    """A ConfigMap is there."""

    term: int
    namespace: str
    name: str
    uid: str
    resource_version: str
    node: Annotated[str, NameOf("node")] = ""
    keys: Annotated[tuple[str, ...], NameOf("key")] = ()


_OfTheLog = ''',
        ),
        ("\nObjectSeen = ", "\nObjectSeen = ConfigMapSeen | "),
        (
            "\nWATCHED: dict[type, Watched] = {\n",
            "\nWATCHED: dict[type, Watched] = {\n    ConfigMapSeen: Watched.CONFIG_MAP,\n",
        ),
    ],
    "arranger/kube/sources.py": [
        (
            "from arranger.kube import cluster as c\n",
            "from arranger.events.kinds import ConfigMapSeen\nfrom arranger.kube import cluster as c\n",
        ),
        (
            "\nSOURCES: dict[Watched, ObjectSource] = {\n",
            """
SOURCES: dict[Watched, ObjectSource] = {
    Watched.CONFIG_MAP: ObjectSource(
        c.Resource("", "v1", "configmaps", "ConfigMap"),
        lambda item, term: ConfigMapSeen(
            term, *[item["metadata"][of] for of in ("namespace", "name", "uid", "resourceVersion")]
        ),
        "What a test has to see.",
    ),
""",
        ),
    ],
}
_WRITTEN = ["deploy/base/rights.yaml", "deploy/one-namespace/rights.yaml", "docs/operations.md"]
#: The tests of all watched kinds and their rights, and of all kinds of events.
_TESTS = (
    "test_watched_kinds.py",
    "test_rights.py",
    "test_event_kinds.py",
    "test_snapshot_fields.py",
    "test_pseudonyms.py",
)


def test_one_more_kind_is_watched_after_changes_in_two_files_and_three_that_a_command_writes(tmp_path: Path) -> None:
    copy = CodeCopy(tmp_path, _PLACES)
    copy.run("-m", "tests.rights")
    assert copy.changed() == sorted([*_PLACES, *_WRITTEN])
    told = copy.test(*_TESTS)
    assert "test_what_is_observed_is_known_then_and_gone_after_its_deletion[configmap] PASSED" in told
