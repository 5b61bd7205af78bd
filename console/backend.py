"""The build backend: setuptools, with the console's page in wheels and in source distributions.

Their build gets Node from PyPI, unless the page was built before, as in the image. An editable installation is
setuptools' alone, so that it stays fast; it adds the checkout to the path of imports. Setuptools' own way, a finder of
its own, comes after the working directory, and there a clone of the project would be taken for the package.
"""

from collections.abc import Mapping
from typing import Any

import page
from setuptools import build_meta
from setuptools.build_meta import (
    get_requires_for_build_editable,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

Settings = Mapping[str, Any] | None


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    settings = {"editable_mode": "compat", **(config_settings or {})}
    return build_meta.build_editable(wheel_directory, settings, metadata_directory)


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_node()]


def get_requires_for_build_sdist(config_settings: Settings = None) -> list[str]:
    return [*build_meta.get_requires_for_build_sdist(config_settings), *_node()]


def build_wheel(wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    _build()
    return build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    _build()
    return build_meta.build_sdist(sdist_directory, config_settings)


def _node() -> list[str]:
    return [] if page.built() else [page.NODE]


def _build() -> None:
    if not page.built():
        page.build()
