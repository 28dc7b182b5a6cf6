"""Adapters that a trainer saves are watched as whole models are, each on its base."""

import shutil
from pathlib import Path

from infra.checkpoints import inspect_checkpoint
from infra.checkpoints.digests import digest_checkpoint
from tasks.watching.launching import EvaluationOrder
from tasks.watching.observation import Observer
from tasks.watching.reconciler import Reconciler
from tasks.watching.settling import make_evaluation
from tests.support.checkpoint_folders import make_adapter, make_base
from tests.support.instant_evaluations import (
    InstantEvaluation,
    InstantLauncher,
    make_config,
    published_runs,
)


def test_each_adapter_is_evaluated_once_under_the_identity_of_the_two(tmp_path: Path) -> None:
    base, root = make_base(tmp_path / "base"), tmp_path / "ck"
    for step in (10, 20):
        make_adapter(root / f"checkpoint-{step}", base, fill=step)
    shutil.copytree(root / "checkpoint-20", root / "final")
    digests = {digest_checkpoint(inspect_checkpoint(root / f"checkpoint-{step}")) for step in (10, 20)}
    config, launcher = make_config(tmp_path), InstantLauncher()
    outcome = Reconciler(root, [make_evaluation(config)], launcher).run(once=True)
    assert (outcome.num_done, outcome.num_failed, outcome.num_open) == (2, 0, 0)
    assert {run["weight_digest"] for run in published_runs(config)} == digests
    assert list(make_evaluation(config).folder.path.glob("checkpoints/*/model/*")) == [], "they are let go"


def test_adapters_and_base_outlive_their_removal_until_they_are_evaluated(tmp_path: Path) -> None:
    base, root = make_base(tmp_path / "base"), tmp_path / "ck"
    for step in (10, 20):
        make_adapter(root / f"checkpoint-{step}", "org/gone", fill=step)
    config = make_config(tmp_path, f"actor.base_path={base}")

    class Removing(InstantLauncher):
        def launch(self, order: EvaluationOrder) -> InstantEvaluation:
            shutil.rmtree(root / "checkpoint-10", ignore_errors=True)
            return super().launch(order)

    outcome = Reconciler(root, [make_evaluation(config)], Removing()).run(once=True)
    assert (outcome.num_done, outcome.num_failed, outcome.num_open) == (2, 0, 0)


def test_a_base_that_is_put_in_place_later_is_found(tmp_path: Path) -> None:
    make_adapter(tmp_path / "ck" / "checkpoint-1", tmp_path / "base")
    observer = Observer(tmp_path / "ck", settle_s=0.0)
    (pending,) = observer.look(()).pending
    assert (pending.state, "which is no folder" in pending.detail) == ("writing", True)
    make_base(tmp_path / "base")
    (whole,) = observer.look(()).whole
    assert whole.found.folder.name == "checkpoint-1"


def test_what_has_to_be_merged_is_unusable(tmp_path: Path) -> None:
    make_adapter(tmp_path / "ck" / "checkpoint-1", make_base(tmp_path / "base"), use_dora=True)
    (pending,) = Observer(tmp_path / "ck", settle_s=0.0).look(()).pending
    assert (pending.state, "merge_and_unload" in pending.detail) == ("unusable", True)
