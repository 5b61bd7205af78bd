"""The resource definitions of this release: the files in `crds/`, included in the package."""

from importlib import resources

from arranger.model.validation import BUILT_IN_POLICIES, PolicyNames


def tyjob_crd(policies: PolicyNames = BUILT_IN_POLICIES) -> str:
    """The definition of TYJobs as YAML, comments included, with these policies as the allowed names."""
    text = _text("tyjob.yaml")
    for known, names in ((BUILT_IN_POLICIES.queue, policies.queue), (BUILT_IN_POLICIES.pod, policies.pod)):
        text = text.replace(_enum(known), _enum(names))
    return text


def queue_crd() -> str:
    """The definition of Queues."""
    return _text("queue.yaml")


def definitions(policies: PolicyNames = BUILT_IN_POLICIES) -> str:
    """All definitions, as documents of one YAML file."""
    return f"{tyjob_crd(policies)}---\n{queue_crd()}"


def _text(name: str) -> str:
    return resources.files("arranger.kube").joinpath(name).read_text(encoding="utf-8")


def _enum(names: tuple[str, ...]) -> str:
    return f"enum: [{', '.join(names)}]"
