"""The repository keeps its shape: rooms, sizes, links, and nothing of the machine that it was written on."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ROOMS = {"flows", "tasks", "infra", "schemas"}
FACADE = "milepost"
"""What users import and the command; no room."""
OTHER_CODE = {"tests", "scripts", "benchmarks", "examples"}
ENGINE_MODULES = {"vllm", "torch", "transformers", "accelerate"}
TRAINING_CODE = {"flows/trainer_callback.py"}
SLOW_MODULES = {"scipy.stats", "reasoning_gym", "datasets", "math_verify"}
EMPTY_NAMES = {"util", "utils", "helper", "helpers", "manager", "handler", "misc"}
MAX_LINES = 400
TEXT_SUFFIXES = {"", ".cfg", ".in", ".ini", ".json", ".md", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml"}
# In pieces, so that this file passes its own test.
FOREIGN_WORDS = (
    "pypi." + "org",
    "pythonhosted." + "org",
    "registry.npmjs." + "org",
    "download.pytorch." + "org",
    "deb.debian." + "org",
    "/work" + "/main",
    "/work" + "/shared",
    "/root" + "/",
    "/tmp" + "/brief",
)


def ignored_names() -> set[str]:
    return {".git", *(line.strip("/") for line in (ROOT / ".gitignore").read_text("utf-8").split())}


def walk(folder: Path, ignored: set[str]) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        if entry.name in ignored or entry.suffix == ".egg-info" or entry.is_symlink():
            continue
        if entry.is_dir():
            yield from walk(entry, ignored)
        else:
            yield entry


FILES = list(walk(ROOT, ignored_names()))
TEXTS = [file for file in FILES if file.suffix in TEXT_SUFFIXES]
PAGES = [file for file in FILES if file.suffix == ".md"]
CODE = [file for file in FILES if file.suffix == ".py" and file.relative_to(ROOT).parts[0] != "tests"]
MODULES = [file for file in CODE if file.relative_to(ROOT).parts[0] in ROOMS]


TREES = {file: ast.parse(file.read_text("utf-8")) for file in CODE}


def name_of(file: Path) -> str:
    return str(file.relative_to(ROOT))


def is_in(file: Path, folder: str) -> bool:
    return ROOT / folder in file.parents


def imports(nodes: Iterator[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def executed_on_import(tree: ast.Module) -> Iterator[ast.AST]:
    """The statements that an import of the module runs: not what functions hold, nor what only type checkers read."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        yield node
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            continue
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            pending.extend(ast.iter_child_nodes(node))


def test_there_are_four_rooms_and_no_fifth() -> None:
    with_code = {file.relative_to(ROOT).parts[0] for file in FILES if file.suffix == ".py"}
    assert with_code <= ROOMS | OTHER_CODE | {FACADE}
    assert {folder.parent.name for folder in ROOT.glob("*/__init__.py")} == ROOMS | {FACADE}


def test_the_files_are_found() -> None:
    assert {"Makefile", "pyproject.toml", "schemas/errors.py", ".ci/run"} <= {name_of(file) for file in FILES}


def test_a_module_says_what_it_owns() -> None:
    assert [name_of(file) for file in MODULES if not ast.get_docstring(TREES[file])] == []


def test_a_module_is_of_readable_size() -> None:
    assert [name_of(file) for file in CODE if len(file.read_text("utf-8").splitlines()) > MAX_LINES] == []


def test_a_module_is_named_for_what_it_does() -> None:
    assert [name_of(file) for file in CODE if set(file.stem.split("_")) & EMPTY_NAMES] == []


def test_code_checks_by_raising_not_by_assert() -> None:
    asserts = [(file, node.lineno) for file in CODE for node in ast.walk(TREES[file]) if isinstance(node, ast.Assert)]
    assert [f"{name_of(file)}:{line}" for file, line in asserts] == []


def test_prefect_stays_in_flows_and_task_files() -> None:
    importers = {
        file for file in MODULES if "prefect" in {name.split(".")[0] for name in imports(ast.walk(TREES[file]))}
    }
    allowed = {file for file in MODULES if is_in(file, "flows") or (is_in(file, "tasks") and file.name == "task.py")}
    assert [name_of(file) for file in sorted(importers - allowed)] == []


def test_heavy_packages_are_imported_where_they_are_used() -> None:
    offenders: list[str] = []
    for file in MODULES:
        runs_beside_a_model = is_in(file, "infra/engines") or name_of(file) in TRAINING_CODE
        forbidden = SLOW_MODULES if runs_beside_a_model else SLOW_MODULES | ENGINE_MODULES
        found = imports(executed_on_import(TREES[file]))
        offenders += [f"{name_of(file)}: {name}" for name in found if {name, name.split(".")[0]} & forbidden]
    assert offenders == []


def test_names_of_transformers_come_from_the_module_that_holds_them() -> None:
    """The package itself lists those of all its models: type checks take half a minute longer."""
    names = [(file, node.module) for file in CODE for node in ast.walk(TREES[file]) if isinstance(node, ast.ImportFrom)]
    assert [name_of(file) for file, module in names if module == "transformers"] == []


def test_relative_links_lead_somewhere() -> None:
    broken: list[str] = []
    for page in PAGES:
        text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.DOTALL)
        links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not re.match(r"[a-z]+:|#", link)]
        broken += [f"{name_of(page)}: {link}" for link in links if not (page.parent / link.split("#")[0]).exists()]
    assert broken == []


def test_the_make_targets_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text("utf-8"), flags=re.MULTILINE))
    pattern = re.compile(r"(?:^ {4}|`)make ([a-z]+)", re.MULTILINE)
    named = {(name_of(page), target) for page in PAGES for target in pattern.findall(page.read_text("utf-8"))}
    assert sorted(pair for pair in named if pair[1] not in targets) == []


def test_no_file_names_a_registry_or_a_folder_of_one_machine() -> None:
    found = [
        f"{name_of(file)}: {word}"
        for file in TEXTS
        for text in [file.read_text("utf-8", errors="replace")]
        for word in FOREIGN_WORDS
        if word in text
    ]
    assert found == []


def test_compiled_requirements_hold_names_versions_and_hashes_alone() -> None:
    files = [file for file in (ROOT / "requirements").glob("*.txt") if not file.name.endswith("overrides.txt")]
    entries = [(file, entry) for file in files for entry in re.split(r"\n(?=\S)", file.read_text("utf-8").strip())]
    assert len(entries) > len(files)
    well_formed = re.compile(r"\S+==\S+ .*--hash=sha256:", re.DOTALL)
    odd = [(file, entry) for file, entry in entries if "://" in entry or not well_formed.match(entry)]
    assert [f"{name_of(file)}: {entry[:60]}" for file, entry in odd] == []


def test_no_test_module_imports_from_another() -> None:
    imports = re.compile(r"(?:from|import) tests\.(?!support\b)[\w.]+")
    found = {
        str(path.relative_to(ROOT)): imports.findall(path.read_text("utf-8")) for path in (ROOT / "tests").rglob("*.py")
    }
    assert not {path: names for path, names in found.items() if names}
