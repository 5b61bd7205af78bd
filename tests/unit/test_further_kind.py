"""To watch one more kind of objects, six files change: the test watches ConfigMaps in a copy of the code."""

from pathlib import Path

from tests.code_copy import CodeCopy

#: The beginning of the watcher's role, and the rule that is added there.
_WATCHER = "\nkind: {}\nmetadata:\n  name: arranger-watcher\nrules:\n"
_RULE = '  - apiGroups: [""]\n    resources: [configmaps]\n    verbs: [list, watch]\n'

#: File → what is replaced there: always at the beginning of a list, which stays the same when others append to it.
#: `arranger/kube/cluster.py` has the resource of ConfigMaps already. The copy has no documents: a table of
#: `docs/operations.md` has the rights too.
_PLACES = {
    "arranger/events/watched.py": [('    NODE = "node"\n', '    NODE = "node"\n    CONFIG_MAP = "configmap"\n')],
    "arranger/events/kinds.py": [
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
        c.CONFIG_MAPS,
        lambda item, term: ConfigMapSeen(
            term, *[item["metadata"][of] for of in ("namespace", "name", "uid", "resourceVersion")]
        ),
    ),
""",
        ),
    ],
    "arranger/replay/export/pseudonyms.py": [
        ("\n_SORTS = {\n", '\n_SORTS = {\n    "config": "config",\n'),
        (
            "\nRULES: dict[type[Any], dict[str, Rule]] = {\n",
            """
RULES: dict[type[Any], dict[str, Rule]] = {
    k.ConfigMapSeen: {"name": _named("config"), **_NAMESPACED},
""",
        ),
    ],
    "deploy/base/rights.yaml": [(_WATCHER.format("ClusterRole"), _WATCHER.format("ClusterRole") + _RULE)],
    "deploy/one-namespace/rights.yaml": [(_WATCHER.format("Role"), _WATCHER.format("Role") + _RULE)],
}
#: The tests of all watched kinds and their rights, and of all kinds of events.
_TESTS = (
    "test_watched_kinds.py",
    "test_rights.py",
    "test_event_kinds.py",
    "test_snapshot_fields.py",
    "test_pseudonyms.py",
)


def test_one_more_kind_is_watched_after_changes_in_six_files(tmp_path: Path) -> None:
    told = CodeCopy(tmp_path, _PLACES).test(*_TESTS)
    assert "test_what_is_observed_is_known_then_and_gone_after_its_deletion[configmap] PASSED" in told
