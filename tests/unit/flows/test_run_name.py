"""A run's name tells evaluations apart, and is the same for each attempt at one."""

from flows.run_name import name_run
from schemas.config import EvaluationConfig


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
