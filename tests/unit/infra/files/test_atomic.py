"""A file is whole or absent, and a refused write says what to do."""

import os
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.fileroot.run_directory import create_run
from infra.files.atomic import make_private_root, write_bytes_atomically, write_table_atomically, write_text_atomically
from infra.store import open_store
from schemas.errors import StoreError


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_bytes_text_and_tables_arrive_as_given_and_alone(tmp_path: Path) -> None:
    table = pa.table({"item_id": ["a", "b"], "score": [1.0, None]})
    write_bytes_atomically(tmp_path / "bytes", b"\x00\xff\r\n")
    write_text_atomically(tmp_path / "text", "é\u2028\r\n")
    write_table_atomically(tmp_path / "table.parquet", table)
    assert (tmp_path / "bytes").read_bytes() == b"\x00\xff\r\n"
    assert (tmp_path / "text").read_bytes() == "é\u2028\r\n".encode()
    assert pq.read_table(tmp_path / "table.parquet").equals(table)
    assert _names(tmp_path) == ["bytes", "table.parquet", "text"]


def test_a_failed_write_keeps_the_old_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    write_bytes_atomically(path, b"old")
    unwritable = pa.table({"x": pa.nulls(1, pa.month_day_nano_interval())})
    with pytest.raises(pa.ArrowNotImplementedError):
        write_table_atomically(path, unwritable)
    assert path.read_bytes() == b"old"
    assert _names(tmp_path) == ["table.parquet"]


def test_a_missing_folder_a_file_as_folder_and_a_folder_as_file_are_store_errors(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    for path in (tmp_path / "absent" / "x", tmp_path / "file" / "x", tmp_path / "folder"):
        with pytest.raises(StoreError, match=r"cannot write .*cluster\.fileroot"):
            write_bytes_atomically(path, b"x")
    assert _names(tmp_path) == ["file", "folder"]


def test_a_name_as_long_as_the_file_system_allows_is_written(tmp_path: Path) -> None:
    name = "n" * 255
    write_bytes_atomically(tmp_path / name, b"x")
    assert _names(tmp_path) == [name]
    with pytest.raises(StoreError, match="too long"):
        write_bytes_atomically(tmp_path / (name + "n"), b"x")


def test_a_file_size_limit_becomes_a_store_error_without_a_leftover(tmp_path: Path) -> None:
    code = (
        "import resource, signal, sys; from pathlib import Path\n"
        "from infra.files.atomic import write_bytes_atomically\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN); resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))\n"
        "from schemas.errors import StoreError\n"
        "try: write_bytes_atomically(Path(sys.argv[1]), b'x' * 100)\n"
        "except StoreError as exc: print(exc)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "big")],
        capture_output=True, text=True, check=True, cwd=Path(__file__).parents[4],
    )  # fmt: skip
    assert "cannot write" in done.stdout
    assert _names(tmp_path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written_is_a_store_error(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreError, match="permission denied"):
        write_bytes_atomically(tmp_path / "x", b"x")


def test_importing_the_module_does_not_import_pyarrow() -> None:
    code = "import sys, infra.files.atomic; sys.exit('pyarrow' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parents[4])


def test_a_folder_of_results_is_its_owners_alone_unless_it_was_opened(tmp_path: Path) -> None:
    root = tmp_path / "out" / "runs"
    make_private_root(root)
    assert root.stat().st_mode & 0o777 == 0o700
    root.chmod(0o750)
    make_private_root(root)
    assert root.stat().st_mode & 0o777 == 0o750


def test_runs_store_versions_and_pins_lie_in_private_folders(tmp_path: Path) -> None:
    """Each module that makes such a folder does it by `make_private_root`: the first of them decides the mode."""
    create_run(tmp_path, "0" * 16, datetime(2026, 1, 1, tzinfo=UTC))
    open_store(tmp_path).check_writable(min_free_bytes=0)
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == {"runs": 0o700, "store": 0o700}
