"""A run's name tells evaluations apart, and is the same for each attempt at one."""

from pathlib import Path

import pytest
from prefect.utilities.names import generate_slug

from flows.orchestration.run_name import describe_outcome, describe_result, is_generated, name_root, name_run, tag_run
from schemas.config import EvaluationConfig
from schemas.summary import MetricValue, RunSummary
from schemas.watch import GivenUpEvaluation, WatchOutcome


def config(path: str = "/ckpt/run1/step_400/actor/huggingface", **changes: object) -> EvaluationConfig:
    keys = {
        "experiment_name": "team",
        "trial_name": "t1",
        "actor": {"path": path},
        "valid_dataset": {"path": "a/gsm8k"},
    }
    return EvaluationConfig.model_validate(keys | changes)


def test_it_has_the_end_of_the_path_the_dataset_and_the_training() -> None:
    assert name_run(config()) == "step_400/actor/huggingface on a/gsm8k (team/t1)"
    assert name_run(config().at_checkpoint("/other/checkpoint-7")) == "//other/checkpoint-7 on a/gsm8k (team/t1)"
    procedural = config(valid_dataset={"path": "reasoning_gym:chain_sum?size=24&seed=1"})
    assert name_run(procedural).endswith(" on reasoning_gym:chain_sum (team/t1)")
    assert name_run(config(valid_dataset={"path": "x", "name": "mine"})).endswith(" on mine (team/t1)")


def test_trainings_of_equal_folders_have_names_of_their_own() -> None:
    assert (
        len({name_run(config(**{key: "b"})) for key in ("experiment_name", "trial_name")} | {name_run(config())}) == 3
    )


def test_a_hostile_folder_is_one_line_without_a_mention() -> None:
    name = name_run(config("/ckpt/<!channel>\nstep\x1b[31m_1"))
    assert name == "/ckpt/‹!channel› step[31m_1 on a/gsm8k (team/t1)".replace("/ckpt", "//ckpt")


@pytest.mark.parametrize(
    "typed",
    [
        "before the merge",
        "Step-400",
        "step_400",
        "step-400",
        "a-b-c",
        "nightly",
        "alphabet",
        "alpha 2",
        "rho-step-400",
        "beta_run",
        "fröhlich-katze",
        name_run(config()),
    ],
)
def test_a_name_that_somebody_typed_is_kept(typed: str) -> None:
    assert not is_generated(typed)


def test_a_name_that_prefect_made_up_is_replaced() -> None:
    assert all(is_generated(name) for name in ["", *(generate_slug(2) for _ in range(500))])
    in_the_form = ["omicron5-talos-collapse", "alpha-vega", "eta731-ursae-majoris-void", "mu2-risa", "xi", "pi--ring"]
    assert [name for name in in_the_form if not is_generated(name)] == []


def summary(value: float | None, stderr: float | None = 0.014, **changes: object) -> RunSummary:
    counts = {"num_planned": 10, "num_scored": 10, "num_failed": 0}
    ends = {"value": value, "stderr": stderr, "ci_low": None, "ci_high": None}
    row = MetricValue.model_validate(
        {"subset": "all", "metric": "accuracy", **ends, **counts, "higher_is_better": True}
    )
    names = {"run_id": "r", "experiment_name": "team", "trial_name": "t1", "checkpoint": "ckpt", "dataset": "gsm8k"}
    digests = {"weight_digest": "0" * 32, "dataset_version": "1" * 32}
    rest = {
        "run_dir": Path("r"),
        "store": Path("s"),
        "num_attempts": 1,
        "num_resumed": 0,
        "wall_s": 1.0,
        "engine_s": 1.0,
    }
    step = {"global_step": 1400, "metrics": (row,)}
    return RunSummary.model_validate(names | digests | counts | rest | step | changes)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (summary(0.5123), "gsm8k: accuracy 0.512 ± 0.014, step 1,400"),
        (summary(0.5, None), "gsm8k: accuracy 0.500 ± –, step 1,400"),
        (summary(None), "gsm8k: accuracy –, step 1,400"),
        (summary(0.5, global_step=None), "gsm8k: accuracy 0.500 ± 0.014"),
        (summary(0.5, metrics=()), "gsm8k: accuracy –, step 1,400"),
        (summary(0.5, engine="stand_in"), "dummy engine: gsm8k: accuracy 0.500 ± 0.014, step 1,400"),
        (summary(0.5, dataset="<b>\n\x1b[31mx"), "‹b› [31mx: accuracy 0.500 ± 0.014, step 1,400"),
    ],
)
def test_the_last_state_says_what_was_found(found: RunSummary, said: str) -> None:
    assert describe_result(found) == said


def outcome(**counts: object) -> WatchOutcome:
    return WatchOutcome.model_validate({"root": Path("ck"), "num_done": 0, "num_failed": 0, "num_open": 0} | counts)


GIVEN_UP = GivenUpEvaluation(path=Path("c"), global_step=1, evaluation="e", reason="r", folder=Path("f"))


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (outcome(), "nothing due"),
        (outcome(num_unusable=2), "nothing due (2 unusable)"),
        (outcome(given_up=(GIVEN_UP,)), "nothing due (1 given up)"),
        (outcome(num_open=1), "1 still to do"),
        (outcome(num_done=2, num_failed=1, num_open=3), "2 evaluated, 1 attempts failed, 3 still to do"),
    ],
)
def test_a_look_at_a_folder_says_what_it_did(found: WatchOutcome, said: str) -> None:
    assert describe_outcome(found) == said


def test_folders_and_tags_are_data_on_one_line() -> None:
    assert name_root("/data/<run>\n1/checkpoints") == "‹run› 1/checkpoints"
    assert tag_run(config(), "gsm8k\n<x>") == ["gsm8k ‹x›", "team/t1"]
