"""The command `milepost`, and `python -m milepost`: runs `flows.cli` of this installation."""

import sys

from milepost.packages import prefer_own_packages


def main() -> None:
    """Run the command; exit code 2 and the next step where the controller's packages are not installed."""
    prefer_own_packages()
    try:
        from flows.cli import main as run
    except ModuleNotFoundError as exc:
        sys.exit(_explain(exc))
    run()


def _explain(error: ModuleNotFoundError) -> int:
    sys.stderr.write(
        f"error: the package {error.name!r} is not installed in {sys.prefix}; the command needs what "
        "`pip install 'milepost[controller]'` installs\n"
    )
    return 2


if __name__ == "__main__":
    main()
