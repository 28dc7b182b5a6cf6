"""The end of a log is read whatever it holds, and while it is missing."""

from pathlib import Path

from infra.files.log_files import end_or_nothing, log_tail


def test_the_end_has_no_more_bytes_than_asked_for(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert end_or_nothing(log, 4) == ""
    log.write_bytes(b"first last")
    assert end_or_nothing(log, 4) == "last"
    assert end_or_nothing(log, 400) == "first last"


def test_the_tail_of_a_log_is_its_last_lines_and_readable_whatever_it_holds(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert "cannot be read" in log_tail(log)
    log.write_bytes(b"")
    assert "empty" in log_tail(log)
    log.write_bytes(b"".join(b"line %d \xff\n" % number for number in range(10_000)))
    lines = log_tail(log).split("\n")
    assert len(lines) == 15
    assert lines[-1].startswith("    line 9999")
    log.write_bytes(b"\rLoading 0%\rLoading 100%\r\nlast words")
    assert log_tail(log) == "    Loading 100%\n    last words"
