"""The option `--config FILE`, which AReaL's commands have: it gives the argument CONFIG of ours."""

from typing import Any, Final

import typer
from typer.core import TyperCommand

NAME: Final = "--config"


class ConfigCommand(TyperCommand):
    """A command whose first argument is CONFIG, which may be given as `--config FILE` instead."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the file of `--config` where CONFIG stands.

        Raises:
            typer.BadParameter: the configuration is given twice, or the option has no file.
        """
        file, others = split_option(args)
        if file is None:
            return super().parse_args(ctx, args)
        left = super().parse_args(ctx, [file, *others])
        for text in ctx.params.get("overrides") or ():
            if "=" not in text:
                raise typer.BadParameter(
                    f"{NAME} {file} is the configuration, so {text!r} cannot be one too; give CONFIG or {NAME}, and "
                    "overrides as KEY=VALUE",
                    ctx=ctx,
                )
        return left


def split_option(args: list[str]) -> tuple[str | None, list[str]]:
    """Return the file of `--config FILE` or `--config=FILE` in `args`, None without one, and the other arguments.

    Raises:
        typer.BadParameter: the option is given twice, or has no file.
    """
    files: list[str] = []
    others: list[str] = []
    remaining = iter(args)
    for argument in remaining:
        name, equals, value = argument.partition("=")
        if argument == "--":
            others += ["--", *remaining]
        elif name != NAME:
            others.append(argument)
        else:
            files.append(value if equals else next(remaining, ""))
    if len(files) > 1:
        raise typer.BadParameter(f"{NAME} is given {len(files)} times: {', '.join(files)}; give it once")
    if files and not files[0]:
        raise typer.BadParameter(f"{NAME} needs a file: {NAME} FILE")
    return (files[0] if files else None), others
