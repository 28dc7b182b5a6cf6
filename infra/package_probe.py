"""Says which packages an interpreter has: a script for that interpreter, standard library only.

    python -I infra/package_probe.py '[{"torch": "torch"}, false]'

The argument holds name → module, and whether to read versions only, importing nothing.
Prints one JSON object: name → {"version": …}, {"error": …}, or {} for what is not installed. It is run by its path in
environments that have neither Milepost nor pydantic, and must import neither.
"""

import importlib
import importlib.metadata
import json
import os
import sys

_KERNEL_MODULES = ("vllm._C_AVX2", "vllm._C_AVX512", "vllm._C")


def look_at(name: str, module: str, *, quick: bool) -> dict[str, str]:
    """One package's version, or the error of its import."""
    try:
        version = importlib.metadata.version(name)
        if not quick:
            importlib.import_module(module)
            if module == "vllm":
                load_kernels()
    except importlib.metadata.PackageNotFoundError:
        return {}
    except Exception as exc:  # noqa: BLE001 -- whatever an import raises is the finding
        return {"error": f"{type(exc).__name__}: {exc}"[:300]}
    return {"version": version}


def load_kernels() -> None:
    """Loads vLLM's compiled part: for the CPU `import vllm` succeeds without it and only generation fails.

    Raises:
        ImportError: it cannot be loaded, such as for want of libnuma.
    """
    platform = importlib.import_module("vllm.platforms").current_platform
    if platform.device_type != "cpu":
        return
    platform.import_kernels()
    if hasattr(importlib.import_module("torch").ops._C, "silu_and_mul"):
        return
    for name in _KERNEL_MODULES:
        importlib.import_module(name)  # the reason, which vLLM only logs
    raise ImportError("vLLM's kernels were not loaded, and importing them says no reason")


def main() -> None:
    """Reports on stdout; what packages print while they are imported goes to stderr."""
    packages, quick = json.loads(sys.argv[1])
    output = os.dup(1)
    os.dup2(2, 1)
    report = {name: look_at(name, module, quick=quick) for name, module in packages.items()}
    os.write(output, json.dumps(report).encode())
    os._exit(0)  # engines leave threads behind that a normal exit waits for


if __name__ == "__main__":
    main()
