"""An invented next release: the present code, with one kind of event in a new version and another layout of snapshots.

It shows what a change of the format needs: the old struct with its tag, a function in `UPCASTS`, and a bridge. Nothing
is released yet, so there is no real release to run beside the present one.

The kind is `StageDecided`, since the processes share the jobs by a hash: with many jobs, those of each release surely
decide on some. (One process alone takes the cycles.) A snapshot holds a job's last decision as the log does, so the
bridge converts it there too. Only the tag differs between the versions, so that is all that is replaced.
"""

import shutil
from pathlib import Path

from arranger.events.kinds import StageDecided
from arranger.projections.formats.layouts import LAYOUT
from tests.servers import REPOSITORY

_OLD_TAG = str(StageDecided.__struct_config__.tag)
_KIND, _, _VERSION = _OLD_TAG.partition(".")
#: What only the next release writes and reads.
NEW_TAG = f"{_KIND}.{int(_VERSION) + 1}"
_OLD = f"{_KIND}V{_VERSION}"

_IMPORT = "from arranger.events.kinds import Event\n"
_UPCASTS = "MappingProxyType({})"
_EARLIER = f"""from arranger.events.kinds import Event, {_KIND}


class {_OLD}({_KIND}, frozen=True, array_like=True, gc=False, tag="{_OLD_TAG}"):
    pass  # the fields are the same


def upcast(old: {_OLD}) -> {_KIND}:
    return {_KIND}(*[getattr(old, name) for name in old.__struct_fields__])

"""
_NO_BRIDGES = "_BRIDGES: dict[int, Callable[[Parts], Parts]] = {}"
_BRIDGE = f"""

def _bridge(parts: Parts) -> Parts:
    converted = [msgspec.Raw(bytes(part).replace({_OLD_TAG.encode()!r}, {NEW_TAG.encode()!r})) for part in parts[1:]]
    return [msgspec.Raw(msgspec.msgpack.encode({LAYOUT + 1})), *converted]


_BRIDGES: dict[int, Callable[[Parts], Parts]] = {{{LAYOUT}: _bridge}}"""


def next_release(folder: Path, present: Path = REPOSITORY) -> Path:
    """A checkout of that release's code, made in a folder from a checkout of the present one."""
    assert len(NEW_TAG) == len(_OLD_TAG), "a part of a snapshot has the length of each text"
    code = folder / "arranger"
    shutil.copytree(present / "arranger", code, ignore=shutil.ignore_patterns("__pycache__", "static"))
    _change(code / "events" / "kinds.py", f'tag="{_OLD_TAG}"', f'tag="{NEW_TAG}"')
    _change(code / "events" / "earlier.py", _IMPORT, _EARLIER)
    _change(code / "events" / "earlier.py", _UPCASTS, f"MappingProxyType({{{_OLD}: upcast}})")
    layouts = code / "projections" / "formats" / "layouts.py"
    _change(layouts, f"\nLAYOUT = {LAYOUT}\n", f"\nLAYOUT = {LAYOUT + 1}\n")
    _change(layouts, _NO_BRIDGES, _BRIDGE.lstrip())
    return folder


def _change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert text.count(old) == 1, f"{file} has {text.count(old)} times {old!r}"
    file.write_text(text.replace(old, new))
