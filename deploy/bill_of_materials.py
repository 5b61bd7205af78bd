"""Writes the bill of materials of the image from the lock file: `python deploy/bill_of_materials.py`, or `make lock`.

The result, sbom.cdx.json, is CycloneDX 1.6. It lists each Python package of the image with its version and package URL.
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
BILL = DEPLOY / "sbom.cdx.json"
#: `name==version`, and after a semicolon for which machines or Pythons.
PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;]+)(?: ; ([^\\\n]+))?", re.MULTILINE)


def pins(lock: str) -> list[tuple[str, str, str]]:
    """Name, version and condition of each pinned package; the condition is "" if the package is always installed."""
    return [(name, version, (condition or "").strip()) for name, version, condition in PIN.findall(lock)]


def bill(lock: str, project: str) -> str:
    """The bill of materials for the texts of a lock file and of pyproject.toml. Equal texts give equal bills."""
    about = tomllib.loads(project)["project"]
    licence = DisjunctiveLicense(id=about["license"], acknowledgement=LicenseAcknowledgement.DECLARED)
    root = Component(
        name=about["name"],
        bom_ref=about["name"],
        type=ComponentType.APPLICATION,
        description=about["description"],
        licenses=[licence],
    )
    parts = [_part(name, version, condition) for name, version, condition in pins(lock)]
    made = Bom(components=parts)
    made.metadata.component = root
    made.register_dependency(root, parts)
    document = json.loads(JsonV1Dot6(made).output_as_string())
    # A number and a time of its own would make each bill another one.
    del document["serialNumber"], document["metadata"]["timestamp"]
    return json.dumps(document, indent=2) + "\n"


def _part(name: str, version: str, condition: str) -> Component:
    address = PackageURL("pypi", name=name, version=version)
    return Component(
        name=name,
        version=version,
        purl=address,
        bom_ref=str(address),
        type=ComponentType.LIBRARY,
        description=f"only if {condition}" if condition else None,
    )


if __name__ == "__main__":
    project = (DEPLOY.parent / "pyproject.toml").read_text(encoding="utf-8")
    BILL.write_text(bill(LOCK.read_text(encoding="utf-8"), project), encoding="utf-8")
