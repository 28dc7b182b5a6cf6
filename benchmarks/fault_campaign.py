"""Real evaluations, real faults at random moments: is a sample lost, published twice, wrong, or made again in vain?

    .venv/bin/python benchmarks/fault_campaign.py [--scheduler local|slurm] [--faults NAME ...] [--runs 2] [--seed 1]

Each trial is `milepost evaluate` with the stand-in engine and 400 samples, in a folder of its own; a fault comes at a
moment drawn from the recorded seed (start-up, generation or end); then the same command is given again where the run
did not end by itself, often with another number of replicas. What is published and every journal of every attempt is
compared with an undisturbed run of the same plan. Prints a line per trial, then a table; exit code 1 when a bound is
broken. `--scheduler slurm` brings up a cluster of three nodes (root), and adds the faults of a cluster.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.faults import cluster as cluster_faults  # noqa: E402 - the repository need not be installed
from benchmarks.faults import engines, processes, storage  # noqa: E402
from benchmarks.faults.fault import Fault  # noqa: E402
from benchmarks.faults.scene import World  # noqa: E402
from benchmarks.faults.services import end_on_signals, prefect_server, slurm_cluster  # noqa: E402
from benchmarks.faults.trial import Outcome, make_reference, run_trial  # noqa: E402
from infra.devcluster.cluster import DevCluster  # noqa: E402
from infra.text.tables import TextTable, to_markdown  # noqa: E402

ANYWHERE: Final = (*processes.FAULTS, *storage.FAULTS, *engines.FAULTS)
HEADER: Final = [
    "fault",
    "runs",
    "in start-up / generation / end",
    "went on by itself",
    "lost",
    "duplicated",
    "wrong",
    "generated again",
    "generated again although finished for 1 s",
    "other findings",
]


def run_campaign(faults: Sequence[Fault], world: World, folder: Path, options: argparse.Namespace) -> list[Outcome]:
    """Run every fault as often as asked and print each trial as it ends."""
    (folder / "reference").mkdir()
    reference = make_reference(world, folder / "reference")
    pace = reference.pace
    print(f"undisturbed: {len(reference.samples)} samples, first one after {pace.startup_s:.1f} s", flush=True)
    outcomes: list[Outcome] = []
    for number in range(options.runs):
        for fault in faults:
            trial = folder / f"{fault.name}-{number}"
            trial.mkdir()
            outcome = run_trial(fault, world, trial, f"{options.seed} {fault.name} {number}", reference)
            outcomes.append(outcome)
            when = "no moment" if outcome.moment is None else str(outcome.moment)
            print(
                f"seed {outcome.seed!r}: {when}; {outcome.num_commands} commands, {outcome.wall_s:.0f} s; "
                f"{'sound' if outcome.is_sound else f'NOT SOUND, see {trial}: {outcome.audit}'}"
                + "".join(f"\n    {problem}" for problem in outcome.problems),
                flush=True,
            )
    return outcomes


def tabulate(faults: Sequence[Fault], outcomes: Sequence[Outcome]) -> TextTable:
    """Return one row per fault, and the sum."""
    rows: list[list[str]] = []
    for name, those in [(fault.name, [each for each in outcomes if each.fault == fault.name]) for fault in faults] + [
        ("all", list(outcomes))
    ]:
        audits = [each.audit for each in those if each.audit is not None]
        phases = [each.moment.phase for each in those if each.moment is not None]
        rows.append(
            [
                name,
                str(len(those)),
                " / ".join(str(phases.count(phase)) for phase in ("start-up", "generation", "end")),
                str(sum(each.num_commands == 1 for each in those)),
                *(str(sum(column)) for column in zip(*audits, strict=True)),
                *(["?"] * 5 if not audits else []),
                str(sum(len(each.problems) for each in those)),
            ]
        )
    return TextTable(HEADER, rows)


def choose(options: argparse.Namespace) -> list[Fault]:
    """Return the faults to try; names those that cannot be tried here.

    Raises:
        SystemExit: there is no such fault.
    """
    known = [*ANYWHERE, *(cluster_faults.FAULTS if options.scheduler == "slurm" else ())]
    names = [fault.name for fault in known]
    if unknown := [name for name in options.faults if name not in names]:
        raise SystemExit(f"no fault {unknown[0]!r} with --scheduler {options.scheduler}; there are: {', '.join(names)}")
    chosen: list[Fault] = []
    for fault in known:
        if options.faults and fault.name not in options.faults:
            continue
        reason = fault.unavailable()
        if reason is None:
            chosen.append(fault)
        else:
            print(f"{fault.name} is skipped: {reason}", flush=True)
    return chosen


def main() -> int:
    """Run the campaign."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scheduler", choices=["local", "slurm"], default="local")
    parser.add_argument(
        "--cluster", type=Path, metavar="FOLDER", help="a `milepost devcluster` that is up, with 3 nodes"
    )
    parser.add_argument("--faults", nargs="+", default=[], metavar="NAME", help="default: all")
    parser.add_argument("--runs", type=int, default=2, help="of each fault")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--items", type=int, default=200, help="half the number of samples")
    parser.add_argument("--step-s", type=float, default=0.01, help="seconds per token of the batch")
    parser.add_argument("--checkpoint", type=Path, default=ROOT / ".demo" / "smollm2-135m-instruct")
    parser.add_argument("--engine-python", type=Path, default=ROOT / ".venv-engine" / "bin" / "python")
    parser.add_argument("--keep", type=Path, help="folder for all files, empty or new; default: removed at the end")
    options = parser.parse_args()
    faults = choose(options)
    end_on_signals()
    with tempfile.TemporaryDirectory(prefix="milepost-faults-") as temporary:
        folder = Path(temporary) if options.keep is None else options.keep.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        with prefect_server(folder / "prefect") as environment:
            if options.scheduler == "local":
                outcomes = run_campaign(faults, _world(options, environment, None), folder, options)
            else:
                given = options.cluster and nullcontext(DevCluster(options.cluster))
                with given or slurm_cluster(folder / "cluster") as cluster:
                    environment["SLURM_CONF"] = str(cluster.paths.slurm_conf)
                    outcomes = run_campaign(faults, _world(options, environment, cluster), folder, options)
    print(to_markdown(tabulate(faults, outcomes)))
    return int(not all(outcome.is_sound for outcome in outcomes))


def _world(options: argparse.Namespace, environment: dict[str, str], cluster: DevCluster | None) -> World:
    return World(
        environment=environment,
        checkpoint=options.checkpoint.absolute(),
        engine_python=options.engine_python.absolute(),
        cluster=cluster,
        num_items=options.items,
        step_s=options.step_s,
    )


if __name__ == "__main__":
    sys.exit(main())
