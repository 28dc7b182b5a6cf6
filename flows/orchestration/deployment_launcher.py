"""Evaluations as flow runs of the deployment `evaluate`: they outlive the watcher, and are found again by their name.

A flow run says how it ended only where somebody is left to say so. Of a run whose process and worker are both gone the
server says `Running` for ever; here, the signs of life of the evaluation itself decide.
"""

import logging
import re
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import UUID

import httpx
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.objects import FlowRun, State, StateType
from prefect.client.schemas.responses import DeploymentResponse
from prefect.exceptions import ObjectNotFound, PrefectHTTPStatusError
from prefect.states import Cancelled, Crashed

from flows.orchestration.named_deployments import deployment_name
from flows.orchestration.prefect_answers import is_refusal
from flows.orchestration.run_name import name_run
from flows.orchestration.server_access import use_login
from infra.ownership.run_ownership import OWNER_SILENCE_S
from schemas.errors import TransientError
from tasks.alerts.task import PREFECT_FAILURES
from tasks.watching.launching import (
    EndCause,
    EvaluationEnd,
    EvaluationOrder,
    LocalLauncher,
    RunningEvaluation,
    cause_of,
)
from tasks.watching.pulse import Pulse

_FLOW: Final = "evaluate"
_RAISED: Final = "Flow run encountered an exception: "
"""How the server begins to say which error ended a run."""
_STATUS: Final = re.compile(r"'(\d{3}) ")
"""The status in the words of an HTTP error."""
WORKING_DIR: Final = "working_dir"
"""Variable of a pool of processes: the folder that a run's relative paths start from."""
_NO_ANSWER: Final = (ValueError, *PREFECT_FAILURES)
"""What a call to a server raises that is away or refuses; a proxy's page in its place is no JSON."""
_POLL_S: Final = 2.0
_PENDING_S: Final = 900.0
"""Longest time from a worker that takes a run to the run's first word: on a cluster, an image is fetched meanwhile."""
_UNTAKEN_S: Final = 60.0
"""Seconds after which it is said that nobody has taken a run yet."""

logger = logging.getLogger(__name__)


def name_deployment(name: str) -> str:
    """Return the deployment that evaluates in the set of this name, with its flow."""
    return f"{_FLOW}/{deployment_name(_FLOW, name)}"


def find_deployment(name: str = "") -> DeploymentResponse | None:
    """Return the deployment that evaluates in the set of this name; None where the Prefect server has none.

    Raises:
        TransientError: the server does not answer.
    """
    use_login()  # a watcher may be there before its server
    try:
        with get_client(sync_client=True) as client:
            return client.read_deployment_by_name(name_deployment(name))
    except ObjectNotFound:
        return None
    except _NO_ANSWER as exc:
        raise TransientError(f"the Prefect server does not answer ({exc})") from exc


def shares_files(deployment: DeploymentResponse) -> bool:
    """Whether its runs see the files of this machine by the same names: those of a pool of processes do."""
    return WORKING_DIR in deployment.job_variables


def read_cause(state: "State[object]") -> EndCause:
    """Return why a run that ended in this state, and was not cancelled, did not complete."""
    if state.is_crashed():  # a kill, a preemption, a reboot: the server has no word of its process
        return "lost"
    error, _, words = (state.message or "").removeprefix(_RAISED).partition(":")
    name = error.rpartition(".")[2]
    return "away" if _is_of_server(name, words) else cause_of(name)


def _is_of_server(error: str, words: str) -> bool:
    """Whether an error of Prefect's client says that its server is away, or lets nobody in for now."""
    if error == PrefectHTTPStatusError.__name__:
        status = _STATUS.search(words)
        return status is None or not is_refusal(int(status[1]))
    kind: object = getattr(httpx, error, None)
    return isinstance(kind, type) and issubclass(kind, httpx.TransportError)


@dataclass(frozen=True, slots=True)
class AutoLauncher:
    """Runs evaluations by the deployment `evaluate` where the Prefect server has it, else on this machine."""

    name: str = ""
    """Set of deployments that it belongs to; empty for the set without a name."""

    def launch(self, order: EvaluationOrder) -> RunningEvaluation:
        """Start an attempt as is possible now.

        Raises:
            TransientError: the server does not answer, or does not take it.
            SetupError: a process cannot be started.
        """
        deployment = find_deployment(self.name)
        return LocalLauncher().launch(order) if deployment is None else _start_run(deployment, order)


@dataclass(frozen=True, slots=True)
class DeploymentLauncher:
    """Runs evaluations by the deployment `evaluate`."""

    name: str = ""
    """Set of deployments that it belongs to; empty for the set without a name."""

    def launch(self, order: EvaluationOrder) -> "DeploymentEvaluation":
        """Create the flow run of that name, unless it is there.

        Raises:
            TransientError: the server does not take it, or is not there.
        """
        deployment = find_deployment(self.name)
        if deployment is None:
            missing = name_deployment(self.name)
            raise TransientError(f"the Prefect server has no deployment {missing}; `milepost deploy` registers it")
        return _start_run(deployment, order)


def _start_run(deployment: DeploymentResponse, order: EvaluationOrder) -> "DeploymentEvaluation":
    # relative paths of the configuration are the watcher's, wherever `milepost deploy` was given
    variables = {WORKING_DIR: str(Path.cwd())} if shares_files(deployment) else None
    try:
        with get_client(sync_client=True) as client:
            run = client.create_flow_run_from_deployment(
                deployment.id,
                parameters={"config": order.config.model_dump(mode="json", exclude_defaults=True)},
                idempotency_key=order.name,
                name=name_run(order.config),  # at once: a run that crashes before it starts is named by nobody else
                job_variables=variables,
            )
    except _NO_ANSWER as exc:
        raise TransientError(
            f"the Prefect server takes no run of {_FLOW}/{deployment.name} ({exc}); where another version of Milepost "
            "has deployed it, `milepost deploy` renews it"
        ) from exc
    return DeploymentEvaluation(run, order)


class DeploymentEvaluation:
    """A flow run that evaluates."""

    def __init__(self, run: FlowRun, order: EvaluationOrder) -> None:
        """`run`: the flow run, as it was created or found."""
        self._run_id: UUID = run.id
        self._name = run.name
        self._order = order
        self._asked_at = 0.0
        self._state: StateType | None = None
        self._since = time.monotonic()
        self._is_told = False
        self._pulse: Pulse | None = None

    def poll(self) -> EvaluationEnd | None:
        """Return how it ended; None while it runs, waits for a worker, or the server does not answer."""
        if time.monotonic() - self._asked_at < _POLL_S:
            return None
        self._asked_at = time.monotonic()
        try:
            with get_client(sync_client=True) as client:
                run = client.read_flow_run(self._run_id)
                self._name = run.name  # it is named anew as it starts
                return self._judge(client, run.state)
        except ObjectNotFound:
            # the process of one that ran goes on
            is_over = self._pulse is None or self._is_silent()
            return EvaluationEnd(error=f"the flow run {self._name} was deleted") if is_over else None
        except _NO_ANSWER:
            return None

    def stop(self) -> bool:
        """Leave it alone: whoever watches next finds it again."""
        return False

    def _judge(self, client: SyncPrefectClient, state: "State[object] | None") -> EvaluationEnd | None:
        if state is None:
            return None
        if state.type != self._state:
            self._state, self._since = state.type, time.monotonic()
        if state.is_final():
            return self._describe_end(state)
        if state.is_scheduled():
            self._tell_untaken()
        if state.is_pending() and time.monotonic() - self._since > _PENDING_S:
            client.delete_flow_run(self._run_id)  # whatever other state it is given, it would start all the same
            said = f"the flow run {self._name} did not start in {_PENDING_S:g} s, and was deleted"
            return EvaluationEnd(error=said, cause="away")
        if (state.is_running() or state.is_cancelling()) and self._is_silent():
            return self._declare_dead(client, state)
        return None

    def _describe_end(self, state: "State[object]") -> EvaluationEnd:
        if state.is_completed():
            return EvaluationEnd(error="")
        said = f"{state.name}: {state.message or 'no reason given'}"
        if state.is_cancelled():
            remedy = f"remove {self._order.folder} to have it evaluated after all"
            return EvaluationEnd(error=f"the flow run {self._name} was cancelled ({said}); {remedy}", cause="unwanted")
        return EvaluationEnd(error=said, cause=read_cause(state))

    def _is_silent(self) -> bool:
        """Whether nobody has been at it for a minute."""
        if self._pulse is None:
            self._pulse = Pulse(self._order.config)
        return self._pulse.silence_s() > OWNER_SILENCE_S

    def _declare_dead(self, client: SyncPrefectClient, state: "State[object]") -> EvaluationEnd | None:
        """Have the server say so too: until then the run holds its place in the queue."""
        why = f"nobody is at this run, which was {state.name}: its process and its worker are gone"
        dead: State[object] = Cancelled(message=why) if state.is_cancelling() else Crashed(message=why)
        client.set_flow_run_state(self._run_id, dead)
        return self._describe_end(dead)

    def _tell_untaken(self) -> None:
        if not self._is_told and time.monotonic() - self._since > _UNTAKEN_S:
            self._is_told = True
            logger.warning(
                "%s: its flow run %s waits for a worker: either as many evaluations run as `milepost deploy --at-once` "
                "allows, or no worker serves the pool (`milepost server` brings one)",
                self._order.config.actor.path, self._name,
            )  # fmt: skip
