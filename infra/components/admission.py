"""The admission policy that keeps platform metadata to the platform.

The processes trust what they wrote into their custom resources: which spec was accepted, who claimed which stock, what
an Operation records. Write access to a custom resource is not enough to change that: it takes the verb `manage`, which
RBAC grants like any other verb.

| request for a custom resource of the platform                       | without `manage` |
| ------------------------------------------------------------------- | ---------------- |
| creates, changes or deletes an Operation                            | refused          |
| deletes an Operation of a namespace that is being deleted           | allowed          |
| writes a status                                                     | refused          |
| sets, changes or removes an annotation or label of the platform     | refused          |
| adds or removes a finalizer of the platform                         | refused          |
| names an object of the platform as the controller of another one    | refused          |
| any other                                                           | allowed          |

Also with it, an object has at most 1,000 annotations, labels, finalizers and owner references each. One that has more
already may keep or lose them.
"""

import pulumi

from gpu_platform.domain.json_text import Json
from gpu_platform.domain.names import GROUP
from gpu_platform.domain.rbac import MANAGE
from infra.component import Component, build_object, name_of

POLICY = "gpu-platform-metadata"
API_VERSION = "admissionregistration.k8s.io/v1"
DOCUMENTATION = "docs/security.md#platform-metadata"
_PREFIX = f"'{GROUP}/'"
_IS_OPERATION = "request.resource.resource == 'operations'"
_IS_STATUS = "has(request.subResource) && request.subResource == 'status'"

_NAMESPACE = "has(request.namespace) ? request.namespace : ''"
"""Fields of the request that are empty are missing in CEL."""

ENTRY_LIMIT = 1_000
"""Kubernetes has none for labels and finalizers. Looking at them one by one takes time with their square: with 30,000
the API server gives up after half a minute, so that no status is written any more."""

_MAPS = ("annotations", "labels")
_FIELDS = (*_MAPS, "finalizers", "ownerReferences")
_IS_GONE = "request.operation == 'DELETE'"


def build_policy() -> Json:
    rule = {
        "apiGroups": [GROUP],
        "apiVersions": ["*"],
        "operations": ["CREATE", "UPDATE"],
        "resources": ["*", "*/status"],
    }
    operations = {**rule, "operations": ["DELETE"], "resources": ["operations"]}
    return build_object(
        "ValidatingAdmissionPolicy",
        POLICY,
        spec={
            "failurePolicy": "Fail",
            "matchConstraints": {
                "matchPolicy": "Equivalent",
                "resourceRules": [rule, operations],
            },
            "variables": [
                {"name": "managed", "expression": _managed()},
                *(
                    {"name": f"{age}{_capitalise(field)}", "expression": _read(source, field)}
                    for age, source in (("new", "object"), ("old", "oldObject"))
                    for field in _FIELDS
                ),
                *({"name": f"many{_capitalise(field)}", "expression": _has_too_many(field)} for field in _FIELDS),
            ],
            "validations": [
                _validation(
                    f"!({_IS_OPERATION}) || ({_IS_GONE} && has(namespaceObject.metadata.deletionTimestamp))",
                    "only the platform writes Operations",
                ),
                _validation(f"!({_IS_STATUS})", "only the platform writes the status"),
                *(
                    _validation(
                        f"{_IS_GONE} || ({_is_same_map(field)})", f"only the platform writes {field} under {GROUP}/"
                    )
                    for field in ("annotations", "labels")
                ),
                _validation(
                    f"{_IS_GONE} || ({_is_same_list()})", f"only the platform writes finalizers under {GROUP}/"
                ),
                _validation(
                    f"{_IS_GONE} || ({_has_same_controller()})",
                    f"only the platform makes an object of {GROUP} a controller",
                ),
                *map(_limit, _FIELDS),
            ],
        },
    )


def build_policy_binding() -> Json:
    return build_object(
        "ValidatingAdmissionPolicyBinding", POLICY, spec={"policyName": POLICY, "validationActions": ["Deny"]}
    )


def _managed() -> str:
    return (
        f"authorizer.group('{GROUP}').resource(request.resource.resource)"
        f".namespace({_NAMESPACE}).check('{MANAGE}').allowed()"
    )


def _validation(expression: str, fact: str) -> Json:
    """The cheap question first: most requests need no look at the roles."""
    text = f"'{fact}: ' + request.userInfo.username + ' needs the verb {MANAGE} on ' + request.resource.resource"
    return {
        "expression": f"{expression} || variables.managed",
        "messageExpression": f"{text} + ' ({DOCUMENTATION})'",
        "message": f"{fact}: it takes the verb {MANAGE} ({DOCUMENTATION})",
        "reason": "Forbidden",
    }


def _limit(field: str) -> Json:
    return {
        "expression": f"!variables.many{_capitalise(field)}",
        "message": f"at most {ENTRY_LIMIT} {field} are allowed",
        "reason": "Invalid",
    }


def _has_too_many(field: str) -> str:
    new, old = _name_variables(field)
    return f"size({new}) > {ENTRY_LIMIT} && size({new}) > size({old})"


def _name_variables(field: str) -> tuple[str, str]:
    """The field after the request, and before."""
    return f"variables.new{_capitalise(field)}", f"variables.old{_capitalise(field)}"


def _capitalise(field: str) -> str:
    return field[0].upper() + field[1:]


def _read(source: str, field: str) -> str:
    empty = "{}" if field in _MAPS else "[]"
    return f"{source} != null && has({source}.metadata.{field}) ? {source}.metadata.{field} : {empty}"


def _is_same_map(field: str) -> str:
    new, old = _name_variables(field)
    return (
        f"{_needs_no_look(field)} || "
        f"({new}.all(key, !key.startsWith({_PREFIX}) || (key in {old} && {old}[key] == {new}[key])) && "
        f"{old}.all(key, !key.startsWith({_PREFIX}) || key in {new}))"
    )


def _is_same_list() -> str:
    new, old = _name_variables("finalizers")
    return (
        f"{_needs_no_look('finalizers')} || "
        f"({new}.all(each, !each.startsWith({_PREFIX}) || each in {old}) && "
        f"{old}.all(each, !each.startsWith({_PREFIX}) || each in {new}))"
    )


def _has_same_controller() -> str:
    """By its uid: the garbage collector changes the rest of a reference."""
    new, old = _name_variables("ownerReferences")
    is_controller = "has({0}.controller) && {0}.controller".format
    return (
        f"{_needs_no_look('ownerReferences')} || "
        f"{new}.all(each, !(each.apiVersion.startsWith({_PREFIX}) && {is_controller('each')}) || "
        f"{old}.exists(other, other.uid == each.uid && {is_controller('other')}))"
    )


def _needs_no_look(field: str) -> str:
    """Too many are refused anyway, and most requests change none."""
    new, old = _name_variables(field)
    return f"variables.many{_capitalise(field)} || {new} == {old}"


class MetadataPolicy(Component):
    """Has to depend on the kinds, and on the roles with the verb `manage`: in an update, processes that run already get
    it first."""

    def __init__(self, name: str, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__("MetadataPolicy", name, opts)
        policy = self.declare(build_policy())
        self.declare(build_policy_binding(), after=[policy])
        self.policy = name_of(policy)
        self.register_outputs({"policy": self.policy})
