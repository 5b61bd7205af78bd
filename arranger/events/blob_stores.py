"""Where an archive's files lie: a folder, any place that fsspec reaches (`s3://…`, `gs://…`, `sftp://…`), or one zip
file, which is what an export is.

A file is there whole or not at all: it is written under another name and then moved, so that a crash leaves at most a
file whose name ends in `.part`, which no reader looks at. What can't be reached is `LogUnavailable`; a file that was
listed and isn't there is a `FileNotFoundError`.
"""

import os
import uuid
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from arranger.errors import LogUnavailable, UsageError

_PART = ".part"


class BlobStore(Protocol):
    """A flat set of named files. Calls block; who serves an event loop calls them in a thread."""

    @property
    def where(self) -> str:
        """Its place in words, without a password."""
        ...

    def names(self) -> list[str]:
        """All files, in no order; none where there is no such place yet."""
        ...

    def read(self, name: str, count: int = -1) -> bytes:
        """The first bytes of a file, or all of them."""
        ...

    def put(self, name: str, content: bytes) -> None:
        """Put a file there, whole; one of that name is replaced."""
        ...


class FolderStore:
    """Files in a folder of this machine; it is made when the first is put there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.where = str(folder)

    def names(self) -> list[str]:
        with self._translated("read"):
            return [entry.name for entry in os.scandir(self.folder)] if self.folder.exists() else []

    def read(self, name: str, count: int = -1) -> bytes:
        with self._translated("read"), (self.folder / name).open("rb") as file:
            return file.read(count)

    def put(self, name: str, content: bytes) -> None:
        """Put a file there; it is on the disk when this returns."""
        part = self.folder / f"{name}.{uuid.uuid4().hex}{_PART}"
        with self._translated("written"):
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                with part.open("wb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                part.replace(self.folder / name)
            except BaseException:
                part.unlink(missing_ok=True)
                raise
            self._sync_folder()

    def _sync_folder(self) -> None:
        descriptor = os.open(self.folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    @contextmanager
    def _translated(self, done: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise LogUnavailable(f"the archive in {self.where} can't be {done}: {error.strerror}") from error


class RemoteStore:
    """Files at a URL, through fsspec. Raises `UsageError` for a scheme that isn't installed."""

    def __init__(self, url: str) -> None:
        import fsspec  # takes a twentieth of a second, and few commands need it

        self.where = shown_url(url)
        try:
            self._files, self._root = fsspec.core.url_to_fs(url)
        except (ImportError, ValueError) as error:
            raise UsageError(
                f"{self.where!r} can't be used as an archive: {error}",
                hint="install the package that fsspec needs for it, such as s3fs for s3://",
            ) from error

    def names(self) -> list[str]:
        with self._translated("read"):
            self._files.invalidate_cache()
            if not self._files.isdir(self._root):
                return []
            return [str(path).rpartition("/")[2] for path in self._files.ls(self._root, detail=False)]

    def read(self, name: str, count: int = -1) -> bytes:
        part = {} if count < 0 else {"start": 0, "end": count}
        with self._translated("read"):
            return bytes(self._files.cat_file(f"{self._root}/{name}", **part))

    def put(self, name: str, content: bytes) -> None:
        target = f"{self._root}/{name}"
        part = f"{target}.{uuid.uuid4().hex}{_PART}"
        with self._translated("written"):
            self._files.makedirs(self._root, exist_ok=True)
            self._files.pipe_file(part, content)
            # Object stores copy and delete: what is at the name is a whole file at any moment there too.
            self._files.mv(part, target)

    @contextmanager
    def _translated(self, done: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        # Each implementation raises what its client library does (botocore's, aiohttp's, paramiko's errors).
        except Exception as error:
            line = " ".join(str(error).split()) or type(error).__name__
            raise LogUnavailable(f"the archive at {self.where} can't be {done}: {line}") from error


class ZipStore:
    """Files in one zip file, as they are (they are compressed already). A new one is written, an old one only read."""

    def __init__(self, path: Path) -> None:
        self.where = str(path)
        try:
            self._zip = zipfile.ZipFile(path)
        except (OSError, zipfile.BadZipFile) as error:
            raise UsageError(f"{path} can't be read as an export of Arranger's: {error}") from error

    def names(self) -> list[str]:
        return self._zip.namelist()

    def read(self, name: str, count: int = -1) -> bytes:
        with self._translated(name), self._zip.open(name) as file:
            return file.read(count)

    def put(self, name: str, content: bytes) -> None:
        raise LogUnavailable(f"{self.where} is open for reading only")

    @contextmanager
    def _translated(self, name: str) -> Iterator[None]:
        try:
            yield
        except KeyError as error:
            raise FileNotFoundError(name) from error
        except (OSError, zipfile.BadZipFile) as error:
            raise LogUnavailable(f"{name} in {self.where} can't be read: {error}") from error


class ZipWriter:
    """Writes the files of an export into one zip file, whose place is taken only by a whole one (`finish`)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # Of its own: what a killed export left may still be the very file that was put in its place.
        self._part = path.with_name(f"{path.name}.{uuid.uuid4().hex}{_PART}")
        self.where = str(path)
        try:
            self._zip = zipfile.ZipFile(self._part, "w", zipfile.ZIP_STORED)
        except OSError as error:
            raise UsageError(f"{path} can't be written: {error.strerror}") from error

    def names(self) -> list[str]:
        return []  # nothing was there before, and what is put here isn't looked at again

    def read(self, name: str, count: int = -1) -> bytes:
        raise FileNotFoundError(name)

    def put(self, name: str, content: bytes) -> None:
        """One more file. Its date is the oldest that a zip file knows, so that equal exports are equal bytes."""
        self._zip.writestr(zipfile.ZipInfo(name), content)

    def finish(self) -> None:
        """Put the whole in its place. Raises `UsageError` where a file has that name by now."""
        self._zip.close()
        try:
            os.link(self._part, self._path)
        except FileExistsError:
            raise UsageError(
                f"{self._path} is there already", hint="give another name: nothing is overwritten"
            ) from None
        finally:
            self._part.unlink()

    @property
    def size(self) -> int:
        return self._path.stat().st_size

    def give_up(self) -> None:
        """Leave nothing behind."""
        self._zip.close()
        self._part.unlink(missing_ok=True)


def is_remote(target: str) -> bool:
    """Whether a place is named by a URL that is no path of this machine."""
    return "://" in target and not target.startswith("file://")


def local_path(target: str) -> Path:
    """The path that a user names, with or without `file://`."""
    return Path(target.removeprefix("file://"))


def blob_store_at(target: str, name: str) -> BlobStore:
    """The folder of this name below a path or URL."""
    if is_remote(target):
        base, question, options = target.partition("?")
        return RemoteStore(f"{base.rstrip('/')}/{name}{question}{options}")
    return FolderStore(local_path(target) / name)


def shown_url(url: str) -> str:
    """The URL as it may be shown: without user, password and options."""
    try:
        parts = urlsplit(url)
        host = f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}"
    except ValueError:
        return f"{url.partition('://')[0]}://…"
    return f"{parts.scheme}://{host}{parts.path}"
