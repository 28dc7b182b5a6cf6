"""The order of the fields in Prefect's form."""

import json

from flows.evaluate import evaluate
from flows.follow_up import follow_up
from flows.orchestration.form import FormSchema, form_schema
from flows.watch import reconcile
from schemas.config import EvaluationConfig
from schemas.sampling import GenerationConfig


def shown(section: FormSchema) -> list[str]:
    """The fields as Prefect's page sorts them, whatever order a database gives them back in."""
    stored = json.loads(json.dumps(section, sort_keys=True))["properties"]
    return sorted(stored, key=lambda name: stored[name]["position"])


def test_the_long_configuration_comes_last() -> None:
    assert shown(form_schema(evaluate)) == ["checkpoint_path", "repeat", "config"]
    assert shown(form_schema(reconcile)) == ["root", "config"]
    assert shown(form_schema(follow_up)) == ["flow_run", "landed", "fileroot", "config"]


def test_what_changes_from_run_to_run_comes_first_and_the_rest_as_documented() -> None:
    definitions = form_schema(evaluate)["definitions"]
    first = ["actor", "valid_dataset", "gconfig", "rollout"]
    documented = list(EvaluationConfig.model_fields)
    assert shown(definitions["EvaluationConfig"]) == first + [name for name in documented if name not in first]
    assert shown(definitions["GenerationConfig"]) == list(GenerationConfig.model_fields)
    assert [title for title, each in definitions.items() for field in each.get("properties", {}).values()
            if "position" not in field] == []  # fmt: skip
