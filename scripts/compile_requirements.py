"""`make requirements`: compiles requirements/*.in into names, versions and hashes; no addresses.

A version that is already in a compiled file stays while it satisfies its .in file; `--upgrade` takes the newest.
"""

import argparse
import sys

from environments import REQUIREMENTS, EnvironmentSetupError, Installer, say

OVERRIDES = {"engine-cpu": "engine-overrides.txt", "engine-cuda": "engine-cuda-overrides.txt"}
NAMES = ("tools", "build", "controller", "dev", "engine-cpu", "engine-cuda")


def compile_one(installer: Installer, name: str, *, upgrade: bool) -> None:
    """Compiles one file for every Python from 3.11 on."""
    options = ["--universal", "--python-version", "3.11", "--no-header", "--no-annotate", "--generate-hashes"]
    if upgrade:
        options.append("--upgrade")
    if name == "dev":
        # One folder holds both: the test tools must not move what the controller runs on.
        options += ["--constraints", str(REQUIREMENTS / "controller.txt")]
    if name in OVERRIDES:
        options += ["--overrides", str(REQUIREMENTS / OVERRIDES[name])]
    if name == "engine-cpu":
        # torch's CPU build lies in no registry: a wheel folder, or the index that uv knows by this name.
        options += installer.find_links or ["--torch-backend", "cpu"]
    options += installer.index_options
    source, target = REQUIREMENTS / f"{name}.in", REQUIREMENTS / f"{name}.txt"
    say(f"compiling {target.name}")
    installer.run("pip", "compile", "--quiet", *options, source, "--output-file", target, step=f"compiling {name}.in")


def main(arguments: list[str]) -> int:
    """Compiles the named files, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upgrade", action="store_true")
    parser.add_argument("names", nargs="*", default=NAMES)
    options = parser.parse_args(arguments)
    installer = Installer.make()
    try:
        for name in options.names:
            compile_one(installer, name, upgrade=options.upgrade)
    except EnvironmentSetupError as exc:
        print(exc, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
