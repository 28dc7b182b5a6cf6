"""Deployments on a real server with a real worker: registered once, started by hand and by event, cancelled at once."""

import base64
import http.server
import json
import logging
import os
import signal
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import prefect
import psutil
import pytest
import yaml
from prefect.client.orchestration import SyncPrefectClient
from prefect.client.schemas.objects import DeploymentSchedule
from prefect.client.schemas.responses import DeploymentResponse
from prefect.client.schemas.schedules import IntervalSchedule

from flows.orchestration.deployments import PREFECT_FILE, Wanted, complete_spec, read_deployments
from flows.orchestration.work_pools import Pool, ensure_closed_pool
from infra.devcluster.cluster import DevCluster
from schemas.errors import ConfigError
from schemas.events import EvaluationFailed
from tasks.alerts.ledger import read_ledger
from tests.support.evaluation_commands import SUMS, ended
from tests.support.prefect_server import CONFIG, Served, free_port, serve, wait_for
from tests.support.slurm_cluster import ask

pytestmark = [pytest.mark.needs_prefect, pytest.mark.needs_engine, pytest.mark.timeout(1800)]

SLOW = {"engine": {"stand_in": {"step_s": 0.5}}, "gconfig": {"max_new_tokens": 2000, "min_new_tokens": 1000}}
"""Generates for minutes."""
CANCEL_S = 90.0
"""Longest time from a cancel to the end of all workers and jobs, seconds on a quiet machine; they would go on for
minutes."""


def test_a_second_deploy_changes_nothing_and_a_third_only_what_differs(served: Served) -> None:
    first = served.deploy(CONFIG)
    again = served.deploy(CONFIG)
    assert {each["change"] for each in again} == {"unchanged"}
    assert [(each["name"], each["id"]) for each in again] == [(each["name"], each["id"]) for each in first]
    names = {each["name"] for each in again if each["kind"] == "deployment"}
    assert names >= {"evaluate/evaluate", "evaluate/evaluate-on-landing", "evaluate/evaluate-recurring"}

    changed = served.deploy(CONFIG | {"seed": 7})
    assert {each["change"] for each in changed if each["kind"] == "deployment"} == {"updated"}
    assert {each["change"] for each in changed if each["kind"] != "deployment"} == {"unchanged"}
    assert [each["id"] for each in changed] == [each["id"] for each in first]
    assert served.deployment("evaluate")["parameters"]["config"]["seed"] == 7
    served.deploy(CONFIG)


@pytest.mark.parametrize(
    ("root", "wanted_root", "is_active", "then"),
    [
        ("checkpoints", None, False, ("checkpoints", False)),
        ("/ck", None, True, ("/ck", True)),
        ("/ck", None, False, ("/ck", False)),
        ("/ck", "/ck", False, ("/ck", False)),
        ("/ck", "/ck", True, ("/ck", True)),
        ("checkpoints", "/ck", False, ("/ck", True)),
        ("/ck", "/other", False, ("/other", True)),
    ],
)
def test_what_is_not_said_again_stays_as_it_is_held(
    root: str, wanted_root: str | None, is_active: bool, then: tuple[str, bool]
) -> None:
    (spec,) = (each for each in read_deployments() if each.name == "reconcile")
    schedule = DeploymentSchedule(
        slug="every-five-minutes",
        active=is_active,
        schedule=IntervalSchedule.model_validate({"interval": 300}),
    )
    parameters = {"config": CONFIG, "root": root}
    held = DeploymentResponse.model_validate(
        {"name": "reconcile", "flow_id": uuid.uuid4(), "parameters": parameters, "schedules": [schedule]}
    )
    wanted = Wanted(root=None if wanted_root is None else Path(wanted_root), gpus=8)
    pool = Pool("milepost", "process", is_new=False)
    done = complete_spec(spec, wanted, pool, held)
    assert (done.parameters["root"], done.schedules[0].active) == then
    assert done.parameters["config"] == CONFIG
    first = complete_spec(spec, wanted, pool, None)
    assert (first.parameters["root"], first.schedules[0].active) == (wanted_root or "checkpoints", bool(wanted_root))


def test_schedules_are_off_and_what_people_edit_stays(served: Served) -> None:
    served.deploy(CONFIG)
    before = served.deployment("evaluate-recurring")
    path = f"deployments/{before['id']}"
    schedules = {each["slug"]: each for each in before["schedules"]}
    assert {slug: each["active"] for slug, each in schedules.items()} == {"nightly": False, "every-six-hours": False}
    assert (schedules["nightly"]["schedule"]["cron"], schedules["every-six-hours"]["schedule"]["interval"]) == (
        "0 2 * * *",
        21600.0,
    )
    # as the UI does: one is switched on and edited, one deleted, one made; a tag and a variable are added
    edited = {"active": True, "schedule": {"cron": "0 5 1 1 *", "timezone": "Europe/Berlin"}}
    served.ask(f"{path}/schedules/{schedules['nightly']['id']}", edited, method="PATCH")
    served.ask(f"{path}/schedules/{schedules['every-six-hours']['id']}", method="DELETE")
    (made,) = served.ask(f"{path}/schedules", [{"active": False, "schedule": {"cron": "0 7 1 1 *", "timezone": "UTC"}}])
    variables = before["job_variables"]
    mine = {"tags": ["milepost", "mine"], "job_variables": variables | {"env": variables["env"] | {"MINE": "1"}}}
    served.ask(path, mine, method="PATCH")
    for config in (CONFIG, CONFIG | {"seed": 8}):
        served.deploy(config)
        held = served.deployment("evaluate-recurring")
        found = {each["id"]: each for each in held["schedules"]}
        assert set(found) == {schedules["nightly"]["id"], made["id"]}
        nightly = found[schedules["nightly"]["id"]]
        assert (nightly["active"], nightly["schedule"]["cron"]) == (True, "0 5 1 1 *")
        assert (held["tags"], held["job_variables"]["env"]["MINE"]) == (["milepost", "mine"], "1")
    for each in found:
        served.ask(f"{path}/schedules/{each}", {"active": False}, method="PATCH")


def test_a_value_that_cannot_be_is_refused_with_its_reason(served: Served) -> None:
    deployment = served.deployment("evaluate")
    parameters = {"config": CONFIG | {"rollout": {"setup_timeout": -1}}}
    status, reason = served.refusal(f"deployments/{deployment['id']}/create_flow_run", {"parameters": parameters})
    assert status == 409
    assert "setup_timeout" in reason
    parameters = {"config": CONFIG | {"rollout": {"backend": "vllm:banana"}}}
    status, reason = served.refusal(f"deployments/{deployment['id']}/create_flow_run", {"parameters": parameters})
    assert (status, "vllm:banana" in reason) == (409, True)
    parameters = {"config": CONFIG | {"gconfg": {}}}
    status, reason = served.refusal(f"deployments/{deployment['id']}/create_flow_run", {"parameters": parameters})
    assert status == 409
    assert "gconfg" in reason


@pytest.mark.parametrize(
    ("change", "reason"),
    [({"rollout": {"backend": "vllm:d65537"}}, "vllm:d65537"), ({"actor": {"path": "/no/such/ck"}}, "/no/such/ck")],
)
def test_a_users_mistake_ends_the_run_with_its_reason_and_no_traceback(
    served: Served, change: dict[str, object], reason: str
) -> None:
    run = served.start("evaluate", config=CONFIG | change)
    assert served.finish(run) == "FAILED"
    assert reason in served.state(run)["message"]
    errors = wait_for(lambda: [each["message"] for each in served.logs(run) if each["level"] == logging.ERROR], "error")
    assert [each for each in errors if reason not in each or "Traceback" in each] == []


def test_a_checkpoint_that_lands_is_evaluated_once(served: Served) -> None:
    """Announced by an event, and by the same one again; its log lines and findings are on the run's page."""
    served.deploy(CONFIG)
    path = CONFIG["actor"]["path"]
    event = {
        "id": str(uuid.uuid5(uuid.NAMESPACE_URL, path)),
        "occurred": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "event": "milepost.checkpoint.landed",
        "resource": {"prefect.resource.id": "milepost.checkpoint.demo"},
        "payload": {"checkpoint": path, "global_step": 3},
    }
    watched = event | {"id": str(uuid.uuid4()), "resource": {"prefect.resource.id": "milepost.watched-checkpoint.demo"}}
    for each in (event, event, watched):
        served.ask("events", [each])
    (run,) = wait_for(lambda: served.runs("evaluate-on-landing"), "run")
    assert run["parameters"]["checkpoint_path"] == path
    assert served.finish(run["id"]) == "COMPLETED"
    (named,) = served.runs("evaluate-on-landing")
    assert named["name"] == f"{'/'.join(Path(path).parts[-3:])} on {SUMS} (served/trial0)"
    lines = wait_for(
        lambda: [line for line in served.logs(run["id"]) if "samples to make" in line["message"]], "log line"
    )
    assert lines[0]["name"].startswith("tasks.")
    artifacts = served.artifacts(run["id"])
    assert {"summary", "metrics", "drift", "consistency", "replica-0"} <= set(artifacts)
    assert artifacts["drift"]["key"] == "drift-served--sums"
    assert "24 of 24 samples scored" in artifacts["summary"]["data"]
    served.ask("events", [event])
    time.sleep(3)
    assert len(served.runs("evaluate-on-landing")) == 1


def status_of(
    url: str, body: Mapping[str, object] | None = None, headers: Mapping[str, str] | None = None, method: str = "POST"
) -> tuple[int, Mapping[str, str]]:
    """Ask as anybody can, without the login; return status and headers."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json", **(headers or {})}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return reply.status, dict(reply.headers)
    except urllib.error.HTTPError as exc:
        return exc.code, dict(exc.headers)


def test_nobody_without_the_login_starts_anything_or_reads_a_secret(served: Served) -> None:
    """Neither another user of the machine, nor a page of another origin, nor one whose name leads to this machine."""
    deployment = served.deployment("evaluate")
    before = len(served.runs("evaluate"))
    start = f"{served.api}/deployments/{deployment['id']}/create_flow_run"
    secrets = f"{served.api}/block_documents/filter"
    wrong = {"Authorization": f"Basic {base64.b64encode(b'milepost:guess').decode()}"}
    for headers in ({}, wrong, {"Content-Type": "text/plain"}, {"Origin": "http://evil.example"}):
        assert status_of(start, {"job_variables": {"command": "touch x"}}, headers)[0] == 401
        assert status_of(secrets, {"include_secrets": True}, headers)[0] == 401
    for each in ("http://evil.example", served.page):
        asked = {"Origin": each, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "*"}
        status, said = status_of(start, None, asked, "OPTIONS")
        assert (status, "access-control-allow-origin" in {name.lower() for name in said}) == (400, False)
    known = {"Authorization": f"Basic {base64.b64encode(str(served.login).encode()).decode()}"}
    port = served.api.rsplit(":", 1)[1].removesuffix("/api")
    hosts = {"evil.example": 400, f"evil.example:{port}": 400, f"localhost:{port}": 200, "localhost": 200}
    assert {host: status_of(secrets, {}, {**known, "Host": host})[0] for host in hosts} == hosts
    assert len(served.runs("evaluate")) == before
    home = Path(served.environment["PREFECT_HOME"])
    hidden = [*home.glob("*.login"), *home.glob("prefect.db*")]
    assert len(hidden) >= 2
    assert [path.name for path in hidden if path.stat().st_mode & 0o077] == []


@pytest.mark.parametrize("variable", ["command", "comand", "command.x"])
def test_a_run_cannot_name_its_program(served: Served, tmp_path: Path, variable: str) -> None:
    deployment = served.deployment("evaluate")
    wanted = {"parameters": {"config": CONFIG}, "job_variables": {variable: f"touch {tmp_path / 'ran'}"}}
    status, reason = served.refusal(f"deployments/{deployment['id']}/create_flow_run", wanted)
    assert (status, variable in reason) == (422, True), reason


def test_a_run_of_no_deployment_cannot_either(served: Served, tmp_path: Path) -> None:
    """The server looks at nothing that such a run asks for."""
    run = {
        "flow_id": served.ask("flows/", {"name": "evaluate"})["id"],
        "work_pool_name": "milepost",
        "state": {"type": "SCHEDULED", "state_details": {"scheduled_time": "2026-01-01T00:00:00Z"}},
        "job_variables": {"command": f"touch {tmp_path / 'ran'}"},
    }
    assert served.finish(served.ask("flow_runs/", run)["id"]) in ("CRASHED", "FAILED")
    assert not (tmp_path / "ran").exists()


def test_an_open_pool_of_an_earlier_version_is_closed(served: Served) -> None:
    """Its deployments, too, have named their command."""
    served.deploy(CONFIG)
    closed = served.ask("work_pools/milepost", method="GET")["base_job_template"]
    deployment = served.deployment("evaluate")
    opened = closed["variables"] | {"additionalProperties": True}
    opened["properties"] = opened["properties"] | {"command": {"type": "string"}}
    served.ask("work_pools/milepost", {"base_job_template": closed | {"variables": opened}}, method="PATCH")
    named = deployment["job_variables"] | {"command": "true"}
    served.ask(f"deployments/{deployment['id']}", {"job_variables": named}, method="PATCH")
    with SyncPrefectClient(served.api, auth_string=served.login) as client:
        ensure_closed_pool(client, "milepost")
    assert served.ask("work_pools/milepost", method="GET")["base_job_template"] == closed
    assert served.deployment("evaluate")["job_variables"] == deployment["job_variables"]


def test_another_experiment_is_registered_beside_the_first(served: Served, tmp_path: Path) -> None:
    before = updates(served)
    other = CONFIG | {"experiment_name": "Other_7B"}
    config, root = str(tmp_path / "other.yaml"), str(tmp_path)
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(other), "utf-8")
    refused = served.milepost("deploy", config)
    assert (refused.returncode, "experiment 'served'" in refused.stderr) == (2, True), refused.stderr
    assert "add --name other-7b" in refused.stderr
    done = served.milepost("deploy", config, "--name", "other-7b", "--root", root, "--json")
    assert done.returncode == 0, done.stderr
    changes = {each["name"]: each["change"] for each in json.loads(done.stdout)["registrations"]}
    created = {name for name in changes if "other-7b" in name}
    assert {name for name, change in changes.items() if change != "unchanged"} == created
    names = {name for name in changes if name.startswith(("evaluate/", "reconcile/", "follow-up/"))}
    assert names == {
        "evaluate/evaluate.other-7b",
        "evaluate/evaluate-on-landing.other-7b",
        "evaluate/evaluate-recurring.other-7b",
        "reconcile/reconcile.other-7b",
        "follow-up/follow-up",
        "follow-up/follow-up.other-7b",
    }
    after = updates(served)
    assert {name: after[name] for name in before} == before
    assert served.deployment("evaluate.other-7b")["parameters"]["config"]["experiment_name"] == "Other_7B"
    for name in names - {"follow-up/follow-up"}:
        found = served.ask(f"deployments/name/{name}", method="GET")["id"]
        served.ask(f"deployments/{found}", method="DELETE")
    for each in served.ask("automations/filter"):
        if each["name"].endswith("(other-7b)"):
            assert each["trigger"]["match"] == {"prefect.resource.id": f"milepost.checkpoint.{tmp_path.resolve()}/*"}
            served.ask(f"automations/{each['id']}", method="DELETE")


def updates(served: Served) -> dict[str, str]:
    """When each deployment was changed last."""
    return {each["name"]: each["updated"] for each in served.ask("deployments/filter")}


@contextmanager
def cancelling(served: Served, run: str) -> Generator[None]:
    """Ask for the end of a run; what is looked for after it happens meanwhile, and the run ends whatever is found."""
    began = time.monotonic()
    try:
        served.ask(f"flow_runs/{run}/set_state", {"state": {"type": "CANCELLING"}, "force": True})
        yield
        print(f"gone {time.monotonic() - began:.1f} s after the cancel")
        # a process that ends before it has said so is taken for crashed, until the server has looked again
        wait_for(lambda: served.state(run)["type"] == "CANCELLED", "cancelled run")
    finally:
        with cancelling_at_the_end(served, run):
            pass


@contextmanager
def cancelling_at_the_end(served: Served, run: str) -> Generator[None]:
    """Have the run over after the block: one that went on would hold the queue of all later tests."""
    try:
        yield
    finally:
        served.ask(f"flow_runs/{run}/set_state", {"state": {"type": "CANCELLED"}, "force": True})
        for process in served.workers():
            with suppress(psutil.NoSuchProcess):
                process.kill()


def test_a_cancel_ends_the_workers_at_once(served: Served) -> None:
    run = served.start("evaluate", config=CONFIG | SLOW | {"rollout": {"backend": "vllm:d2"}})
    workers = wait_for(lambda: found if len(found := served.workers()) == 2 else None, "workers")
    # they are started before the flow, which heeds a cancel
    wait_for(lambda: any("samples to make" in line["message"] for line in served.logs(run)), "workers at work")
    wanted_at = datetime.now(UTC)
    with cancelling(served, run):
        assert ended(workers, CANCEL_S)
    told = [(each.event, each.occurred_at) for each in read_ledger(served.folder / "milepost-out" / "alerts")]
    assert not [when for event, when in told if event == EvaluationFailed.event and when > wanted_at]


def test_a_suspended_run_generates_no_further(served: Served) -> None:
    run = served.start("evaluate", config=CONFIG | SLOW)
    workers = wait_for(served.workers, "worker")
    wait_for(lambda: any("samples to make" in line["message"] for line in served.logs(run)), "worker at work")
    later = {"pause_reschedule": True, "pause_timeout": "2100-01-01T00:00:00Z"}
    with cancelling_at_the_end(served, run):
        suspended = {"type": "PAUSED", "name": "Suspended", "state_details": later}
        served.ask(f"flow_runs/{run}/set_state", {"state": suspended})
        assert ended(workers, CANCEL_S)
        assert served.state(run)["name"] == "Suspended"


@pytest.mark.needs_slurm
def test_a_cancel_ends_the_jobs_of_a_cluster(served: Served, cluster: DevCluster) -> None:
    slurm = {"scheduler": {"type": "slurm", "slurm": {"env": {}}}, "rollout": {"backend": "vllm:d2"}}
    deployment = served.deployment("evaluate")
    variables = {"env": deployment["job_variables"]["env"] | dict(cluster.environment())}
    body = {"parameters": {"config": CONFIG | SLOW | slurm}, "job_variables": variables}
    run = served.ask(f"deployments/{deployment['id']}/create_flow_run", body)["id"]
    wait_for(lambda: ask(cluster, "squeue", "-h", "-t", "R").count("\n") >= 2, "running jobs")
    with cancelling(served, run):
        wait_for(lambda: not ask(cluster, "squeue", "-h", "-t", "PD,R"), "empty queue", timeout_s=CANCEL_S)


def test_bad_input_at_deploy_is_refused_and_nothing_is_registered(served: Served, tmp_path: Path) -> None:
    before = updates(served)
    config = tmp_path / "bad.yaml"
    config.write_text("experiment_name: served\nactor: {path: x}\nvalid_dataset: {path: y}\ngconfig: {n_samples: 0}\n")
    refused = served.milepost("deploy", str(config))
    assert (refused.returncode, "n_samples" in refused.stderr) == (2, True), refused.stderr
    alerts = "alerts: {slack: {secret: 'env:NO_SUCH_VARIABLE'}}\n"
    config.write_text(f"experiment_name: served\nactor: {{path: x}}\nvalid_dataset: {{path: y}}\n{alerts}")
    refused = served.milepost("deploy", str(config))
    assert (refused.returncode, "NO_SUCH_VARIABLE is not set" in refused.stderr) == (2, True), refused.stderr
    config.write_text("experiment_name: served\nactor: {path: x}\nvalid_dataset: {path: no/such/data.jsonl}\n")
    refused = served.milepost("deploy", str(config))
    assert (refused.returncode, "'no/such/data.jsonl' does not exist" in refused.stderr) == (2, True), refused.stderr
    refused = served.milepost("deploy", "--pool", "milepost", "--work-pool-type", "kubernetes")
    assert (refused.returncode, "is of type 'process'" in refused.stderr) == (2, True), refused.stderr
    refused = served.milepost("deploy", variables={"PREFECT_API_URL": f"http://127.0.0.1:{free_port()}/api"})
    assert (refused.returncode, "no Prefect server answers" in refused.stderr) == (2, True), refused.stderr
    refused = served.milepost("deploy", variables={"PREFECT_API_URL": ""})
    assert (refused.returncode, "milepost server" in refused.stderr) == (2, True), refused.stderr
    (tmp_path / "file").write_text("")
    for root, reason in (("no/such/folder", "there is no such folder"), (str(tmp_path / "file"), "this is a file")):
        refused = served.milepost("deploy", "--root", root)
        assert (refused.returncode, reason in refused.stderr) == (2, True), refused.stderr
    assert updates(served) == before


def test_what_a_cluster_would_refuse_is_neither_deployed_nor_watched(
    served: Served, engine_python: Path, tmp_path: Path
) -> None:
    before = updates(served)
    (tmp_path / "sinfo").write_text("#!/bin/sh\necho 'n1|main*|up|1:00:00|4|(null)|idle'\n")
    (tmp_path / "sinfo").chmod(0o755)
    (tmp_path / "ck").mkdir()
    wrong = {"type": "slurm", "slurm": {"client": "cli", "partition": "gpuu"}}
    elsewhere = {"scheduler": wrong, "engine": CONFIG["engine"] | {"python": str(engine_python)}}
    (tmp_path / "eval.yaml").write_text(yaml.safe_dump(CONFIG | elsewhere))
    variables = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    config, root = str(tmp_path / "eval.yaml"), str(tmp_path / "ck")
    for words in (["deploy", config], ["watch", config, root, "watch.launcher=deployment"]):
        refused = served.milepost(*words, variables=variables)
        assert refused.returncode == 2, refused.stderr
        assert "no partition 'gpuu'; it has: main" in refused.stderr
    assert updates(served) == before


class Forbidding(http.server.BaseHTTPRequestHandler):
    """A server that holds nothing yet, and gives no secret away."""

    def do_GET(self) -> None:
        status = 200 if "version" in self.path else 403 if "block" in self.path else 404
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(prefect.__version__).encode())

    def log_message(self, format: str, *_: object) -> None:  # noqa: A002 - the name of the class above
        pass


def test_a_secret_that_the_server_withholds_is_named(served: Served, tmp_path: Path) -> None:
    (tmp_path / "eval.yaml").write_text(yaml.safe_dump(CONFIG | {"alerts": {"slack": {"secret": "block:team"}}}))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Forbidding) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        variables = {"PREFECT_API_URL": f"http://127.0.0.1:{server.server_port}/api"}
        refused = served.milepost("deploy", str(tmp_path / "eval.yaml"), variables=variables)
        server.shutdown()
    assert (refused.returncode, "403 Forbidden" in refused.stderr) == (2, True), refused.stderr
    assert "Traceback" not in refused.stderr


@pytest.fixture
def back_home(served: Served) -> Iterator[None]:
    """Have the deployments in their own pool again, whatever becomes of the test."""
    yield
    back = served.milepost("deploy", "eval.yaml", "--pool", "milepost", "--root", str(served.folder))
    assert back.returncode == 0, back.stderr
    reconcile = served.ask("deployments/name/reconcile/reconcile", method="GET")
    for each in reconcile["schedules"]:  # a root that is new switches them on
        served.ask(f"deployments/{reconcile['id']}/schedules/{each['id']}", {"active": False}, method="PATCH")


@pytest.mark.usefixtures("back_home")
def test_a_deploy_without_options_moves_nothing(served: Served, tmp_path: Path) -> None:
    """Neither to another pool nor to the folder where it is given."""
    served.deploy(CONFIG)
    done = served.milepost("deploy", "--pool", "gpu")
    assert done.returncode == 0, done.stderr
    elsewhere = replace(served, folder=tmp_path)
    again = elsewhere.milepost("deploy", "--gpus", "0", "--json")
    assert again.returncode == 0, again.stderr
    assert {each["change"] for each in json.loads(again.stdout)["registrations"]} == {"unchanged"}
    for name in ("evaluate/evaluate", "reconcile/reconcile"):
        held = served.ask(f"deployments/name/{name}", method="GET")
        assert (held["work_pool_name"], held["job_variables"]["working_dir"]) == ("gpu", str(served.folder))
    elsewhere.deploy(CONFIG)
    assert served.deployment("evaluate")["job_variables"]["working_dir"] == str(tmp_path)


@pytest.mark.usefixtures("back_home")
def test_pools_of_other_types_are_made(served: Served) -> None:
    """The folders of this machine mean nothing to them."""
    done = served.milepost("deploy", "--pool", "cluster", "--work-pool-type", "kubernetes", "--at-once", "5", "--json")
    assert done.returncode == 0, done.stderr
    done = served.milepost("deploy", "--root", "/mnt/elsewhere/checkpoints")
    assert done.returncode == 0, done.stderr
    reconcile = served.ask("deployments/name/reconcile/reconcile", method="GET")
    assert (reconcile["work_pool_name"], reconcile["parameters"]["root"]) == ("cluster", "/mnt/elsewhere/checkpoints")
    refused = served.milepost("deploy", "--root", "/mnt/elsewhere/checkpoints", "--pool", "milepost")
    assert (refused.returncode, "there is no such folder" in refused.stderr) == (2, True), refused.stderr
    pool = served.ask("work_pools/cluster", method="GET")
    assert pool["type"] == "kubernetes"
    assert "working_dir" not in served.deployment("evaluate")["job_variables"]
    queue = served.ask("work_pools/cluster/queues/evaluations", method="GET")
    assert queue["concurrency_limit"] == 5


def test_a_second_server_is_refused_and_ctrl_c_ends_both_parts(served: Served, tmp_path: Path) -> None:
    port = served.api.rsplit(":", 1)[1].removesuffix("/api")
    taken = served.milepost("server", "--port", port)
    assert (taken.returncode, f"port {port}" in taken.stderr) == (2, True), taken.stderr
    twice = served.milepost("server", "--port", str(free_port()))
    assert (twice.returncode, "another `milepost server`" in twice.stderr) == (2, True), twice.stderr
    (tmp_path / "file").write_text("")
    for home in ("file", "file/below"):
        nowhere = served.milepost(
            "server", "--port", str(free_port()), variables={"PREFECT_HOME": str(tmp_path / home)}
        )
        assert (nowhere.returncode, "set PREFECT_HOME" in nowhere.stderr) == (2, True), nowhere.stderr
    with serve(tmp_path) as other:
        # the worker is started once the page is there, and what earlier ones have left is ended
        wait_for(lambda: len(psutil.Process(other.process.pid).children()) == 2, "server and worker")
        everything = psutil.Process(other.process.pid).children(recursive=True)
        other.process.send_signal(signal.SIGINT)
        assert other.process.wait(180) == 0
        assert ended(everything, 30)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"cron": "every night"}, "'nightly' \\(every night, UTC\\) is no schedule"),
        ({"timezone": "Atlantis"}, "Atlantis"),
        ({"activ": True}, "activ"),
    ],
)
def test_a_schedule_that_cannot_be_is_refused(tmp_path: Path, change: dict[str, object], words: str) -> None:
    tree = yaml.safe_load(PREFECT_FILE.read_text("utf-8"))
    tree["deployments"][2]["schedules"][0].update(change)
    path = tmp_path / "prefect.yaml"
    path.write_text(yaml.safe_dump(tree), "utf-8")
    with pytest.raises(ConfigError, match=words):
        read_deployments(path)
