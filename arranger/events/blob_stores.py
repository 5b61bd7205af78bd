"""Storage for an archive's files: a folder, any place that fsspec reaches (`s3://…`, `gs://…`, `sftp://…`), or one zip
file, which is the form of an export.

A file is stored whole or not at all: it is written under another name and then moved. After a crash, at most a file
whose name ends in `.part` remains, which no reader looks at. An unreachable place raises `LogUnavailable`; a file that
was listed but is missing raises `FileNotFoundError`.
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
    """A flat set of named files. Calls block; an event loop must call them in a thread."""

    @property
    def where(self) -> str:
        """The place as text, without a password."""
        ...

    def names(self) -> list[str]:
        """All files, in no order; none if the place doesn't exist yet."""
        ...

    def read(self, name: str, count: int = -1) -> bytes:
        """The first bytes of a file, or all of them."""
        ...

    def put(self, name: str, content: bytes) -> None:
        """Store a whole file; it replaces one of the same name."""
        ...


class FolderStore:
    """Files in a local folder, which the first `put` creates."""

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
        """Store a file; it is synced to disk when this returns."""
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
        import fsspec  # importing it takes 50 ms, and few commands need it

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
            # On object stores a move is a copy and a deletion: there too, the name always has a whole file.
            self._files.mv(part, target)

    @contextmanager
    def _translated(self, done: str) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        # Each implementation raises the errors of its client library (botocore, aiohttp, paramiko).
        except Exception as error:
            line = " ".join(str(error).split()) or type(error).__name__
            raise LogUnavailable(f"the archive at {self.where} can't be {done}: {line}") from error


class ZipStore:
    """Files in one zip file, which is only read. They are stored uncompressed, being compressed already."""

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
    """Writes the files of an export into one zip file, which gets its name only when it is whole (`finish`)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # A unique name: the remains of a killed export may be a hard link to the file at `path`.
        self._part = path.with_name(f"{path.name}.{uuid.uuid4().hex}{_PART}")
        self.where = str(path)
        try:
            self._zip = zipfile.ZipFile(self._part, "w", zipfile.ZIP_STORED)
        except OSError as error:
            raise UsageError(f"{path} can't be written: {error.strerror}") from error

    def names(self) -> list[str]:
        return []  # a new file has no earlier content, and `put` is never read back

    def read(self, name: str, count: int = -1) -> bytes:
        raise FileNotFoundError(name)

    def put(self, name: str, content: bytes) -> None:
        """Add a file. Its date is the oldest in the zip format, so that equal exports have equal bytes."""
        self._zip.writestr(zipfile.ZipInfo(name), content)

    def finish(self) -> None:
        """Give the whole file its name. Raises `UsageError` if a file has that name by now."""
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
        """Delete the unfinished file."""
        self._zip.close()
        self._part.unlink(missing_ok=True)


def is_remote(target: str) -> bool:
    """Whether a place is a URL other than `file://`."""
    return "://" in target and not target.startswith("file://")


def local_path(target: str) -> Path:
    """The path that a user gives, with or without `file://`."""
    return Path(target.removeprefix("file://"))


def blob_store_at(target: str, name: str) -> BlobStore:
    """The folder of this name below a path or URL."""
    if is_remote(target):
        base, question, options = target.partition("?")
        return RemoteStore(f"{base.rstrip('/')}/{name}{question}{options}")
    return FolderStore(local_path(target) / name)


def shown_url(url: str) -> str:
    """The URL without user, password and options, for display."""
    try:
        parts = urlsplit(url)
        host = f"{parts.hostname or ''}{f':{parts.port}' if parts.port else ''}"
    except ValueError:
        return f"{url.partition('://')[0]}://…"
    return f"{parts.scheme}://{host}{parts.path}"
