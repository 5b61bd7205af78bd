"""The judge of histories finds violations: tests that rely on it need proof that it can fail."""

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.history import Event, History

TOLD = {"name": "TYJOB_LEADER_ADDRESS", "value": "10.0.0.1"}


def node(cpu: str = "4") -> dict[str, Any]:
    return {"metadata": {"name": "n1", "uid": "n1"}, "status": {"allocatable": {"cpu": cpu, "pods": "10"}}}


def tyjob(stage: str = "Starting", *, attempt: int = 0, indices: str = "0-1") -> dict[str, Any]:
    workers = [{"set": "actors", "indices": indices}]
    allocations = [{"node": "n1", "leader": True, "workers": workers}]
    return {
        "metadata": {"name": "j", "uid": "j1"},
        "spec": {"minWorkersNum": 2},
        "status": {"stage": stage, "attempt": attempt, "allocations": allocations},
    }


def pod(name: str, *, index: int = 0, told: Sequence[dict[str, str]] = (), **status: str) -> dict[str, Any]:
    role = "worker" if name.startswith("w") else "leader"
    labels = {"role": role, "worker-set": "actors" if role == "worker" else "", "index": str(index), "attempt": "0"}
    return {
        "metadata": {
            "name": name,
            "uid": name,
            "labels": {f"arranger.dev/{key}": value for key, value in labels.items()},
            "ownerReferences": [{"kind": "TYJob", "uid": "j1"}],
        },
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "main", "env": list(told), "resources": {"requests": {"cpu": "1"}}}],
        },
        "status": status,
    }


def good() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        ("node", "ADDED", node()),
        ("job", "ADDED", tyjob()),
        ("pod", "ADDED", pod("l0")),
        ("pod", "MODIFIED", pod("l0", phase="Running", podIP="10.0.0.1")),
        ("pod", "ADDED", pod("w0", told=[TOLD])),
        ("pod", "ADDED", pod("w1", index=1, told=[TOLD])),
        ("job", "MODIFIED", tyjob("Running")),
        ("job", "MODIFIED", tyjob("Succeeded")),
    ]


def judged(tmp_path: Path, story: list[tuple[str, str, dict[str, Any]]], *, once: bool = True) -> list[str]:
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text("{clusters: [{cluster: {server: 'http://127.0.0.1:1'}}], users: [{user: {token: t}}]}")
    history = History(kubeconfig)
    history._events = [
        Event(version, kind, change, copy.deepcopy(item), 0.0) for version, (kind, change, item) in enumerate(story, 1)
    ]
    return history.faults(once=once)


def test_a_story_as_it_should_be_has_no_fault(tmp_path: Path) -> None:
    assert judged(tmp_path, good()) == []


def broken() -> dict[str, tuple[str, list[tuple[str, str, dict[str, Any]]]]]:
    story = good()
    first, last = story[:4], story[-2:]
    return {
        "two live pods": ("second pod", [*story[:6], ("pod", "ADDED", pod("w0-again", told=[TOLD])), *last]),
        "made again": (
            "second pod",
            [
                *story[:6],
                ("pod", "DELETED", pod("w0")),
                ("pod", "ADDED", pod("w0", told=[TOLD])),
            ],
        ),
        "full node": ("cpu 3000 of 2000", [("node", "ADDED", node(cpu="2")), *story[1:]]),
        "half a quorum": ("not a quorum", [*first, story[4], *last]),
        "half placed": ("without a whole quorum", [story[0], ("job", "ADDED", tyjob(indices="0")), *story[2:]]),
        "no address": ("is at None", [*story[:3], story[4]]),
        "wrong address": ("is at 10.0.0.1", [*first, ("pod", "ADDED", pod("w0", told=[TOLD | {"value": "10.9.9.9"}]))]),
        "unexplained": ("before the status", [story[0], ("job", "ADDED", tyjob(attempt=1)), *story[2:]]),
        "back": ("became Starting", [*story, ("job", "MODIFIED", tyjob("Starting"))]),
        "other end": ("became Failed", [*story, ("job", "MODIFIED", tyjob("Failed"))]),
        "attempt back": ("became Running", [("job", "ADDED", tyjob(attempt=1)), ("job", "MODIFIED", tyjob("Running"))]),
    }


@pytest.mark.parametrize("case", broken())
def test_every_breach_is_found(case: str, tmp_path: Path) -> None:
    sentence, story = broken()[case]
    faults = judged(tmp_path, story)
    assert any(sentence in fault for fault in faults), faults
