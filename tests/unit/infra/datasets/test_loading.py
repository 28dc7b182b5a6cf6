"""A dataset is loaded whole and validated, or refused with every defective row counted."""

import json
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.datasets import load_dataset
from infra.datasets.digests import content_id, dataset_version
from infra.datasets.rows import Turn
from schemas.dataset import ChatMessage, EvalItem, LoadedDataset
from schemas.errors import DatasetError, RefusedRowsError
from schemas.valid_dataset import ColumnMapping, ValidDatasetConfig

COLUMNS = ColumnMapping(prompt="q", gold="a", id="id")
SUFFIX = "\nPlease reason step by step, and put your final answer within \\boxed{}."


def accept_all(golds: Sequence[str]) -> list[str | None]:
    return [None] * len(golds)


def refuse_words(golds: Sequence[str]) -> list[str | None]:
    return [None if gold.isdigit() else "no number in it" for gold in golds]


def write(path: Path, rows: Sequence[object]) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def load(config: ValidDatasetConfig) -> LoadedDataset:
    return load_dataset(config, seed=1, check_golds=refuse_words)


def test_items_carry_prompt_gold_and_subsets(tmp_path: Path) -> None:
    row = {"problem": "p?", "solution": "s", "answer": "7", "subject": "Algebra", "level": 1, "unique_id": "u/1"}
    dataset = load(ValidDatasetConfig(path=write(tmp_path / "mini.jsonl", [row])))
    assert dataset.name == "mini"
    assert dataset.items == (
        EvalItem(
            item_id="u/1",
            messages=(ChatMessage(role="user", content=f"p?{SUFFIX}"),),
            gold="7",
            subsets={"subject": "Algebra", "level": "1"},
            solution="s",
            prompt_suffix=SUFFIX,
        ),
    )


def test_suffix_and_system_prompt_follow_the_configuration(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", [{"q": "p?", "a": 1}])
    columns = ColumnMapping(prompt="q", gold="a")
    plain = load(ValidDatasetConfig(path=path, columns=columns, prompt_suffix=""))
    framed = load(ValidDatasetConfig(path=path, columns=columns, prompt_suffix=" Now.", system_prompt="Be brief."))
    assert [message.content for message in plain.items[0].messages] == ["p?"]
    assert [(m.role, m.content) for m in framed.items[0].messages] == [("system", "Be brief."), ("user", "p? Now.")]
    assert plain.items[0].item_id == framed.items[0].item_id
    assert plain.version != framed.version


def test_a_conversation_gets_no_suffix_and_one_system_prompt(tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "old"}, {"role": "user", "content": "p?"}]
    path = write(tmp_path / "x.jsonl", [{"m": messages, "a": "1"}])
    mapping = ColumnMapping(messages="m", gold="a")
    kept = load(ValidDatasetConfig(path=path, columns=mapping))
    replaced = load(ValidDatasetConfig(path=path, columns=mapping, system_prompt="new"))
    assert [message.content for message in kept.items[0].messages] == ["old", "p?"]
    assert [message.content for message in replaced.items[0].messages] == ["new", "p?"]


def test_every_defect_is_counted_and_the_first_five_are_shown(tmp_path: Path) -> None:
    rows: list[object] = [
        {"q": "p", "a": "1", "id": "same"},
        {"q": " ", "a": "2", "id": 2},
        {"q": "p", "a": "x", "id": 3},
    ]
    rows += [{"q": "p", "a": True, "id": 4}, {"a": "1", "id": 5}, ["no", "object"], {"q": "p", "a": "1", "id": "same"}]
    path = write(tmp_path / "x.jsonl", rows)
    with pytest.raises(RefusedRowsError) as caught:
        load(ValidDatasetConfig(path=path, columns=COLUMNS))
    message = str(caught.value)
    assert "6 of 7 rows cannot be used" in message
    assert "row 2: column 'q' is an empty prompt" in message
    assert "row 4: column 'a' is True, expected text or a number" in message
    assert "row 5: column 'q' is absent" in message
    assert "row 6: is ['no', 'object']" in message
    assert "... and 1 more" in message
    assert caught.value.rows[-1] == (
        7,
        "is the same problem as row 1 and has its id 'same'; to ask each problem several times, set gconfig.n_samples",
    )
    assert caught.value.exit_code == 2


def test_a_gold_that_cannot_be_graded_is_refused_with_its_row(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", [{"q": "p", "a": "1"}, {"q": "p", "a": "None"}])
    with pytest.raises(DatasetError, match="row 2: gold 'None' cannot be graded: no number in it"):
        load(ValidDatasetConfig(path=path, columns=ColumnMapping(prompt="q", gold="a")))


def test_excluded_golds_are_left_out_and_said(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", [{"q": "p", "a": "None"}, {"q": "q", "a": "1"}, {"q": "r", "a": "2"}])
    mapping = ColumnMapping(prompt="q", gold="a")
    dataset = load(ValidDatasetConfig(path=path, columns=mapping, exclude_golds=("None",), limit=1))
    assert [item.gold for item in dataset.items] == ["1"]
    assert dataset.notes == ("1 rows left out: their gold is in valid_dataset.exclude_golds",)
    with pytest.raises(DatasetError, match="all 3 rows are left out"):
        load(ValidDatasetConfig(path=path, columns=mapping, exclude_golds=("None", "1", "2")))


def test_equal_rows_without_ids_are_duplicates(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", [{"q": "p", "a": "1"}, {"q": "p", "a": "2"}, {"q": "p", "a": 1}])
    with pytest.raises(DatasetError, match=r"row 3: is the same problem as row 1; to ask each .* gconfig\.n_samples"):
        load(ValidDatasetConfig(path=path, columns=ColumnMapping(prompt="q", gold="a")))


def test_an_id_of_two_problems_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", [{"q": "p", "a": "1", "id": "i"}, {"q": "r", "a": "1", "id": "i"}])
    with pytest.raises(DatasetError, match="row 2: has the id 'i' of row 1; ids must be unique"):
        load(ValidDatasetConfig(path=path, columns=COLUMNS))


def test_rows_that_cannot_be_used_are_left_out_and_counted_on_request(tmp_path: Path) -> None:
    rows: list[object] = [{"q": "p", "a": "1"}, {"q": "r", "a": "x"}, 7, {"q": "p", "a": "1"}, {"q": "s", "a": "3"}]
    path = write(tmp_path / "x.jsonl", rows)
    config = ValidDatasetConfig(path=path, columns=ColumnMapping(prompt="q", gold="a"), invalid_rows="skip")
    dataset = load(config)
    assert [item.gold for item in dataset.items] == ["1", "3"]
    assert [row.row for row in dataset.skipped] == [2, 3, 4]
    assert dataset.skipped[0].reason == "gold 'x' cannot be graded: no number in it"
    assert (
        dataset.version
        == load(config.model_copy(update={"path": write(tmp_path / "y.jsonl", [rows[0], rows[4]])})).version
    )
    with pytest.raises(DatasetError, match="3 of 3 rows cannot be used"):
        load(config.model_copy(update={"path": write(tmp_path / "z.jsonl", [7, 8, 9])}))


def test_problems_that_belong_together_are_one_cluster(tmp_path: Path) -> None:
    rows = [{"q": "p", "a": "1", "id": 1, "s": "seed"}, {"q": "r", "a": "2", "id": 2, "s": "seed"}]
    rows += [{"q": "t", "a": "3", "id": 3, "s": "x" * 65}, {"q": "u", "a": "4", "id": 4}, {"q": "u", "a": "4", "id": 5}]
    path = write(tmp_path / "x.jsonl", rows)
    named = load(ValidDatasetConfig(path=path, columns=COLUMNS.model_copy(update={"cluster": "s"})))
    assert [item.cluster_id for item in named.items[:2]] == ["seed", "seed"]
    assert len(named.items[2].cluster_id or "") == 32
    assert [item.cluster_id for item in named.items[3:]] == ["4", "4"]
    assert named.notes == ("1 rows ask what another row asks: they count as one cluster in error bars",)
    unnamed = load(ValidDatasetConfig(path=path, columns=COLUMNS))
    assert [item.cluster_id for item in unnamed.items] == [None, None, None, "4", "4"]
    assert unnamed.version != named.version


@pytest.mark.parametrize("key", ["subsets", "solution", "cluster"])
def test_an_optional_column_may_be_absent_in_the_first_row_but_not_in_all(tmp_path: Path, key: str) -> None:
    rows = [{"q": "p", "a": "1"}, {"q": "r", "a": "2", "k": "x"}]
    mapping = ColumnMapping.model_validate({"prompt": "q", "gold": "a", key: ["k"] if key == "subsets" else "k"})
    assert len(load(ValidDatasetConfig(path=write(tmp_path / "x.jsonl", rows), columns=mapping)).items) == 2
    with pytest.raises(DatasetError, match=rf"column 'k' \(valid_dataset\.columns\.{key}\) is in none of the 1 rows"):
        load(ValidDatasetConfig(path=write(tmp_path / "y.jsonl", rows[:1]), columns=mapping))


IMAGE = {"bytes": None, "path": "a.png"}


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("images", [IMAGE]),
        ("image", IMAGE),
        ("anything", IMAGE),
        ("image", "images/11.png"),
        ("images", ["<path>"]),
        ("image_3", "https://x.org/a.jpg?size=2"),
        ("audio", {"bytes": "UklGRg==", "path": None}),
        ("video_path", "clips/1.mp4"),
        ("picture", "iVBORw0KGgo" + "A" * 200),
        ("context", "data:image/png;base64,iVBORw0KGgo="),
        ("m", [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x.org/a"}}]}]),
        ("m", [{"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "UklGRg=="}}]}]),
        ("m", [{"role": "user", "content": [{"image": "file:///a.png"}]}]),
    ],
)
def test_rows_with_media_are_refused_by_the_name_of_the_column(tmp_path: Path, column: str, value: object) -> None:
    mapping = ColumnMapping(prompt="q", gold="a")
    path = write(tmp_path / "x.jsonl", [{"q": "<image>p", "a": "1", column: value}])
    with pytest.raises(
        DatasetError, match=f"row 1: column '{column}' holds an image, audio or video, which no workflow"
    ):
        load(ValidDatasetConfig(path=path, columns=mapping))


@pytest.mark.parametrize(
    ("column", "value"),
    [
        ("images", []),
        ("images", None),
        ("image", ""),
        ("image", "None"),
        ("image", {"bytes": None, "path": None}),
        ("num_images", 3),
        ("image", False),
        ("figure", "see the table"),
        ("img_width", 250),
        ("source", "textbook.pdf"),
        ("kind", {"type": "imaginary", "note": "x"}),
        ("m", [{"role": "user", "content": [{"type": "text", "text": "an image_url"}]}]),
    ],
)
def test_rows_without_media_are_read(tmp_path: Path, column: str, value: object) -> None:
    path = write(tmp_path / "x.jsonl", [{"q": "p", "a": "1", column: value}])
    assert load(ValidDatasetConfig(path=path, columns=ColumnMapping(prompt="q", gold="a"))).items


def test_a_row_with_images_is_named_even_where_the_columns_say_nothing(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", [{"text": "p", "choice": "A", "image": "images/1.png"}])
    with pytest.raises(DatasetError, match=r"cannot be told.*column 'image' holds an image"):
        load(ValidDatasetConfig(path=path))


def test_a_problem_longer_than_the_context_is_refused_before_it_is_tokenised(tmp_path: Path) -> None:
    path = write(tmp_path / "x.jsonl", [{"q": "p" * 100, "a": "1"}, {"q": "p" * 101, "a": "1"}])
    config = ValidDatasetConfig(path=path, columns=ColumnMapping(prompt="q", gold="a"))
    with pytest.raises(
        DatasetError, match="row 2: its problem has 101 characters, the model's context holds at most 100"
    ):
        load_dataset(config, seed=1, check_golds=refuse_words, max_prompt_chars=100)


def test_a_torn_last_line_is_refused_unless_the_limit_ends_before_it(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"q": "p", "a": "1", "id": "a"}\n{"q": "p", "a": "2", "i', encoding="utf-8")
    with pytest.raises(DatasetError, match=r"row 2: is not JSON .*ends in the middle of this line"):
        load(ValidDatasetConfig(path=str(path), columns=COLUMNS))
    assert len(load(ValidDatasetConfig(path=str(path), columns=COLUMNS, limit=1)).items) == 1


@pytest.mark.parametrize("content", ["", "\n\n", "[]", '{"data": []}', "q,a\n"])
def test_an_empty_dataset_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / {"[": "x.json", "{": "x.json", "q": "x.csv"}.get(content[:1], "x.jsonl")
    path.write_text(content, encoding="utf-8")
    with pytest.raises(DatasetError, match="the dataset is empty"):
        load(ValidDatasetConfig(path=str(path)))


def test_a_path_that_is_not_there_names_the_nearest(tmp_path: Path) -> None:
    write(tmp_path / "test.jsonl", [])
    with pytest.raises(DatasetError, match=r"did you mean 'test\.jsonl'\?"):
        load(ValidDatasetConfig(path=str(tmp_path / "tset.jsonl")))
    with pytest.raises(DatasetError, match="there is no 'no'"):
        load(ValidDatasetConfig(path=str(tmp_path / "no" / "such" / "file.csv")))


@pytest.mark.parametrize("path", ["x" * 300 + ".jsonl", "~no-such-user/x.jsonl", "nul\0.jsonl", "a/b/c.jsonl", "-"])
def test_no_path_ends_in_a_traceback(path: str) -> None:
    with pytest.raises(DatasetError):
        load(ValidDatasetConfig(path=path))


def test_an_unknown_suffix_is_refused(tmp_path: Path) -> None:
    (tmp_path / "x.txt").write_text("hello", encoding="utf-8")
    with pytest.raises(DatasetError, match=r"'\.txt' is not one of \.jsonl, \.json, \.parquet, \.csv"):
        load(ValidDatasetConfig(path=str(tmp_path / "x.txt")))


def test_a_file_is_named_after_its_folder_when_its_name_says_only_the_split(tmp_path: Path) -> None:
    (tmp_path / "arith").mkdir()
    path = write(tmp_path / "arith" / "test.jsonl", [{"problem": "p", "answer": "1"}])
    assert load(ValidDatasetConfig(path=path)).name == "arith"
    assert load(ValidDatasetConfig(path=path, name="mine")).name == "mine"
    assert load(ValidDatasetConfig(path=path, split="test")).notes == ()
    assert "split='train' is not used" in load(ValidDatasetConfig(path=path, split="train")).notes[0]


def test_the_version_does_not_depend_on_the_file_format(tmp_path: Path) -> None:
    rows = [{"q": "p\u2028?", "a": 1, "k": "x", "s": None}, {"q": "r", "a": 2, "k": "y", "s": "why"}]
    mapping = ColumnMapping(prompt="q", gold="a", subsets=("k",), solution="s")
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    floats = [{**row, "a": float(str(row["a"]))} for row in rows]
    pq.write_table(pa.Table.from_pylist(floats), tmp_path / "f.parquet")
    (tmp_path / "x.json").write_text(json.dumps(rows), encoding="utf-8")
    (tmp_path / "x.csv").write_text("s,k,a,q\n,x,1,p\u2028?\nwhy,y,2,r\n", encoding="utf-8")
    write(tmp_path / "x.jsonl", rows)
    versions = {
        name: load(ValidDatasetConfig(path=str(tmp_path / name), columns=mapping)).version
        for name in ("x.jsonl", "x.json", "x.parquet", "f.parquet", "x.csv")
    }
    assert len(set(versions.values())) == 1, versions


ITEMS = st.builds(
    EvalItem,
    item_id=st.text(max_size=3),
    messages=st.lists(
        st.builds(ChatMessage, role=st.sampled_from(["system", "user"]), content=st.text("ab:~1", max_size=3)),
        max_size=2,
    ).map(tuple),
    gold=st.text("ab:~1", max_size=3),
    subsets=st.dictionaries(st.text("ab", max_size=1), st.text("ab", max_size=1), max_size=2),
    solution=st.none() | st.text("ab:~1", max_size=2),
)


@given(st.lists(ITEMS, max_size=3), st.lists(ITEMS, max_size=3))
def test_two_datasets_share_a_version_only_when_all_items_are_equal_in_order(
    first: list[EvalItem], second: list[EvalItem]
) -> None:
    assert (dataset_version(first) == dataset_version(second)) == (first == second)


def test_digests_keep_their_values_across_releases() -> None:
    item = EvalItem(
        item_id="i", messages=(ChatMessage(role="user", content="ü"),), gold="1", subsets={"b": "1", "a": "2"}
    )
    assert content_id([Turn("user", "ü")], "1") == "9bf1bcb92b389d33e6e818207f776b48"
    assert dataset_version([item]) == "1495c73ffe4fe9320a532f33721f0f50"
