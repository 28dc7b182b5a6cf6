"""What a command is doing while nothing else can be seen of it: a spinner on a terminal, else one line per step.

Everything goes to stderr. Importing this must stay cheap: its first line comes before the heavy imports.
"""

import sys
from types import TracebackType
from typing import Final, Self

from rich.console import Console
from rich.live import Live
from rich.spinner import Spinner
from rich.text import Text

_SPINNER: Final = "dots"


class Steps:
    """The steps of a command; leaving it, by an error too, clears the spinner."""

    def __init__(self, *, are_shown: bool = True) -> None:
        """`are_shown`: false where the command has nothing to wait for."""
        self._console = Console(stderr=True)
        self._are_shown = are_shown
        self._live: Live | None = None

    def __enter__(self) -> Self:
        """Show nothing yet."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Clear the spinner."""
        self.stop()

    def show(self, step: str) -> None:
        """Say what is being done from now on."""
        if not self._are_shown:
            return
        if not sys.stderr.isatty():
            self._console.print(Text(f"{step} …"), style="dim", soft_wrap=True)
            return
        spinner = Spinner(_SPINNER, Text(step, style="dim"))
        if self._live is None:
            # standard output stays as it is: it may be a pipe
            self._live = Live(spinner, console=self._console, transient=True, redirect_stdout=False)
            self._live.start(refresh=True)
        else:
            self._live.update(spinner)

    def stop(self) -> None:
        """Clear the spinner, before something else draws on the terminal."""
        if self._live is not None:
            self._live.stop()
            self._live = None
