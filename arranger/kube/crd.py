"""The TYJob resource definition that comes with the program: the very file in `crds/`, carried in the package."""

from importlib import resources


def tyjob_crd() -> str:
    """The definition as YAML, comments included."""
    return resources.files("arranger.kube").joinpath("tyjob.yaml").read_text(encoding="utf-8")
