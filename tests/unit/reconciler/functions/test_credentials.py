"""The Secret of a function's workers: when it is made, when it is made anew, and what it holds."""

import base64
from datetime import timedelta
from pathlib import Path

import pytest

from gpu_platform.domain.json_text import Json
from gpu_platform.nats.credentials import KeyRole, build_seed, parse_credentials, read_claims
from reconciler.functions.credentials import (
    LIFETIME,
    RENEWAL,
    CredentialsError,
    Signer,
    Signing,
    plan_secret,
)
from reconciler.guarded_writes import CreateObject, ReplaceObject
from tests.support.builders import NOW, make_function

FUNCTION = make_function()
SEED = build_seed(KeyRole.ACCOUNT, bytes(32))
OTHER_SEED = build_seed(KeyRole.ACCOUNT, bytes([1]) * 32)
SIGNING = Signing(SEED, "the authority")


def created(signing: Signing = SIGNING) -> Json:
    plan = plan_secret(FUNCTION, "default", None, signing, NOW)
    assert isinstance(plan, CreateObject)
    return plan.body


def stored(signing: Signing = SIGNING) -> Json:
    body = created(signing)
    return {**body, "metadata": {**body["metadata"], "uid": "uid-secret", "resourceVersion": "1"}}


def test_a_missing_secret_is_made_and_belongs_to_the_function() -> None:
    secret = created()

    content = {key: base64.b64decode(text).decode() for key, text in secret["data"].items()}
    assert secret["metadata"]["name"] == "function-words"
    assert secret["metadata"]["ownerReferences"][0]["uid"] == "uid-words"
    assert content["ca.crt"] == "the authority"
    assert read_claims(parse_credentials(content["nats.creds"]).token)["name"] == "sidecar default/words"


def test_a_secret_that_is_as_it_should_be_is_left_alone() -> None:
    assert plan_secret(FUNCTION, "default", stored(), SIGNING, NOW + RENEWAL / 2) is None


@pytest.mark.parametrize(
    ("signing", "age"),
    [
        (SIGNING, RENEWAL),
        (SIGNING, LIFETIME * 2),
        (Signing(OTHER_SEED, "the authority"), timedelta()),
        (Signing(SEED, "another authority"), timedelta()),
    ],
    ids=["a third of its time has passed", "it has ended", "another key", "another authority"],
)
def test_a_secret_is_made_anew_as_it_was_seen(signing: Signing, age: timedelta) -> None:
    plan = plan_secret(FUNCTION, "default", stored(), signing, NOW + age)

    assert isinstance(plan, ReplaceObject)
    assert (plan.body["metadata"]["uid"], plan.body["metadata"]["resourceVersion"]) == ("uid-secret", "1")


def test_a_secret_that_somebody_spoilt_is_made_anew() -> None:
    spoilt = stored()
    spoilt["metadata"] = {**spoilt["metadata"], "annotations": None}

    assert isinstance(plan_secret(FUNCTION, "default", spoilt, SIGNING, NOW), ReplaceObject)


def test_a_secret_of_somebody_else_is_not_touched() -> None:
    foreign = stored()
    foreign["metadata"] = {**foreign["metadata"], "ownerReferences": []}

    with pytest.raises(CredentialsError, match="function-words is not of this function"):
        plan_secret(FUNCTION, "default", foreign, SIGNING, NOW)


def test_a_file_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    key = tmp_path / "signing.key"
    with pytest.raises(CredentialsError, match=f"natsSigningKey {key}: No such file"):
        Signer(key, None).read()
    key.write_text("SAnothing")
    with pytest.raises(CredentialsError, match=f"natsSigningKey {key}: "):
        Signer(key, None).read()
