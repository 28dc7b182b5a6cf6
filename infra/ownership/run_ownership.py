"""The right to change a run, or another folder: at most one process has it, of one machine or of several that share it.

    owners/0001.json    who took the run up first; 0002.json who took it over, and so on: the highest number owns it
    owners/0001.beat    changed by the owner every two seconds while it lives
    owners/0001.over    the owner has let go

A number is taken by a hard link, which a file system grants to one process only. File locks are not used, as network
file systems pretend to have them; nor are clocks of two machines compared: a beat that stands still for a minute, by
the clock of whoever looks, is that of a dead owner. A dead owner on this machine is known at once.
"""

import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

from pydantic import ValidationError

from infra.machine.processes import identify_process, is_alive
from schemas.errors import StoreError
from schemas.processes import ProcessIdentity

BEAT_INTERVAL_S: Final = 2.0
OWNER_SILENCE_S: Final = 60.0
"""Thirty beats: longer than the pauses of a busy machine or of a network file system that fails over."""
_LOOK_S: Final = 0.5

_UNSAID: Final[set[str]] = set()
"""Owners of this process that have let go where no file could say so, as on a full disk: it may live on for weeks."""

logger = logging.getLogger(__name__)


class RunOwnership:
    """What the owner of a run holds; it beats until it lets go or finds that another one has taken over."""

    def __init__(self, folder: Path, number: int) -> None:
        """Take over what `acquire` has won."""
        self._folder = folder
        self._number = number
        self._beats = 0
        self._stopping = threading.Event()
        self._is_lost = False
        self._on_loss: Callable[[], None] = lambda: None
        self._beat()
        self._thread = threading.Thread(target=self._run, name="run-owner", daemon=True)
        self._thread.start()

    @classmethod
    def acquire(
        cls, run_folder: Path, *, silence_s: float = OWNER_SILENCE_S, stopping: threading.Event | None = None
    ) -> Self | None:
        """Return the ownership, or None when a living process has it.

        Waits as `is_owned` does.

        Raises:
            StoreError: the run's folder cannot be written or holds an owner that cannot be read.
        """
        folder = run_folder / "owners"
        try:
            folder.mkdir(exist_ok=True)
            last = _last_number(folder)
            if last and _is_owned(folder, last, silence_s, stopping):
                return None
            return cls._begin(folder, last + 1) if _claim(folder, last + 1) else None
        except OSError as exc:
            raise StoreError(
                f"{folder} cannot be written ({exc.strerror or exc}); point cluster.fileroot at a folder that can"
            ) from exc

    @classmethod
    def _begin(cls, folder: Path, number: int) -> Self:
        _UNSAID.discard(os.path.realpath(_over_path(folder, number)))  # of a folder that was removed since
        try:
            return cls(folder, number)
        except (OSError, RuntimeError):  # a full disk, or no thread left
            _say_over(folder, number)
            raise

    @property
    def beat_path(self) -> Path:
        """The file that changes while the owner lives."""
        return _beat_path(self._folder, self._number)

    @property
    def is_lost(self) -> bool:
        """Whether another process has taken the run over, as this one seemed dead."""
        return self._is_lost

    def call_on_loss(self, action: Callable[[], None]) -> None:
        """Have `action` called, in another thread, when the run is taken over by another process."""
        self._on_loss = action

    def release(self) -> None:
        """Let go; the numbers stay, as removing them would race with the next owner."""
        self._stopping.set()
        self._thread.join()
        _say_over(self._folder, self._number)

    def _run(self) -> None:
        while not self._stopping.wait(BEAT_INTERVAL_S):
            with suppress(OSError):  # a full disk or a network that is away: the silence tells
                # by listing: that a name is absent, a network file system may remember for half a minute
                if _last_number(self._folder) > self._number:
                    self._is_lost = True
                    self._on_loss()
                    return
                self._beat()

    def _beat(self) -> None:
        # in place: opening a file asks a network file system anew, a name that is replaced may come from a cache
        self._beats += 1
        self.beat_path.write_text(f"{self._beats}\n", "ascii")


def read_beats(run_folders: Iterable[Path]) -> frozenset[str]:
    """Return the beats of all owners of these folders: while one lives, a look is not like one seconds earlier."""
    beats: set[str] = set()
    for path in (path for folder in run_folders for path in (folder / "owners").glob("*.beat")):
        with suppress(OSError):  # let go, and the folder with it
            beats.add(f"{path} {path.read_text('ascii')}")
    return frozenset(beats)


def is_abandoned(run_folder: Path) -> bool:
    """Whether an owner has let go or is known to be dead, by a glance; one out of sight counts as alive."""
    folder = run_folder / "owners"
    try:
        last = _last_number(folder)
        if not last or _is_over(folder, last):
            return last > 0
        return is_alive(ProcessIdentity.model_validate_json(_owner_path(folder, last).read_bytes())) is False
    except (OSError, ValidationError):
        return False


def is_owned(run_folder: Path, *, silence_s: float = OWNER_SILENCE_S, stopping: threading.Event | None = None) -> bool:
    """Whether a living process has the right to change a folder; changes nothing.

    Waits up to `silence_s` where the last owner is on another machine and seems dead. A wait that `stopping` ends has
    told nothing: such an owner counts as alive.

    Raises:
        StoreError: the folder holds an owner that cannot be read.
    """
    folder = run_folder / "owners"
    try:
        last = _last_number(folder)
        return last > 0 and _is_owned(folder, last, silence_s, stopping)
    except OSError as exc:
        raise StoreError(
            f"{folder} cannot be read ({exc.strerror or exc}); see whether its file system is there"
        ) from exc


def _last_number(folder: Path) -> int:
    return max((int(path.stem) for path in folder.glob("[0-9]*.json")), default=0)


def _is_owned(folder: Path, number: int, silence_s: float, stopping: threading.Event | None) -> bool:
    """Whether the owner of that number lives and has not let go."""
    if _is_over(folder, number):
        return False
    path = _owner_path(folder, number)
    try:
        owner = ProcessIdentity.model_validate_json(path.read_bytes())
    except ValidationError as exc:
        raise StoreError(f"{path} does not name the owner of the run: {exc}; remove it to take the run over") from exc
    alive = is_alive(owner)
    if alive is not None:
        return alive
    logger.info("%s is owned by process %d of %s: waiting for a sign of life", folder.parent, owner.pid, owner.host)
    return _beats_on(folder, number, silence_s, stopping or threading.Event())


def _beats_on(folder: Path, number: int, silence_s: float, stopping: threading.Event) -> bool:
    """Watch a beat until it changes or has stood still for `silence_s`; told to stop, take it for one that changes."""
    deadline = time.monotonic() + silence_s
    first = _read_beat(folder, number)
    while time.monotonic() < deadline:
        if stopping.wait(min(_LOOK_S, silence_s)):
            return True
        if _is_over(folder, number):
            return False
        if _read_beat(folder, number) != first:
            return True
    return False


def _claim(folder: Path, number: int) -> bool:
    """Make this process the owner with that number; False when another one was quicker."""
    me = identify_process(os.getpid())
    if me is None:
        raise StoreError("/proc does not tell of this process; Milepost needs it to own a run")
    temporary = folder / f".{secrets.token_hex(8)}.tmp"
    temporary.write_text(me.model_dump_json() + "\n", "utf-8")
    try:
        os.link(temporary, _owner_path(folder, number))
    except FileExistsError:
        # a network file system may repeat a request whose answer was lost, and say so of its own link
        return temporary.stat().st_nlink > 1
    finally:
        temporary.unlink(missing_ok=True)
    return True


def _say_over(folder: Path, number: int) -> None:
    path = _over_path(folder, number)
    try:
        path.touch()
    except OSError:  # to others, the end of this process says it
        _UNSAID.add(os.path.realpath(path))


def _is_over(folder: Path, number: int) -> bool:
    path = _over_path(folder, number)
    return path.exists() or os.path.realpath(path) in _UNSAID


def _read_beat(folder: Path, number: int) -> bytes:
    try:
        return _beat_path(folder, number).read_bytes()
    except FileNotFoundError:
        return b""


def _owner_path(folder: Path, number: int) -> Path:
    return folder / f"{number:04d}.json"


def _beat_path(folder: Path, number: int) -> Path:
    return folder / f"{number:04d}.beat"


def _over_path(folder: Path, number: int) -> Path:
    return folder / f"{number:04d}.over"
