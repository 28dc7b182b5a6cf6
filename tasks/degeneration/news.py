"""Since when a run's completions show a sign of degeneration, and which event tells of it.

Owns what makes the signs of two runs one cause: a row of checkpoints, one after the other in training, that show it.
"""

from collections.abc import Iterable, Iterator

from infra.fileroot.earlier_runs import (
    describe_place,
    find_siblings,
    is_graded_alike,
    is_sampled_alike,
    read_report,
    run_directory,
    select_earlier,
)
from infra.fileroot.run_directory import RunDirectory
from infra.store import Store, open_store
from schemas.config import EvaluationConfig
from schemas.degeneration import DegenerationReport, DegenerationSign, Onset, SignName
from schemas.events import GenerationDegenerate
from schemas.inference import Plan
from schemas.run import RunIdentity
from schemas.store import PublishedRun
from tasks.degeneration.report import describe


def find_onsets(
    config: EvaluationConfig, identity: RunIdentity, plan: Plan, raised: Iterable[SignName]
) -> dict[SignName, Onset]:
    """Return since when each raised sign of a run is there.

    A run goes on with the row of the comparable checkpoint before it; else with that of the one after it, which a
    watcher that takes the newest first has evaluated already; else it begins a row. Comparable is what was sampled and
    graded with the same settings, on whatever version of the dataset: signs are about the model.

    Raises:
        StoreError: the store cannot be read.
    """
    store = open_store(config.cluster.folder)
    siblings = find_siblings(store, identity, engine=plan.engine, any_version=True, own_samples=True)
    earlier = select_earlier(siblings, identity)
    later = [run for run in siblings if run not in earlier]
    before, after = (_read_onsets(store, runs, config, plan) for runs in (earlier[::-1], later))
    # a name for life: whoever evaluates this checkpoint in this way, in this training, finds the same
    row = f"{identity.experiment_name}/{identity.trial_name}/{plan.plan_key}"
    begun = Onset(row=row, run_id=identity.run_id, global_step=identity.global_step)
    joined = {name: begun.model_copy(update={"row": onset.row}) for name, onset in after.items()}
    return {name: before.get(name) or joined.get(name, begun) for name in raised}


def find_events(identity: RunIdentity, run: RunDirectory, report: DegenerationReport) -> Iterator[GenerationDegenerate]:
    """Yield an event for each row that the raised signs belong to, told before or not."""
    shares = {sign.name: sign.share for sign in report.signs}
    rows: dict[str, list[DegenerationSign]] = {}
    for sign in report.signs:
        if sign.onset is not None:
            rows.setdefault(sign.onset.row, []).append(sign)
    for row, signs in rows.items():
        since = next(sign.onset for sign in signs if sign.onset is not None)
        yield GenerationDegenerate(
            checkpoint=identity.checkpoint,
            global_step=identity.global_step,
            dataset=identity.dataset,
            message=describe(signs),
            since=describe_place(since.run_id, since.global_step),
            link=str(run.page_path),
            run_id=run.run_id,
            share_stopped_by_length=shares.get("stopped_by_length"),
            share_without_answer=shares.get("without_answer"),
            share_repeating=shares.get("repeating"),
            signs=tuple(sign.name for sign in signs),
            row=row,
        )


def _read_onsets(
    store: Store, runs: Iterable[PublishedRun], config: EvaluationConfig, plan: Plan
) -> dict[SignName, Onset]:
    """Return since when the first comparable one of `runs` has its signs."""
    comparable = (run for run in runs if is_sampled_alike(store, run, plan) and is_graded_alike(store, run, config))
    neighbour = next(comparable, None)
    if neighbour is None:
        return {}
    report = read_report(run_directory(store, neighbour).degeneration_path, DegenerationReport)
    if report is None:
        return {}
    # a raised sign without an onset is an earlier version's
    own = Onset(row=neighbour.run_id, run_id=neighbour.run_id, global_step=neighbour.global_step)
    return {sign.name: sign.onset or own for sign in report.signs if sign.onset is not None or sign.is_raised}
