"""The TYJob resource definition of this release: the file in `crds/`, included in the package."""

from importlib import resources

from arranger.model.validation import BUILT_IN_POLICIES, PolicyNames


def tyjob_crd(policies: PolicyNames = BUILT_IN_POLICIES) -> str:
    """The definition as YAML, comments included, with these policies as the allowed names in a TYJob."""
    text = resources.files("arranger.kube").joinpath("tyjob.yaml").read_text(encoding="utf-8")
    for known, names in ((BUILT_IN_POLICIES.queue, policies.queue), (BUILT_IN_POLICIES.pod, policies.pod)):
        text = text.replace(_enum(known), _enum(names))
    return text


def _enum(names: tuple[str, ...]) -> str:
    return f"enum: [{', '.join(names)}]"
