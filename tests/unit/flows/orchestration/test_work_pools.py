"""A closed pool: no run names its program."""

import sys

from prefect.workers.process import ProcessWorker

from flows.orchestration.work_pools import close_template, is_closed


def test_a_new_pool_of_processes_names_the_program_itself() -> None:
    template = close_template(ProcessWorker.get_default_base_job_template())
    assert template["job_configuration"]["command"].startswith(sys.executable)
    assert "command" not in template["variables"]["properties"]
    assert {"env", "working_dir"} <= set(template["variables"]["properties"])
    assert is_closed(template)
    assert close_template(template) == template


def test_what_people_made_of_a_pool_stays() -> None:
    """But its command, and variables that it does not declare."""
    opened = {
        "variables": {
            "properties": {"command": {"type": "string"}, "env": {"default": {"A": "1"}}},
            "required": ["env"],
        },
        "job_configuration": {"command": "{{ command }}", "env": "{{ env }}", "labels": {}},
    }
    closed = close_template(opened)
    assert (is_closed(opened), is_closed(closed)) == (False, True)
    assert closed["variables"]["properties"] == {"env": {"default": {"A": "1"}}}
    assert closed["variables"]["required"] == ["env"]
    assert closed["job_configuration"] | {"command": ""} == {"command": "", "env": "{{ env }}", "labels": {}}
