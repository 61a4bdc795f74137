"""The admission policy as an object. What it refuses is shown on a real API server: `test_platform_metadata`."""

import re

from gpu_platform.domain.names import GROUP
from gpu_platform.domain.rbac import MANAGE
from infra.components.admission import POLICY, build_policy, build_policy_binding


def test_a_policy_that_cannot_be_evaluated_refuses() -> None:
    assert build_policy()["spec"]["failurePolicy"] == "Fail"
    assert build_policy_binding()["spec"] == {"policyName": POLICY, "validationActions": ["Deny"]}


def test_every_rule_but_the_limits_can_be_overridden_by_the_verb_and_names_it() -> None:
    spec = build_policy()["spec"]
    [managed] = [each["expression"] for each in spec["variables"] if each["name"] == "managed"]
    assert f"check('{MANAGE}')" in managed
    limits = [each for each in spec["validations"] if each["reason"] == "Invalid"]
    rules = [each for each in spec["validations"] if each not in limits]
    assert [each["message"].startswith("at most 1000 ") for each in limits] == [True] * 4
    assert len(rules) == 6
    for validation in rules:
        assert validation["expression"].endswith(" || variables.managed")
        assert f"the verb {MANAGE}" in validation["message"]
        assert validation["reason"] == "Forbidden"


def test_it_reads_no_variable_that_it_does_not_define() -> None:
    spec = build_policy()["spec"]
    defined = {each["name"] for each in spec["variables"]}
    expressions = " ".join(each["expression"] for each in (*spec["variables"], *spec["validations"]))
    assert set(re.findall(r"variables\.(\w+)", expressions)) == defined


def test_it_holds_for_all_kinds_of_the_platform_and_their_status() -> None:
    written, deleted = build_policy()["spec"]["matchConstraints"]["resourceRules"]
    assert (written["apiGroups"], written["resources"]) == ([GROUP], ["*", "*/status"])
    assert (deleted["operations"], deleted["resources"]) == (["DELETE"], ["operations"])
