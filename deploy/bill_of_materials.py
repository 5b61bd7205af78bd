"""Writes the bill of materials of the image from the lock files: `python deploy/bill_of_materials.py`, or `make lock`.

The result, sbom.cdx.json, is CycloneDX 1.6. It lists each Python package of the image, and each npm package that the
console's page is bundled from, with its version and package URL.
The hashes of their files are in the lock file alone, because a package has a file for each kind of machine. Debian's
packages in the base image aren't listed: the base image has its own bill.
"""

import json
import re
import tomllib
from pathlib import Path

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, LicenseAcknowledgement
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL

DEPLOY = Path(__file__).resolve().parent
LOCK = DEPLOY / "requirements.lock"
PAGE_LOCK = DEPLOY.parent / "console" / "package-lock.json"
BILL = DEPLOY / "sbom.cdx.json"
#: `name==version`, and after a semicolon for which machines or Pythons.
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)(?: ; ([^\\\n]+))?", re.MULTILINE)


def pins(lock: str) -> list[tuple[str, str, str]]:
    """Name, version and condition of each pinned package; the condition is "" if the package is always installed."""
    return [(name, version, (condition or "").strip()) for name, version, condition in PIN.findall(lock)]


def bundled(page_lock: str) -> list[tuple[str, str]]:
    """Name and version of each npm package in the page; those that only build or test it aren't."""
    packages = json.loads(page_lock)["packages"]
    return [
        (of.removeprefix("node_modules/"), is_["version"]) for of, is_ in packages.items() if of and not is_.get("dev")
    ]


def bill(lock: str, page_lock: str, project: str) -> str:
    """The bill of materials for the texts of the lock files and of pyproject.toml. Equal texts give equal bills."""
    about = tomllib.loads(project)["project"]
    licence = DisjunctiveLicense(id=about["license"], acknowledgement=LicenseAcknowledgement.DECLARED)
    root = Component(
        name=about["name"],
        bom_ref=about["name"],
        type=ComponentType.APPLICATION,
        description=about["description"],
        licenses=[licence],
    )
    parts = [
        _part(PackageURL("pypi", name=name, version=version), condition and f"only if {condition}")
        for name, version, condition in pins(lock)
    ]
    for name, version in bundled(page_lock):
        scope, _, own = name.rpartition("/")
        parts.append(
            _part(PackageURL("npm", namespace=scope or None, name=own, version=version), "in the console's page")
        )
    made = Bom(components=parts)
    made.metadata.component = root
    made.register_dependency(root, parts)
    document = json.loads(JsonV1Dot6(made).output_as_string())
    # A number and a time of its own would make each bill another one.
    del document["serialNumber"], document["metadata"]["timestamp"]
    return json.dumps(document, indent=2) + "\n"


def _part(address: PackageURL, description: str) -> Component:
    return Component(
        name=address.name,
        group=address.namespace,
        version=address.version,
        purl=address,
        bom_ref=str(address),
        type=ComponentType.LIBRARY,
        description=description or None,
    )


if __name__ == "__main__":
    project = (DEPLOY.parent / "pyproject.toml").read_text(encoding="utf-8")
    locks = [path.read_text(encoding="utf-8") for path in (LOCK, PAGE_LOCK)]
    BILL.write_text(bill(*locks, project), encoding="utf-8")
