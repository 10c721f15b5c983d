"""Places to which runs and datasets are pushed: a folder, a store that fsspec supports, the Hugging Face hub."""

from __future__ import annotations

import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from robo_app.sharing.manifest import MOST_BYTES, NAME
from robo_app.sharing.payload import Kind
from robo_rl.errors import InvalidSetting, RunError, fix_of, optional

HUB = "hf://"
README = "README.md"


class Place(ABC):
    """Place for one run or dataset, given by an address. It is complete if it has a manifest."""

    def __init__(self, url: str) -> None:
        self.url = url

    @abstractmethod
    def exists(self) -> bool:
        """Return True if the place is taken, so that nothing may be pushed to it."""

    @abstractmethod
    def write(self, files: Mapping[str, Path], texts: Mapping[str, bytes], kind: Kind) -> None:
        """Write a run or a dataset to the place.

        Args:
            files: Path in the place -> file on this machine; written first.
            texts: Path in the place -> content, in the order of writing; the manifest comes last.
            kind: Run or dataset.

        Raises:
            RunError: The place does not work.
        """

    @abstractmethod
    def text(self, name: str) -> bytes:
        """Return the content of a file; raises RunError if it is missing or larger than MOST_BYTES."""

    @abstractmethod
    def fetch(self, name: str, target: Path) -> None:
        """Copy a file to `target` on this machine; raises RunError if that fails."""

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Turn any error of a client inside the block into RunError, because each store raises errors of its own."""
        try:
            yield
        except (RunError, InvalidSetting):
            raise
        except Exception as error:
            said = " ".join(str(error).split())[:300]
            fix = fix_of(error) if isinstance(error, OSError) and error.errno else "look at address, network and rights"
            raise RunError(f"{self.url} does not work.", got=f"{type(error).__name__}: {said}", fix=fix) from error


class Folder(Place):
    """A folder on this machine, or on a mounted disk."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self._path = Path(url.removeprefix("file://")).expanduser()

    def exists(self) -> bool:
        """Return True if the path exists."""
        return self._path.exists()

    def write(self, files: Mapping[str, Path], texts: Mapping[str, bytes], kind: Kind) -> None:
        """Write all files to a temporary folder in the same parent, then rename it, so that the folder is never incomplete."""
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        with self._told():
            try:
                for name, path in files.items():
                    (draft / name).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copyfile(path, draft / name)
                for name, content in texts.items():
                    (draft / name).write_bytes(content)
                draft.rename(self._path)
            finally:
                shutil.rmtree(draft, ignore_errors=True)

    def text(self, name: str) -> bytes:
        """Return the bytes of the small file `name` in the folder."""
        with self._told():
            return _small((self._path / name).read_bytes(), name)

    def fetch(self, name: str, target: Path) -> None:
        """Copy a file, never through a link."""
        source = self._path / name
        if source.is_symlink():
            raise RunError(f"{source} is a link; nothing is read through it.", fix="do not trust it")
        with self._told():
            shutil.copyfile(source, target)


class Store(Place):
    """A folder of an object store that fsspec supports, such as s3://BUCKET/NAME."""

    def __init__(self, url: str) -> None:
        super().__init__(url)
        with optional("Such a store", "fsspec", "share"):
            import fsspec
        with self._told():
            try:
                self._files, self._root = fsspec.core.url_to_fs(url)
            except ImportError as error:  # the client of that store: s3fs, gcsfs, adlfs
                raise InvalidSetting(f"The client of {url} is not installed.", got=error, fix=str(error)) from None

    def exists(self) -> bool:
        """Return True if the manifest is there."""
        with self._told():
            return bool(self._files.exists(f"{self._root}/{NAME}"))

    def write(self, files: Mapping[str, Path], texts: Mapping[str, bytes], kind: Kind) -> None:
        """Write the files one by one, the manifest last: until then a reader finds nothing."""
        with self._told():
            for name, path in files.items():
                folder = f"{self._root}/{name}".rpartition("/")[0]
                self._files.makedirs(folder, exist_ok=True)
                self._files.put_file(str(path), f"{self._root}/{name}")
            for name, content in texts.items():
                self._files.pipe_file(f"{self._root}/{name}", content)

    def text(self, name: str) -> bytes:
        """Return the bytes of the small file `name`."""
        with self._told():
            return _small(self._files.cat_file(f"{self._root}/{name}", end=MOST_BYTES + 1), name)

    def fetch(self, name: str, target: Path) -> None:
        """Copy the stored file `name` to `target` on this machine; raises RunError if that fails."""
        with self._told():
            self._files.get_file(f"{self._root}/{name}", str(target))


class Hub(Place):
    """A repository of the Hugging Face hub, hf://USER/NAME or hf://datasets/USER/NAME; a push is one commit.

    The client reads its own token (HF_TOKEN, `hf auth login`) and address (HF_ENDPOINT).
    """

    def __init__(self, url: str) -> None:
        super().__init__(url)
        with optional("The Hugging Face hub", "huggingface_hub", "share"):
            from huggingface_hub import HfApi
        rest = url.removeprefix(HUB)
        self._type = "dataset" if rest.startswith("datasets/") else "model"
        self._name = rest.removeprefix("datasets/").strip("/")
        if self._name.count("/") != 1:
            raise InvalidSetting(
                "The address names no repository.", got=url, allowed="hf://USER/NAME or hf://datasets/USER/NAME"
            )
        self._client = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))

    def exists(self) -> bool:
        """Return False: a push to an existing repository adds a commit, and earlier commits stay."""
        return False

    def write(self, files: Mapping[str, Path], texts: Mapping[str, bytes], kind: Kind) -> None:
        """Write all files in one commit, which also removes other files.

        Raises InvalidSetting if kind and address do not fit.
        """
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        expected = "dataset" if kind == "dataset" else "model"
        if self._type != expected:
            allowed = "hf://datasets/USER/NAME" if kind == "dataset" else "hf://USER/NAME"
            raise InvalidSetting(f"A {kind} is no {self._type} of the hub.", got=self.url, allowed=allowed)
        with self._told():
            self._client.create_repo(self._name, repo_type=self._type, exist_ok=True)
            there = self._client.list_repo_files(self._name, repo_type=self._type)
            added: Mapping[str, Any] = {**{name: str(path) for name, path in files.items()}, **texts}
            operations: list[Any] = [
                *(CommitOperationAdd(name, content) for name, content in added.items()),
                *(CommitOperationDelete(name) for name in there if name not in added and not name.startswith(".git")),
            ]
            what = f"Push a {kind} of robo-rl"
            self._client.create_commit(self._name, operations, commit_message=what, repo_type=self._type)

    def text(self, name: str) -> bytes:
        """Return the bytes of the small file `name` in the repository."""
        from tempfile import TemporaryDirectory

        with TemporaryDirectory() as folder:
            target = Path(folder) / "text"
            self.fetch(name, target)
            return _small(target.read_bytes(), name)

    def fetch(self, name: str, target: Path) -> None:
        """Copy a file, with a temporary cache of the client next to the target."""
        cache = target.with_name(f".{target.name}.hub")
        with self._told():
            try:
                got = self._client.hf_hub_download(self._name, name, repo_type=self._type, cache_dir=cache)
                shutil.copyfile(got, target)
            finally:
                shutil.rmtree(cache, ignore_errors=True)


def _small(content: bytes, name: str) -> bytes:
    if len(content) > MOST_BYTES:
        raise RunError(f"{name} is too large.", got=f"more than {MOST_BYTES} bytes", fix="do not trust it")
    return content


def place_of(url: str) -> Place:
    """Return the place for an address: hf://..., another URL of fsspec, or a path."""
    if url.startswith(HUB):
        return Hub(url)
    return Store(url) if "://" in url and not url.startswith("file://") else Folder(url)
