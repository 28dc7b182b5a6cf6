"""Docs of fields are nouns: they are the reference page, the form of Prefect and the columns of tables."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

SCHEMAS = Path(__file__).parents[3] / "schemas"
PRONOUN = re.compile(r"(?:It|Its|They|Their|Those|These|This|That|He|She|Who|How|When|Where|Why|So many|As in)\b")


def field_docs() -> Iterator[tuple[str, str]]:
    for file in sorted(SCHEMAS.rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.ClassDef):
                for field, doc in zip(node.body, node.body[1:], strict=False):
                    if isinstance(field, ast.AnnAssign | ast.Assign) and isinstance(doc, ast.Expr):
                        place = f"{file.relative_to(SCHEMAS)}:{doc.lineno} {node.name}"
                        yield place, str(ast.literal_eval(doc.value))


def test_the_docs_of_a_field_do_not_start_with_a_pronoun() -> None:
    docs = list(field_docs())
    assert len(docs) > 500
    assert [f"{place}: {doc}" for place, doc in docs if PRONOUN.match(doc)] == []


def test_the_pattern_finds_what_it_is_for() -> None:
    assert all(map(PRONOUN.match, ("It.", "How.", "When.", "Its number.", "Why it ended; None when it did not.")))
    assert not any(map(PRONOUN.match, ("Item of the plan.", "Whenever", "Howitzer", "Reason", "Thistle")))
