"""`milepost compare` and `milepost gate`: two published runs against each other."""

from typing import TYPE_CHECKING, Annotated

import typer

from flows.commands.errors_and_options import DEFAULT_FILEROOT, AsJson, Fileroot, echo, errors_shown, show
from schemas.gates import GATE_FAILED

if TYPE_CHECKING:
    from schemas.regression import GateResult

comparison = typer.Typer()


@comparison.command()
def compare(
    baseline: Annotated[str, typer.Argument(metavar="RUN", help="Run to compare against, as `milepost runs` lists it")],
    candidate: Annotated[str, typer.Argument(metavar="RUN", help="Run to judge")],
    fileroot: Fileroot = DEFAULT_FILEROOT,
    as_json: AsJson = False,
) -> None:
    """Say how much better the second run is, how sure that is, and what else differs between the two."""
    with errors_shown(as_json=as_json):
        from flows.commands.console import print_comparison
        from infra.fileroot.run_names import complete_run_name
        from infra.store import open_store
        from tasks.metrics.published import compare_runs

        names = [complete_run_name(fileroot, run) for run in (baseline, candidate)]
        if names != [baseline, candidate]:
            echo(f"run {names[0]} -> run {names[1]}", err=True)
        show(compare_runs(open_store(fileroot), *names), print_comparison, as_json=as_json)


@comparison.command()
def gate(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Run to judge, as `milepost runs` lists it")],
    against: Annotated[str, typer.Option(metavar="RUN", help="Run that it must not be worse than")],
    minimum_effect: Annotated[
        float | None, typer.Option(min=0, max=1, help="Smallest drop of the mean score that counts; 0.02 if not given")
    ] = None,
    fileroot: Fileroot = DEFAULT_FILEROOT,
    as_json: AsJson = False,
) -> None:
    """Exit code 3 when RUN is significantly worse than another run, by at least the smallest drop that counts."""
    with errors_shown(as_json=as_json):
        from infra.fileroot.run_names import complete_run_name
        from infra.store import open_store
        from tasks.regression.gate import judge

        names = [complete_run_name(fileroot, each) for each in (run, against)]
        if names != [run, against]:
            echo(f"run {names[0]} against run {names[1]}", err=True)
        found = judge(open_store(fileroot), *names, minimum_effect=minimum_effect)
        show(found, _print_gate, as_json=as_json)
    if found.has_regressed:
        raise typer.Exit(GATE_FAILED)


def _print_gate(found: "GateResult") -> None:
    from flows.commands.console import print_comparison

    print_comparison(found.comparison)
    verdict = "failed" if found.has_regressed else "passed"
    typer.echo(
        f"gate     {verdict}: a drop of {found.minimum_effect:g} and more counts where p is at most {found.level:g}; "
        f"p of a drop is {found.p_value:.2g}"
    )
