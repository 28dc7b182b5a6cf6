"""Alerts arrive where the configuration sends them: once for a cause, with what, how much, against what and where."""

import json
import socketserver
import threading
import time
from collections.abc import Iterator
from email import message_from_string
from pathlib import Path
from typing import Any

import pytest

from schemas.events import (
    ConsistencyViolated,
    DriftDetected,
    EvaluationFailed,
    Event,
    GenerationDegenerate,
    RegressionDetected,
)
from tests.support.alert_sink import Sink
from tests.support.command_server import run_command
from tests.support.prefect_server import CONFIG, Served, wait_for

pytestmark = [pytest.mark.needs_prefect, pytest.mark.needs_engine, pytest.mark.timeout(1800)]

ARRIVAL_S = 60.0
QUIET_S = 4.0
"""Time in which a message that must not come would have come: they take about a second."""
ANNOUNCE = """
import json, sys
from flows.orchestration.server_access import use_login
use_login()
from schemas import events
from schemas.config import EvaluationConfig
from tasks.alerts.task import announce
config = EvaluationConfig.model_validate_json(sys.argv[1])
for name, event in json.loads(sys.argv[2]):
    announce(getattr(events, name).model_validate(event), config)
"""


class Mailbox(socketserver.ThreadingTCPServer):
    """Takes what is mailed to it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Smtp)
        self.letters: list[str] = []


class _Smtp(socketserver.StreamRequestHandler):
    server: Mailbox

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        while line := self.rfile.readline():
            verb = line[:4].upper()
            if verb == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                letter = list(iter(self.rfile.readline, b".\r\n"))
                self.server.letters.append(b"".join(letter).decode())
            self.wfile.write(b"221 bye\r\n" if verb == b"QUIT" else b"250 ok\r\n")


@pytest.fixture
def mailbox() -> Iterator[Mailbox]:
    with Mailbox() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def alerting(folder: Path, **alerts: Any) -> dict[str, Any]:
    """The configuration of the tests, with alerts and a fileroot of its own."""
    return CONFIG | {"cluster": {"fileroot": str(folder / "out")}, "alerts": alerts}


def announce(served: Served, config: dict[str, Any], *events: Event) -> None:
    """Announce events as a flow does, in a process of its own."""
    named = [(type(event).__name__, event.model_dump(mode="json")) for event in events]
    words = [json.dumps(config), json.dumps(named)]
    run_command(words, folder=served.folder, environment=served.environment, code=ANNOUNCE).check_returncode()


def drift(checkpoint: str = "ckpt-400", **changes: Any) -> DriftDetected:
    event = DriftDetected(
        checkpoint=checkpoint,
        global_step=400,
        message="gsm8k: num_prompt_tokens by 0.41 (PSI); v3 against v2",
        since="v2 of 2026-11-01",
        dataset="gsm8k",
        reference_version="v2",
        current_version="v3",
        features=("num_prompt_tokens",),
        broken_rules=(),
    )
    return event.model_copy(update=changes)


def test_each_kind_arrives_once_with_what_it_says(served: Served, sink: Sink, tmp_path: Path) -> None:
    hostile = 'ckpt "x"\n{{ 7 * 7 }} <!channel> `$(id)`'
    config = alerting(
        tmp_path, webhook={"secret": "env:HOOK"}, apprise={"secret": "env:OTHER", "events": ["regression", "failed"]}
    )
    secrets = {"HOOK": f"http://{sink.place}/hook?token=s3cret", "OTHER": f"json://{sink.place}/apprise"}
    served.deploy(config, secrets)
    again = served.deploy(config, secrets)
    assert {each["change"] for each in again} == {"unchanged"}
    common: dict[str, Any] = {
        "global_step": 400,
        "run_id": "r7",
        "dataset": "gsm8k",
        "link": "/out/runs/r7/report.html",
    }
    events = [
        drift(hostile),
        EvaluationFailed(checkpoint="c1", message="replica 0 died", error="WorkerError", **common),
        ConsistencyViolated(checkpoint="c2", message="replica 1 differs", replicas=(1,), consequence="fail", **common),
        RegressionDetected(
            checkpoint="c3",
            message="accuracy 0.50 against 0.61 of step 300",
            metric="accuracy",
            value=0.5,
            against="best",
            against_run_id="r6",
            against_checkpoint="c0",
            against_global_step=300,
            against_value=0.61,
            difference=-0.11,
            ci_low=-0.15,
            ci_high=-0.07,
            p_value=0.001,
            minimum_effect=0.02,
            since="step 300",
            **common,
        ),
        GenerationDegenerate(
            checkpoint="c4",
            message="81% stopped by length",
            share_stopped_by_length=0.81,
            share_without_answer=0.1,
            share_repeating=0.0,
            signs=("stopped_by_length",),
            since="step 400",
            row="e/t/p4",
            **common,
        ),
    ]
    announce(served, config, *events)
    hook = "/hook?token=s3cret"
    wait_for(lambda: len(sink.bodies(hook)) >= len(events), "alerts", timeout_s=ARRIVAL_S)
    wait_for(lambda: len(sink.bodies("/apprise")) >= 2, "alerts by apprise", timeout_s=ARRIVAL_S)
    # a retry, or a resumed run
    announce(served, config, *(event.model_copy(update={"message": "said again"}) for event in events))
    time.sleep(QUIET_S)
    assert (len(sink.bodies(hook)), len(sink.bodies("/apprise"))) == (len(events), 2)

    (regression,) = (json.loads(body) for body in sink.bodies(hook, "0.61"))
    assert regression["title"] == "Milepost: Regression: c3"
    for words in (
        "accuracy 0.50 against 0.61 of step 300",
        "checkpoint: c3 (step 400)",
        "dataset: gsm8k",
        "since: step 300",
        "experiment: served/trial0",
        "see: /out/runs/r7/report.html",
    ):
        assert words in regression["message"].splitlines()
    (told,) = (json.loads(body) for body in sink.bodies(hook, "gsm8k: num_prompt_tokens"))
    assert 'ckpt "x" {{ 7 * 7 }} ‹!channel› `$(id)` (step 400)' in told["message"]  # data, not a template
    assert [body for body in sink.bodies("/apprise") if "replica 0 died" in body]


def test_a_letter_keeps_its_lines(served: Served, mailbox: Mailbox, tmp_path: Path) -> None:
    config = alerting(tmp_path, email={"secret": "env:MAIL"})
    port = mailbox.server_address[1]
    served.deploy(config, {"MAIL": f"mailto://127.0.0.1:{port}?from=milepost@example.org&to=team@example.org"})
    announce(served, config, drift(current_version="v8"))
    (letter,) = wait_for(lambda: mailbox.letters, "letter", timeout_s=ARRIVAL_S)
    parsed = message_from_string(letter)
    assert parsed["To"]
    assert parsed["Subject"]
    parts = [part.get_payload(decode=True) for part in parsed.walk() if part.get_content_type() == "text/plain"]
    lines = b"".join(part for part in parts if isinstance(part, bytes)).decode().splitlines()
    assert "checkpoint: ckpt-400 (step 400)" in lines


def test_silence_is_kept_and_a_switched_off_kind_is_not_sent(served: Served, sink: Sink, tmp_path: Path) -> None:
    config = alerting(tmp_path, webhook={"secret": "env:HOOK"}, on=["drift"], silence_hours=1)
    served.deploy(config, {"HOOK": f"http://{sink.place}/hook"})
    failed = EvaluationFailed(
        checkpoint="c", global_step=1, message="died", run_id="r8", dataset="gsm8k", error="WorkerError"
    )
    announce(served, config, drift(current_version="v4"))
    wait_for(lambda: sink.bodies("/hook"), "alert", timeout_s=ARRIVAL_S)
    announce(served, config, drift(current_version="v5"), failed)
    time.sleep(QUIET_S)
    assert len(sink.bodies("/hook")) == 1


def test_a_message_waits_for_a_target_that_answers_500_and_harms_nobody_else(
    served: Served, sink: Sink, tmp_path: Path
) -> None:
    config = alerting(tmp_path, webhook={"secret": "env:HOOK"}, apprise={"secret": "env:OTHER"})
    served.deploy(config, {"HOOK": f"http://{sink.place}/broken", "OTHER": f"json://{sink.place}/apprise"})
    announce(served, config, drift(current_version="v6"))
    assert (len(sink.bodies("/apprise")), len(sink.bodies("/broken"))) == (1, 1)
    looked = served.milepost("doctor", "--quick", "--json", "--fileroot", str(tmp_path / "out"))
    (waiting,) = (check for check in json.loads(looked.stdout)["checks"] if check["name"] == "alerts")
    assert "waits for webhook: 1 attempts, the webhook answers 500" in waiting["detail"]
    sink.is_mended = True
    wait_for(lambda: len(sink.bodies("/broken")) == 2, "second attempt, by the deployment follow-up")
    wait_for(lambda: not list((tmp_path / "out" / "alerts").glob("*.[ws]*ing")), "entry")
    announce(served, config, drift(current_version="v6"))
    assert (len(sink.bodies("/apprise")), len(sink.bodies("/broken"))) == (1, 2)


def test_a_target_that_is_taken_out_is_forgotten_with_its_secret(served: Served, sink: Sink, tmp_path: Path) -> None:
    config = alerting(tmp_path, webhook={"secret": "env:HOOK"})
    served.deploy(config, {"HOOK": f"http://{sink.place}/hook"})
    removed = [each for each in served.deploy(CONFIG) if each["change"] == "removed"]
    assert [(each["kind"], each["name"]) for each in removed] == [("alert target", "milepost-alert-hook")]
    blocks = served.ask("block_documents/filter", {})
    assert not [block for block in blocks if block["name"] == "milepost-alert-hook"]
    announce(served, config, drift(current_version="v7"))
    time.sleep(QUIET_S)
    assert sink.bodies("/hook") == []


def test_a_deploy_without_options_keeps_who_is_told_also_of_a_checkpoint_that_is_gone(
    served: Served, sink: Sink, tmp_path: Path
) -> None:
    config = alerting(tmp_path, webhook={"secret": "env:HOOK"})
    served.deploy(config, {"HOOK": f"http://{sink.place}/hook"})
    done = served.milepost("deploy", "--root", str(tmp_path), "--at-once", "3")
    assert done.returncode == 0, done.stderr
    again = served.milepost("deploy", "--json")
    assert again.returncode == 0, again.stderr
    assert {each["change"] for each in json.loads(again.stdout)["registrations"]} == {"unchanged"}
    reconcile = served.ask("deployments/name/reconcile/reconcile", method="GET")
    (schedule,) = reconcile["schedules"]
    assert (reconcile["parameters"]["root"], schedule["active"]) == (str(tmp_path.resolve()), True)
    queue = served.ask("work_pools/milepost/queues/evaluations", method="GET")
    assert queue["concurrency_limit"] == 3
    path = f"deployments/{reconcile['id']}/schedules/{schedule['id']}"
    served.ask(path, {"active": False}, method="PATCH")
    run = served.start("evaluate", checkpoint_path=str(tmp_path / "gone"))
    assert served.finish(run) == "FAILED"
    # an earlier test's message may have waited for this target and arrive as well
    (told,) = wait_for(lambda: sink.bodies("/hook", "gone"), "alert", timeout_s=ARRIVAL_S)
    assert json.loads(told)["title"] == f"Milepost: Evaluation failed: {tmp_path / 'gone'}"[:120]
    assert f"run: {served.page}" in json.loads(told)["message"]
    # parameters that an upgrade has made invalid: the run fails before a line of Milepost, which only the server sees
    stale = served.ask("deployments/name/evaluate/evaluate", method="GET")
    served.ask(f"deployments/{stale['id']}", {"enforce_parameter_schema": False}, method="PATCH")
    wrong = config | {"actor": {"path": "was-valid"}, "gconfig": {"n_sampels": 1}}
    assert served.finish(served.start("evaluate", config=wrong)) == "FAILED"
    wait_for(lambda: sink.bodies("/hook", "the parameters of the flow run are not valid"), "alert")
    served.ask(f"deployments/{stale['id']}", {"enforce_parameter_schema": True}, method="PATCH")
    assert served.milepost("deploy", "eval.yaml", "--at-once", "1", variables={"HOOK": "http://x"}).returncode == 0
    served.deploy(CONFIG)


def test_a_failure_is_told_again_after_an_evaluation_that_completed(served: Served, sink: Sink, tmp_path: Path) -> None:
    config = alerting(tmp_path, webhook={"secret": "env:HOOK"}, on=["failed"])
    served.deploy(config, {"HOOK": f"http://{sink.place}/hook"})
    checkpoint = tmp_path / "checkpoint"

    def end_of_run() -> str:
        return served.finish(served.start("evaluate", checkpoint_path=str(checkpoint)))

    assert [end_of_run(), end_of_run()] == ["FAILED", "FAILED"]
    checkpoint.symlink_to(CONFIG["actor"]["path"])
    assert end_of_run() == "COMPLETED"
    assert len(sink.bodies("/hook", str(checkpoint))) == 1
    checkpoint.unlink()
    assert end_of_run() == "FAILED"
    wait_for(lambda: len(sink.bodies("/hook", str(checkpoint))) == 2, "second alert", timeout_s=ARRIVAL_S)
    served.deploy(CONFIG)


def test_no_address_is_kept_outside_the_server(served: Served, sink: Sink, tmp_path: Path) -> None:
    config = alerting(tmp_path, webhook={"secret": "env:HOOK"})
    served.deploy(config, {"HOOK": f"http://{sink.place}/hook?token=s3cret-of-mine"})
    assert "s3cret-of-mine" not in json.dumps(served.deployment("evaluate"))
    run = served.start("evaluate")
    assert served.finish(run) == "COMPLETED"
    files = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if b"s3cret-of-mine" in path.read_bytes()]
    database = served.folder / "prefect" / "prefect.db"
    assert b"s3cret-of-mine" not in database.read_bytes()
    served.deploy(CONFIG)
