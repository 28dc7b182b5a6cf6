"""The versions of a validation set: immutable folders, and a pointer to the one that is current.

    {fileroot}/validation_sets/{dataset}/
        current.json                                   {"version": "v2-3f9a8b12cd04"}
        versions/v2-3f9a8b12cd04/items.parquet         the items, whole
        versions/v2-3f9a8b12cd04/manifest.json         where they came from
        owners/                                        who writes: one at a time, as with a run

Owns the files and that each appears whole; must not know how items are chosen. A version is written aside and renamed,
then the pointer is replaced: whoever is killed in between leaves the old version current and the new one unused.
"""

import hashlib
import re
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from pydantic import ValidationError

from infra.datasets.digests import dataset_version
from infra.datasets.item_file import read_items, to_table
from infra.datasets.naming import dataset_name
from infra.files.atomic import make_private_root, sync_folder, write_table_atomically, write_text_atomically
from infra.ownership.run_ownership import RunOwnership
from infra.ownership.staging import remove_abandoned, staging_folder
from schemas.base import Model
from schemas.config import EvaluationConfig
from schemas.dataset import EvalItem
from schemas.errors import DatasetError, StoreError
from schemas.refresh import VersionDraft, VersionManifest

ITEMS: Final = "items.parquet"
MANIFEST: Final = "manifest.json"

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_NAME: Final = 80
_VERSION: Final = re.compile(r"v([1-9][0-9]{0,8})-[0-9a-f]{12}")
_LOOK_S: Final = 0.1
"""Seconds between two looks whether another writer has done."""
_SHOWN_DIGITS: Final = 12
"""Hex digits of the content digest in a version's name: no two versions of a dataset share 48 bits by chance."""


class _Pointer(Model):
    """current.json."""

    version: str
    """Name of the version that is asked."""


class StoredVersion(NamedTuple):
    """A version as it is on disk, checked against its digests."""

    manifest: VersionManifest
    items: tuple[EvalItem, ...]


class Published(NamedTuple):
    """What became of a version that was to be published."""

    manifest: VersionManifest
    """The version that is current now."""
    is_new: bool
    """Whether this call made it current; False when another process had already put one in its parent's place."""


def dataset_folder(fileroot: Path, dataset: str) -> Path:
    """Return the folder of a dataset's versions: another one for every name, whatever characters it holds."""
    safe = _UNSAFE.sub("_", dataset).lstrip(".")[:_MAX_NAME]
    if safe != dataset:
        safe += "-" + hashlib.blake2b(dataset.encode(), digest_size=4).hexdigest()
    return fileroot / "validation_sets" / safe


@dataclass(frozen=True, slots=True)
class VersionStore:
    """The versions of one dataset. Reading one that does not exist yet finds it empty."""

    root: Path
    """The dataset's folder."""

    def versions(self) -> list[str]:
        """Return the names of all versions, the oldest first.

        Raises:
            StoreError: the folder cannot be read.
        """
        try:
            names = [entry.name for entry in (self.root / "versions").iterdir() if _VERSION.fullmatch(entry.name)]
        except FileNotFoundError:
            return []
        except OSError as exc:
            raise StoreError(f"cannot read {self.root} ({exc.strerror}): check cluster.fileroot") from exc
        return sorted(names, key=lambda name: (_number(name), name))

    def current(self) -> str | None:
        """Return the name of the current version; None before the first.

        Raises:
            StoreError: current.json cannot be read, or names a version that does not exist.
        """
        path = self.root / "current.json"
        try:
            name = _Pointer.model_validate_json(path.read_bytes()).version
        except FileNotFoundError:
            return None
        except (OSError, ValidationError) as exc:
            raise StoreError(f"{path} cannot be read; {self._way_out(None)}: {exc}") from exc
        if name not in self.versions():
            raise StoreError(f"{path} names version {name!r}, which does not exist; {self._way_out(name)}")
        return name

    def read_manifest(self, version: str) -> VersionManifest:
        """Return what is written of a version.

        Raises:
            StoreError: no such version, or its manifest cannot be read or was edited.
        """
        path = self.root / "versions" / self._resolve(version) / MANIFEST
        try:
            manifest = VersionManifest.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as exc:
            raise StoreError(f"{path} cannot be read; {self._way_out(version)}: {exc}") from exc
        digest = _manifest_digest(manifest)
        if manifest.manifest_digest != digest or manifest.version != version:
            raise StoreError(
                f"{path} was changed after it was written: its digest is {digest}, expected "
                f"{manifest.manifest_digest}. A version never changes; {self._way_out(version)}"
            )
        return manifest

    def read(self, version: str) -> StoredVersion:
        """Return a version's manifest and items.

        Raises:
            StoreError: no such version, or a file of it cannot be read or was edited.
        """
        manifest = self.read_manifest(version)
        path = self.root / "versions" / version / ITEMS
        try:
            items = read_items(path)
        except DatasetError as exc:
            raise StoreError(f"{exc}; {self._way_out(version)}") from exc
        digest = dataset_version(items)
        if digest != manifest.content_digest:
            raise StoreError(
                f"{path} was changed after it was written: its digest is {digest}, expected "
                f"{manifest.content_digest}. A version never changes; {self._way_out(version)}"
            )
        return StoredVersion(manifest, items)

    def publish_first(self, draft: VersionDraft, items: Sequence[EvalItem]) -> VersionManifest:
        """Write the version that others descend from, unless it is there, and make it current if none is.

        Raises:
            StoreError: the disk refused.
        """
        with self._writing():
            version = self._find(draft) or self._write(draft, items)
            if self.current() is None:
                self._point_to(version)
        return self.read_manifest(version)

    def publish(self, draft: VersionDraft, items: Sequence[EvalItem]) -> Published:
        """Write a version and make it current, in place of its parent.

        When the parent is no longer current because another process published its own successor of it, that one is
        returned and this one is not kept: two refreshes at once make one version. A version of the same items is never
        written twice.

        Raises:
            StoreError: the disk refused, or what is current now does not come from this draft's parent.
        """
        with self._writing():
            rival = self.current()
            if rival != draft.parent:
                return Published(self._adopt(rival, draft), is_new=False)
            version = self._find(draft) or self._write(draft, items)
            self._point_to(version)
        return Published(self.read_manifest(version), is_new=True)

    def rollback(self, version: str) -> VersionManifest:
        """Make an older (or newer) version current again; nothing is deleted. Its files are checked first.

        `version` is a name or its number alone, such as v2.

        Raises:
            StoreError: no such version, files of it that were changed, or the disk refused.
        """
        manifest = self.read(self._resolve(version)).manifest
        with self._writing():
            self._point_to(manifest.version)
        return manifest

    @property
    def _staging(self) -> Path:
        # On the file system of the versions, so that a rename is enough.
        return self.root / ".staging"

    def _adopt(self, rival: str | None, draft: VersionDraft) -> VersionManifest:
        manifest = self.read_manifest(rival) if rival is not None else None
        if manifest is None or manifest.parent != draft.parent:
            raise StoreError(
                f"{self.root}: version {rival} became current while a successor of {draft.parent} was drawn; run the "
                "refresh again"
            )
        return manifest

    def _find(self, draft: VersionDraft) -> str | None:
        """Return the version with the draft's items and parent, such as a killed refresh left, or one rolled back."""
        for name in self.versions():
            if name.endswith(draft.content_digest[:_SHOWN_DIGITS]):
                manifest = self.read_manifest(name)
                if (manifest.content_digest, manifest.parent) == (draft.content_digest, draft.parent):
                    return name
        return None

    def _write(self, draft: VersionDraft, items: Sequence[EvalItem]) -> str:
        number = 1 + max(map(_number, self.versions()), default=0)
        version = f"v{number}-{draft.content_digest[:_SHOWN_DIGITS]}"
        manifest = VersionManifest(**dict(draft), version=version, number=number, manifest_digest="")
        manifest = manifest.model_copy(update={"manifest_digest": _manifest_digest(manifest)})
        with staging_folder(self._staging) as folder:
            whole = folder / version
            whole.mkdir()
            write_table_atomically(whole / ITEMS, to_table(items))
            write_text_atomically(whole / MANIFEST, manifest.model_dump_json(indent=1) + "\n")
            whole.rename(self.root / "versions" / version)
            sync_folder(self.root / "versions")
        return version

    def _point_to(self, version: str) -> None:
        write_text_atomically(self.root / "current.json", _Pointer(version=version).model_dump_json() + "\n")

    @contextmanager
    def _writing(self) -> Generator[None]:
        """Keep other writers out, those of other machines too, and remove what dead ones left."""
        try:
            make_private_root(self.root.parent)
            (self.root / "versions").mkdir(parents=True, exist_ok=True)
            while (ownership := RunOwnership.acquire(self.root)) is None:
                time.sleep(_LOOK_S)
            try:
                remove_abandoned(self._staging)
                yield
            finally:
                ownership.release()
        except OSError as exc:
            raise StoreError(
                f"cannot write {self.root} ({exc.strerror or exc}): free space, make it writable or point "
                "cluster.fileroot elsewhere"
            ) from exc

    def _resolve(self, version: str) -> str:
        """Return the full name of a version that may be given by its number alone, such as v2."""
        known = self.versions()
        matching = [name for name in known if version in (name, name.partition("-")[0])]
        if len(matching) != 1:
            raise StoreError(
                f"version {version!r} is not in {self.root}; it has {', '.join(known) or 'no versions yet'}"
            )
        return matching[0]

    def _way_out(self, broken: str | None) -> str:
        others = [name for name in self.versions() if name != broken]
        if not others:
            return f"move {self.root} away to start again from the source"
        return f"go back to another one with `milepost refresh CONFIG --rollback {others[-1]}` ({', '.join(others)})"


def versions_of(config: EvaluationConfig) -> VersionStore:
    """Return the versions of the configured dataset; nothing is made before something is published."""
    return VersionStore(dataset_folder(config.cluster.folder, dataset_name(config.valid_dataset)))


def _number(version: str) -> int:
    return int(version[1:].partition("-")[0])


def _manifest_digest(manifest: VersionManifest) -> str:
    content = manifest.model_copy(update={"manifest_digest": ""}).model_dump_json()
    return hashlib.blake2b(content.encode(), digest_size=16, person=b"milepost-manif").hexdigest()
