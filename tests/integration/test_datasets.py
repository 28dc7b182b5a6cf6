"""Datasets through the real libraries: reasoning_gym, `datasets`, and the public evaluation data."""

import json
import os
import subprocess
import sys
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from infra.datasets import load_dataset
from schemas.dataset import LoadedDataset
from schemas.errors import DatasetError
from schemas.valid_dataset import ValidDatasetConfig
from tests.support.hub_server import hub_of

ROOT = Path(__file__).resolve().parents[2]
MIXED = "reasoning_gym:chain_sum+basic_arithmetic+gsm_symbolic?size=20&seed=1"


def accept_words(golds: Sequence[str]) -> list[str | None]:
    return ["states no answer" if gold == "None" else None for gold in golds]


def load(path: Path | str, *, seed: int = 1, **settings: object) -> LoadedDataset:
    config = ValidDatasetConfig.model_validate({"path": str(path), **settings})
    return load_dataset(config, seed=seed, check_golds=accept_words)


def write_rows(path: Path, name: str, count: int = 3) -> None:
    rows = [{"question": f"{name} {i}\u2028?", "answer": f"steps\n#### {i}"} for i in range(count)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


@pytest.fixture(scope="module")
def mixed() -> LoadedDataset:
    """Problems of three procedural tasks: the library's import takes seconds each time."""
    return load(MIXED)


def run_apart(code: str, **environment: str) -> str:
    """Return what a fresh interpreter prints: the libraries read their environment once, at import."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


def test_procedural_tasks_are_split_evenly_and_take_turns(mixed: LoadedDataset) -> None:
    dataset = mixed
    assert dataset.name == "reasoning_gym:chain_sum+basic_arithmetic+gsm_symbolic"
    assert Counter(item.subsets["task"] for item in dataset.items) == {
        "chain_sum": 7,
        "basic_arithmetic": 7,
        "gsm_symbolic": 6,
    }
    assert [item.subsets["task"] for item in dataset.items[:3]] == ["chain_sum", "basic_arithmetic", "gsm_symbolic"]
    assert len({item.item_id for item in dataset.items}) == 20
    assert load(MIXED, limit=3).items == dataset.items[:3]


def test_procedural_items_are_graded_by_their_task_from_what_is_stored(mixed: LoadedDataset) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the dependencies of reasoning_gym are full of invalid escapes
        from reasoning_gym.factory import get_score_answer_fn

    for item in mixed.items:
        assert item.grader == "reasoning_gym"
        stored = json.loads(item.grader_data)
        score = get_score_answer_fn(stored["task"])
        assert score(item.gold, stored["entry"]) == 1.0
        assert score("no such answer", stored["entry"]) < 1.0
        assert item.messages[-1].content.startswith(stored["entry"]["question"])


def test_the_same_seed_is_the_same_data_and_another_is_not(mixed: LoadedDataset) -> None:
    unseeded = MIXED.removesuffix("&seed=1")
    assert load(unseeded, seed=1).version == mixed.version
    assert load(unseeded, seed=2).version != mixed.version


def test_procedural_versions_do_not_depend_on_the_process() -> None:
    # word_ladder and ransom_note iterate over sets of strings, whose order Python changes from process to process.
    path = f"{MIXED.partition('?')[0]}+word_ladder+ransom_note?size=20&seed=1"
    code = (
        "from infra.datasets import load_dataset; from schemas.valid_dataset import ValidDatasetConfig as C\n"
        f"print(load_dataset(C(path={path!r}), seed=9, check_golds=lambda golds: []).version)"
    )
    versions = {run_apart(code, PYTHONHASHSEED=seed, PYTHONWARNINGS="error").strip() for seed in ("1", "2")}
    assert versions == {load(path).version}


def test_procedural_parameters_reach_the_task() -> None:
    dataset = load("reasoning_gym:chain_sum?size=30&min_terms=2&max_terms=2&max_digits=1")
    assert all(len(item.messages[0].content.split(":")[1].split("=")[0].split()) == 3 for item in dataset.items)


def test_a_small_task_never_asks_one_question_twice() -> None:
    assert len({i.messages for i in load("reasoning_gym:chain_sum?size=150&max_terms=2&max_digits=1").items}) == 150
    with pytest.raises(DatasetError, match="made only 200 distinct problems in"):
        load("reasoning_gym:chain_sum?size=201&max_terms=2&max_digits=1")


@pytest.mark.parametrize(
    ("rest", "reason"),
    [
        ("chan_sum", "did you mean 'chain_sum'"),
        ("chain_sum?max_terms=1", "max_terms must be >= min_terms"),
        ("rearc?size=1", "do not survive JSON"),
    ],
)
def test_procedural_paths_that_cannot_be_evaluated_are_refused(rest: str, reason: str) -> None:
    with pytest.raises(DatasetError, match=reason):
        load(f"reasoning_gym:{rest}")


def test_a_task_with_many_right_answers_has_an_empty_gold() -> None:
    assert [item.gold for item in load("reasoning_gym:rush_hour?size=2").items] == ["", ""]


def test_a_folder_of_files_has_splits(tmp_path: Path) -> None:
    folder = tmp_path / "arith"
    write_rows(folder / "test.jsonl", "test")
    write_rows(folder / "train.jsonl", "train")
    dataset = load(folder)
    assert dataset.name == "arith"
    assert [item.gold for item in dataset.items] == ["0", "1", "2"]
    assert dataset.items[0].messages[0].content.startswith("test 0\u2028?")
    assert dataset.version == load(folder / "test.jsonl").version
    assert load(folder, split="train").version == load(folder / "train.jsonl").version
    with pytest.raises(DatasetError, match=r"no split 'tset'; did you mean 'test'\? .*may be"):
        load(folder, split="tset")


def test_a_folder_and_a_hub_dataset_give_what_the_single_file_gives(tmp_path: Path) -> None:
    """All formats in one process without network: local folders, and snapshots as the hub's client caches them."""
    texts = ["NA", "None", "null", "nan", "True", "001", "1e5", "10e4", "2024-05-17", "12345678901234567", "7.5"]
    texts += ["1234567890123456789012", "0.12345678901234567890123"]
    rows = [{"q": f"p{number}", "a": text, "id": text, "k": text} for number, text in enumerate(texts)]
    literal = [f'{{"q": "n{number}", "a": {texts[number]}, "id": "n{number}", "k": "k"}}' for number in (9, 10, 11, 12)]
    lines = [*(json.dumps(row) for row in rows), *literal]
    files = {
        "test.jsonl": "".join(line + "\n" for line in lines).encode(),
        "test.json": f"[{','.join(lines)}]".encode(),
        "test.csv": "".join(
            f"{','.join(row)}\r\n" for row in [["q", "a", "id", "k"], *(r.values() for r in rows)]
        ).encode(),
    }
    floats = pa.array([0.1, 2.5, None], pa.float32())
    tables = {
        "test.parquet": pa.Table.from_pylist(rows),
        "more-test.parquet": pa.table({"q": ["a", "b"], "a": floats[:2], "id": ["1", "2"], "k": ["x", "y"]}),
    }
    for name, table in tables.items():
        pq.write_table(table, tmp_path / name)
        files[name] = (tmp_path / name).read_bytes()
    repositories = {}
    for name, content in files.items():
        folder = tmp_path / name.replace(".", "_")
        snapshot = tmp_path / "hub" / f"datasets--owner--{folder.name}" / "snapshots" / "0123abcd"
        for place in (folder, snapshot):
            place.mkdir(parents=True)
            (place / name).write_bytes(content)
        repositories[f"owner/{folder.name}"] = (str(folder), str(folder / name))
    code = (
        "import json; from infra.datasets import load_dataset; from schemas.valid_dataset import *\n"
        "def load(path): return load_dataset(ValidDatasetConfig(path=path, columns=C), seed=1, check_golds=A).version\n"
        "C = ColumnMapping(prompt='q', gold='a', id='id', subsets=('k',)); A = lambda golds: [None] * len(golds)\n"
        f"print(json.dumps([[load(hub), *map(load, paths)] for hub, paths in {repositories}.items()]))"
    )
    versions = json.loads(run_apart(code, HF_HUB_OFFLINE="1", HF_HUB_CACHE=str(tmp_path / "hub")))
    assert len(versions) == len(files)
    assert all(len(set(same)) == 1 for same in versions), versions
    assert len({same[0] for same in versions}) == 3  # JSON in two files, CSV and Parquet hold the same texts


def test_a_hub_dataset_is_downloaded_once_and_read_as_its_files_are(tmp_path: Path) -> None:
    content = b"problem,answer,unique_id\np?,1e5,001\nq?,NA,01\n"
    (tmp_path / "test.csv").write_bytes(content)
    code = (
        "from infra.datasets import load_dataset; from schemas.valid_dataset import ValidDatasetConfig as C\n"
        "print(load_dataset(C(path='owner/set'), seed=9, check_golds=lambda golds: [None] * len(golds)).version)"
    )
    home = {"HF_HOME": str(tmp_path / "home"), "HF_HUB_CACHE": str(tmp_path / "home" / "hub")}
    with hub_of("owner/set", {"test.csv": content, "train.csv": content}) as address:
        online = run_apart(code, **home, HF_ENDPOINT=address, NO_PROXY="127.0.0.1").strip()
    assert online == run_apart(code, **home, HF_HUB_OFFLINE="1").strip() == load(tmp_path / "test.csv").version


def test_a_readme_that_says_how_files_are_read_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text("question;answer\n", encoding="utf-8")
    card = "---\nconfigs:\n- config_name: main\n  sep: ';'\n  data_files:\n  - split: test\n    path: x.csv\n---\n"
    (tmp_path / "README.md").write_text(card, encoding="utf-8")
    with pytest.raises(DatasetError, match="sets sep=';'"):
        load(tmp_path)


def test_an_edited_folder_is_read_again(tmp_path: Path) -> None:
    write_rows(tmp_path / "arith" / "test.jsonl", "old")
    before = load(tmp_path / "arith").version
    write_rows(tmp_path / "arith" / "test.jsonl", "new")
    assert load(tmp_path / "arith").version != before


def test_folders_written_by_save_to_disk_are_read(tmp_path: Path) -> None:
    import datasets

    rows = [{"question": f"q{i}", "answer": f"#### {i}"} for i in range(4)]
    saved = datasets.Dataset.from_list(rows)
    saved.save_to_disk(str(tmp_path / "one"))
    datasets.DatasetDict({"test": saved}).save_to_disk(str(tmp_path / "dict"))
    assert load(tmp_path / "one").version == load(tmp_path / "dict").version
    with pytest.raises(DatasetError, match="may be test"):
        load(tmp_path / "dict", split="train")


def test_folders_without_readable_data_are_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match="cannot be read as a dataset"):
        load(tmp_path / "empty")
    (tmp_path / "torn").mkdir()
    (tmp_path / "torn" / "test.jsonl").write_text('{"question": "q", "ans', encoding="utf-8")
    with pytest.raises(DatasetError, match="torn"):
        load(tmp_path / "torn")


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"HF_ENDPOINT": "http://127.0.0.1:9"}, "the hub cannot be reached from this machine"),
        ({"HF_HUB_OFFLINE": "1"}, "cannot be loaded"),
    ],
)
def test_a_hub_id_without_network_is_told_in_one_message(environment: dict[str, str], reason: str) -> None:
    code = (
        "from infra.datasets import load_dataset; from schemas.valid_dataset import ValidDatasetConfig as C\n"
        "from schemas.errors import DatasetError\n"
        "try: load_dataset(C(path='no-such-owner/no-such-set'), seed=1, check_golds=list)\n"
        "except DatasetError as exc: print(exc)"
    )
    said = run_apart(code, **environment)
    assert reason in said
    assert "local file or folder" in said


def test_importing_the_room_imports_no_heavy_library() -> None:
    code = (
        "import sys, infra.datasets, schemas.valid_dataset\n"
        "heavy = ('datasets', 'reasoning_gym', 'pyarrow', 'pandas', 'sympy', 'transformers')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    assert run_apart(code).strip() == "[]"


@pytest.mark.needs_data
def test_gsm8k_reads_whole(data_dir: Path) -> None:
    dataset = load(data_dir / "gsm8k" / "test.jsonl")
    assert (dataset.name, len(dataset.items)) == ("gsm8k", 1319)
    assert all(item.gold.lstrip("-").isdigit() for item in dataset.items)
    assert [item.gold for item in dataset.items[:3]] == ["18", "3", "70000"]
    assert load(data_dir / "gsm8k").version == dataset.version


@pytest.mark.needs_data
def test_math500_reads_whole(data_dir: Path) -> None:
    dataset = load(data_dir / "math500" / "test.jsonl")
    assert len(dataset.items) == 500
    assert dataset.items[0].item_id == "test/precalculus/807.json"
    assert Counter(len(item.subsets) for item in dataset.items) == {2: 500}
    assert len({item.subsets["subject"] for item in dataset.items}) == 7
    assert {item.subsets["level"] for item in dataset.items} == set("12345")


@pytest.mark.needs_data
def test_aime24_reads_whole(data_dir: Path) -> None:
    dataset = load(data_dir / "aime24" / "aime24.qwen25math.jsonl")
    assert len(dataset.items) == 30
    assert all(str(int(item.gold)) == item.gold for item in dataset.items)
    assert {item.item_id: item.gold for item in dataset.items}["67"] == "25"


@pytest.mark.needs_data
def test_gsm_plus_needs_its_unanswerable_problems_left_out(data_dir: Path) -> None:
    path = data_dir / "gsm_plus" / "gsmplus_testmini.jsonl"
    with pytest.raises(DatasetError, match="300 of 2,400 rows cannot be used"):
        load(path)
    dataset = load(path, exclude_golds=["None"])
    assert len(dataset.items) == 2100
    assert len({item.subsets["perturbation_type"] for item in dataset.items}) == 7
    assert len({item.cluster_id for item in dataset.items}) == 300  # seed questions
