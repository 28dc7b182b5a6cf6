"""The trainer's side: when it evaluates, what it needs, and that training never waits for it."""

import getpass
import http.server
import json
import logging
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from flows.evaluator import AREAL_FOLDER, CheckpointAnnouncer, Evaluator, EvaluatorConfig, FinetuneSpec
from infra.trainer.announcements import SPOOL, read_announcements
from schemas.errors import ConfigError
from schemas.events import CheckpointLanded
from schemas.sections import EvaluatorConfig as EvaluatorSection

ROOT = Path(__file__).resolve().parents[3]
SPEC = FinetuneSpec(total_train_epochs=3, dataset_size=43, train_batch_size=8)
PATIENCE_S = 120.0
BUDGET_S = 0.01
"""What an announcement may cost a training step."""


def evaluated_steps(evaluator: Evaluator, num_steps: int = 15) -> list[int]:
    found: list[int] = []
    for global_step in range(num_steps):
        epoch, step = divmod(global_step, SPEC.steps_per_epoch)
        evaluator.evaluate(lambda now=global_step: found.append(now), epoch, step, global_step)
    return found


def wait_for_announcements(root: Path, number: int) -> None:
    limit = time.monotonic() + PATIENCE_S
    while len(read_announcements(root)) < number:
        assert time.monotonic() < limit
        time.sleep(0.01)


def save_steps(root: Path, *steps: int) -> None:
    for step in steps:
        (root / f"checkpoint-{step}").mkdir()


@pytest.fixture(autouse=True)
def _no_prefect_api(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.delenv("RANK", raising=False)


def test_a_function_is_called_where_areal_calls_it() -> None:
    assert evaluated_steps(Evaluator(EvaluatorConfig(freq_epochs=1), SPEC)) == [4, 9, 14]
    assert evaluated_steps(Evaluator(EvaluatorConfig(freq_steps=3), SPEC)) == [2, 5, 8, 11, 14]
    assert evaluated_steps(Evaluator(EvaluatorConfig(freq_epochs=1, eval_before_train=True), SPEC)) == [0, 4, 9, 14]
    assert evaluated_steps(Evaluator(EvaluatorConfig(), SPEC)) == []


def test_the_section_of_a_configuration_is_taken_as_it_is() -> None:
    assert evaluated_steps(Evaluator(EvaluatorSection(freq_steps=5), SPEC)) == [4, 9, 14]


def test_a_restart_goes_on_counting() -> None:
    first, second = (Evaluator(EvaluatorConfig(freq_steps=4), SPEC) for _ in range(2))
    assert evaluated_steps(first, 6) == [3]
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert evaluated_steps(second, 6) == [1, 5]


def test_what_a_function_raises_reaches_the_trainer() -> None:
    def fail() -> None:
        raise RuntimeError("no answers")

    with pytest.raises(RuntimeError, match="no answers"):
        Evaluator(EvaluatorConfig(freq_steps=1), SPEC).evaluate(fail, 0, 0, 0)


def test_bad_input_is_refused_when_training_starts() -> None:
    with pytest.raises(ConfigError, match=r"evaluator\.freq_steps must be a whole number of at least 1, .* got 0"):
        EvaluatorConfig(freq_steps=0)
    with pytest.raises(ConfigError, match="train_batch_size must be at least 1, got 0"):
        FinetuneSpec(1, 100, 0)
    with pytest.raises(ConfigError, match="an epoch has 0 steps"):
        Evaluator(EvaluatorConfig(), FinetuneSpec(1, 7, 8))
    with pytest.raises(ConfigError, match="announcer=CheckpointAnnouncer"):
        Evaluator(EvaluatorConfig(freq_steps=100), SPEC).evaluate(None, 0, 0, 0)


def test_it_needs_nothing_but_the_standard_library() -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import flows.evaluator"
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)


def test_without_a_function_the_checkpoint_is_announced(tmp_path: Path) -> None:
    for folder in ("epoch0epochstep2globalstep2", "epoch1epochstep0globalstep5"):
        (tmp_path / folder).mkdir()
    announcer = CheckpointAnnouncer(tmp_path, folder=AREAL_FOLDER)
    evaluator = Evaluator(EvaluatorConfig(freq_steps=3), SPEC, announcer=announcer)
    for global_step in range(6):
        evaluator.evaluate(None, *divmod(global_step, SPEC.steps_per_epoch), global_step)
    wait_for_announcements(tmp_path, 2)
    assert [(one.path, one.epoch, one.global_step) for one in read_announcements(tmp_path)] == [
        (str(tmp_path / "epoch0epochstep2globalstep2"), 0, 2),
        (str(tmp_path / "epoch1epochstep0globalstep5"), 1, 5),
    ]


@dataclass
class ArealSection:
    """What AReaL's own section `evaluator` has."""

    fileroot: str
    experiment_name: str = "gsm8k-grpo"
    trial_name: str = "trial0"
    freq_epochs: int | None = None
    freq_steps: int | None = 3
    freq_secs: int | None = None
    eval_before_train: bool = False


def test_areal_says_where_its_checkpoints_are(tmp_path: Path) -> None:
    root = tmp_path / "checkpoints" / getpass.getuser() / "gsm8k-grpo" / "trial0" / "default"
    checkpoint = root / "epoch0epochstep2globalstep2"
    checkpoint.mkdir(parents=True)
    evaluator = Evaluator(ArealSection(str(tmp_path)), SPEC)
    for global_step in range(3):
        evaluator.evaluate(None, 0, global_step, global_step)
    wait_for_announcements(root, 1)
    assert [one.path for one in read_announcements(root)] == [str(checkpoint)]


def test_a_section_that_does_not_say_where_is_refused_when_training_starts() -> None:
    for fileroot in ("???", ""):
        with pytest.raises(ConfigError, match="announcer=CheckpointAnnouncer"):
            Evaluator(ArealSection(fileroot), SPEC).evaluate(None, 0, 0, 0)


def test_only_the_first_rank_speaks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_steps(tmp_path, 1, 2)
    monkeypatch.setenv("RANK", "3")
    announcer = CheckpointAnnouncer(tmp_path)
    announcer.announce_step(0, 1, 1)
    monkeypatch.setenv("RANK", "0")
    announcer.announce_step(0, 2, 2)
    wait_for_announcements(tmp_path, 1)
    assert [one.global_step for one in read_announcements(tmp_path)] == [2]


def test_what_was_announced_last_is_written_before_the_process_ends(tmp_path: Path) -> None:
    (tmp_path / "last one").mkdir()
    code = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
from flows.evaluator import CheckpointAnnouncer
CheckpointAnnouncer({str(tmp_path)!r}).announce({str(tmp_path / "last one")!r}, global_step=7)
"""
    subprocess.run([sys.executable, "-I", "-S", "-c", code], check=True)
    assert [one.path for one in read_announcements(tmp_path)] == [str(tmp_path / "last one")]


class Sink(http.server.BaseHTTPRequestHandler):
    """Keeps what is posted to it."""

    received: list[tuple[str, str | None, object]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.received.append((self.path, self.headers["Authorization"], json.loads(body)))
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def sink() -> Iterator[tuple[str, type[Sink]]]:
    handler = type("OneSink", (Sink,), {"received": []})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/api", handler
        server.shutdown()
        thread.join()


def test_a_prefect_server_gets_an_event(
    tmp_path: Path, sink: tuple[str, type[Sink]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, handler = sink
    monkeypatch.setenv("PREFECT_API_URL", url)
    monkeypatch.setenv("PREFECT_API_AUTH_STRING", "me:secret")
    root = tmp_path / ("long-" * 40)
    root.mkdir()
    save_steps(root, 4)
    announcer = CheckpointAnnouncer(root, posts_events=True)
    announcer.announce(root / "checkpoint-4", global_step=4)
    assert announcer.drain(PATIENCE_S)
    [(path, authorization, events)] = handler.received
    assert (path, authorization) == ("/api/events", "Basic bWU6c2VjcmV0")
    assert isinstance(events, list)
    payload = events[0]["payload"]
    folder = str(root / "checkpoint-4")
    title = payload.pop("title")
    assert (len(title) <= 120, title.startswith(f"Milepost: {CheckpointLanded.title}: ")) == (True, True)
    assert title.endswith("/checkpoint-4")  # a long path is cut at its front
    assert payload.pop("text") == f"The trainer has saved the checkpoint of step 4.\ncheckpoint: {folder}"
    landed = CheckpointLanded.model_validate(payload)
    assert (events[0]["event"], landed.global_step) == (CheckpointLanded.event, 4)
    assert events[0]["resource"]["prefect.resource.id"] == f"milepost.{landed.resource}"


def test_the_same_save_is_told_once_and_a_rewritten_one_anew(
    tmp_path: Path, sink: tuple[str, type[Sink]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, handler = sink
    monkeypatch.setenv("PREFECT_API_URL", url)
    save_steps(tmp_path, 4)
    weights = tmp_path / "checkpoint-4" / "actor" / "model.safetensors"
    weights.parent.mkdir()
    for content in ("one", "one", "another", "another"):
        if not weights.exists() or weights.read_text() != content:
            weights.write_text(content)
        announcer = CheckpointAnnouncer(tmp_path, posts_events=True)  # a resumed trainer
        announcer.announce_step(0, 4, 4)
        assert announcer.drain(PATIENCE_S)
    first, rewritten = (
        event["id"] for _, _, events in handler.received if isinstance(events, list) for event in events
    )
    assert first != rewritten


def test_what_no_server_has_taken_is_told_by_the_next_trainer(
    tmp_path: Path, sink: tuple[str, type[Sink]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, handler = sink
    save_steps(tmp_path, 4)
    for place in ("http://127.0.0.1:1/api", url):  # where nobody answers, and the server
        monkeypatch.setenv("PREFECT_API_URL", place)
        announcer = CheckpointAnnouncer(tmp_path, posts_events=True)
        announcer.announce_step(0, 4, 4)
        assert announcer.drain(PATIENCE_S)
    assert len(handler.received) == 1


@pytest.mark.parametrize("value", [None, "127.0.0.1:4200"])
def test_events_without_a_server_are_said_to_reach_nobody(
    tmp_path: Path, value: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if value is not None:
        monkeypatch.setenv("PREFECT_API_URL", value)
    save_steps(tmp_path, 1, 2)
    announcer = CheckpointAnnouncer(tmp_path, posts_events=True)
    for step in (1, 2):
        announcer.announce_step(0, step, step)
    assert announcer.drain(PATIENCE_S)
    [said] = [record.message for record in caplog.records]
    assert "PREFECT_API_URL" in said
    assert len(read_announcements(tmp_path)) == 2


def test_a_server_is_told_on_request_alone(
    tmp_path: Path, sink: tuple[str, type[Sink]], monkeypatch: pytest.MonkeyPatch
) -> None:
    url, handler = sink
    monkeypatch.setenv("PREFECT_API_URL", url)
    save_steps(tmp_path, 4)
    announcer = CheckpointAnnouncer(tmp_path)
    announcer.announce_step(0, 4, 4)
    assert announcer.drain(PATIENCE_S)
    assert handler.received == []


def test_a_folder_that_no_step_names_is_refused(tmp_path: Path) -> None:
    for folder in ("step{n}", "step{}", "step{"):
        with pytest.raises(ConfigError, match=r"may hold \{epoch\}, \{step\} and \{global_step\}, got 'step"):
            CheckpointAnnouncer(tmp_path, folder=folder)


@pytest.fixture(params=["dead", "silent"])
def useless_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Of a server that refuses connections, and of one that takes them and never answers."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if request.param == "silent":
            server.listen()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/api"


def test_a_server_that_does_not_answer_costs_training_nothing(
    tmp_path: Path, useless_url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    save_steps(tmp_path, *range(200))
    monkeypatch.setenv("PREFECT_API_URL", useless_url)
    announcer = CheckpointAnnouncer(tmp_path, posts_events=True)
    started = time.monotonic()
    for step in range(200):
        announcer.announce_step(0, step, step)
    assert time.monotonic() - started < 200 * BUDGET_S
    wait_for_announcements(tmp_path, 64)
    assert {record.levelno for record in caplog.records} <= {logging.WARNING}
    assert len(caplog.records) == len({record.message for record in caplog.records})


def test_a_disk_that_refuses_costs_training_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = tmp_path / "root"
    root.write_text("a file where a folder should be")
    announcer = CheckpointAnnouncer(root)
    for _ in range(20):
        announcer.announce(tmp_path)
    assert announcer.drain(PATIENCE_S)
    said = [record.message for record in caplog.records if "announcement" in record.message]
    reason = f"[Errno 20] Not a directory: '{root / SPOOL}'"
    assert [text.split("; ")[0] for text in said] == [f"milepost: announcement of a checkpoint dropped: {reason}"]


def test_what_was_never_saved_is_not_announced(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    save_steps(tmp_path, 2)
    announcer = CheckpointAnnouncer(tmp_path)
    for step in range(5):
        announcer.announce_step(0, step, step)
    assert announcer.drain(PATIENCE_S)
    assert [one.global_step for one in read_announcements(tmp_path)] == [2]
    said = [record.message for record in caplog.records if "no such checkpoint" in record.message]
    assert len(said) == 1
    assert str(tmp_path / "checkpoint-0") in said[0]
