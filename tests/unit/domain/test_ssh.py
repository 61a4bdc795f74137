"""SSH blocks: what is refused and how, what is filled in, and that a token is never among what is written down."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_platform.domain.ssh import (
    PublicKeyError,
    Ssh,
    SshWish,
    accept_ssh,
    access_command,
    check_ssh,
    find_token_hash,
    hash_token,
    hash_token_unsalted,
    parse_public_key,
    target_host,
)
from gpu_platform.domain.units import (
    GPUUnitSpec,
    UnitChange,
    UnitRequest,
    merge_change,
    normalise_request,
    with_token_hash,
)
from gpu_platform.domain.value import RequestError
from tests.support.earlier_version import EARLIER_TOKEN_UNIT
from tests.support.ssh_blocks import encode_key, make_ecdsa_key, make_key, make_rsa_key, ssh_block

RSA = encode_key(b"ssh-rsa", b"\x01\x00\x01", b"\x00" + b"\xc1" * 256)
NEGATIVE_RSA = encode_key(b"ssh-rsa", b"\x03", b"\xc1" * 256)
SK_ED25519 = "sk-ssh-ed25519@openssh.com"
SK_ECDSA = "sk-ecdsa-sha2-nistp256@openssh.com"
ED25519 = encode_key(b"ssh-ed25519", b"\x07" * 32)


def block(**fields: Any) -> Ssh:
    return Ssh.model_validate(ssh_block(**fields))


def wish(**fields: Any) -> SshWish:
    return SshWish.model_validate(ssh_block(**fields))


def request(**fields: Any) -> UnitRequest:
    return UnitRequest.model_validate({"name": "lab", "specName": "g1.1", "image": "example/lab", **fields})


@pytest.mark.parametrize(
    "text",
    [
        make_key(),
        f"ssh-ed25519 {ED25519}",
        f"  ssh-rsa   {RSA}   me and my laptop  ",
        make_rsa_key(1_024),
        make_rsa_key(16_384, exponent=3),
        make_ecdsa_key("nistp256", 32),
        make_ecdsa_key("nistp384", 48),
        f"{make_ecdsa_key('nistp521', 66)} x",
        make_ecdsa_key("nistp256", 32, type_=SK_ECDSA),
        f"{SK_ED25519} {encode_key(SK_ED25519.encode(), b'1' * 32, b'ssh:')}",
    ],
)
def test_a_public_key_is_taken(text: str) -> None:
    assert parse_public_key(text).line == " ".join(text.split())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "should begin with the type"),
        ("-----BEGIN OPENSSH PRIVATE KEY-----\nabc", "is a private key"),
        (f"{make_key()}\n{make_key(8)}", "one line"),
        ("ssh-dss AAAAB3NzaC1kc3M=", "should begin with the type"),
        (f'command="/bin/sh" {make_key()}', "without options"),
        ("ssh-ed25519", "no complete"),
        ("ssh-ed25519 !!!", "not base64"),
        (make_key().rpartition(" ")[0][:-3], "not base64"),
        (f"ssh-ed25519 {RSA}", "another type"),
        (f"ssh-rsa {encode_key(b'ssh-rsa', b'')}", "no complete"),
        (f"ssh-ed25519 {encode_key(b'ssh-ed25519', b'short')}", "no complete"),
        (f"ssh-ed25519 {ED25519[:40]}", "in the middle"),
        (f"{SK_ED25519} {encode_key(SK_ED25519.encode(), b'1' * 31, b'ssh:')}", "no complete"),
        (make_ecdsa_key("nistp384", 48, type_="ecdsa-sha2-nistp256"), "another curve"),
        (make_ecdsa_key("nistp384", 48, type_=SK_ECDSA), "another curve"),
        (make_ecdsa_key("nistp256", 0), "no complete"),
        (make_ecdsa_key("nistp521", 65), "no complete"),
        (make_ecdsa_key("nistp256", 32, first=2), "no complete"),
        (make_ecdsa_key("nistp256", 16, type_=SK_ECDSA), "no complete"),
        (make_rsa_key(3), "of 3 bits"),
        (make_rsa_key(1_023), "of 1023 bits"),
        (make_rsa_key(16_385), "of 16385 bits"),
        (f"ssh-rsa {NEGATIVE_RSA}", "of 0 bits"),
        (make_rsa_key(2_048, exponent=1), "exponent"),
        (make_rsa_key(2_048, exponent=65_536), "exponent"),
        (make_rsa_key(2_048, exponent=2**64 + 1), "exponent"),
    ],
)
def test_what_is_no_public_key_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(PublicKeyError, match=words):
        parse_public_key(text)


@given(st.one_of(st.text(), st.binary().map(lambda raw: f"ssh-rsa {encode_key(b'ssh-rsa', raw)}")))
def test_any_text_is_a_key_or_is_refused(text: str) -> None:
    try:
        key = parse_public_key(text)
    except PublicKeyError:
        return
    assert "\n" not in key.line


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"authorizedKeys": []}, "ssh.authorizedKeys"),
        ({"authorizedKeys": [make_key(), "nonsense"]}, "ssh.authorizedKeys[1]"),
        ({"serverAddr": None}, "ssh.serverAddr"),
        ({"serverAddr": "frp example"}, "ssh.serverAddr"),
        ({"serverAddr": "fe80::1%$(id)"}, "ssh.serverAddr"),
        ({"connectHost": "-x"}, "ssh.connectHost"),
        ({"domainSuffix": None}, "ssh.domainSuffix"),
        ({"domainSuffix": "no_domain"}, "ssh.domainSuffix"),
        ({"clientDomain": "a b"}, "ssh.clientDomain"),
        ({"clientName": "a b"}, "ssh.clientName"),
        ({"username": "root"}, "ssh.username"),
        ({"username": "a b"}, "ssh.username"),
        ({"port": 8000}, "ssh.port"),
    ],
)
def test_parity_37_an_incomplete_block_names_the_field(fields: dict[str, Any], field: str) -> None:
    template = {"ports": [{"name": "http", "port": 8000}]}

    with pytest.raises(RequestError) as refused:
        normalise_request(request(ssh=ssh_block(**fields), template=template))

    assert refused.value.field == field


def test_parity_37_defaults_are_said() -> None:
    ssh = normalise_request(request(ssh=ssh_block())).ssh

    assert ssh is not None
    assert (ssh.username, ssh.port, ssh.server_port, ssh.connect_port) == ("runtime", 2222, 7000, 1337)
    assert ssh.connect_host == "frp.example.com"


def test_a_block_has_one_form() -> None:
    loose = block(
        username=" Ada ", authorizedKeys=[f" {make_key()} ", make_key(comment="again")], domainSuffix=".SSH.example.com"
    )

    ssh = check_ssh(loose)

    assert (ssh.username, ssh.domain_suffix) == ("ada", "ssh.example.com")
    assert ssh.authorized_keys == (make_key(),)
    assert check_ssh(ssh) == ssh


def test_a_block_that_is_not_enabled_is_none() -> None:
    assert normalise_request(request(ssh={"enabled": False, "username": "x y"})).ssh is None


def test_the_domain_is_derived_and_can_be_said() -> None:
    assert target_host(check_ssh(block()), "runtime-instance", "lab") == "lab.runtime-instance.ssh.example.com"
    assert target_host(check_ssh(block(clientDomain="Lab.example.com")), "any", "lab") == "lab.example.com"


def test_the_command_can_be_pasted() -> None:
    assert access_command(check_ssh(block(connectHost="2001:db8::1")), "runtime-instance", "lab") == (
        "ssh -o ProxyCommand='nc -X connect -x [2001:db8::1]:1337 %h %p' runtime@lab.runtime-instance.ssh.example.com"
    )


NEW = "a-new-one"
BEFORE = check_ssh(block(tokenHash="a" * 32))


@pytest.mark.parametrize(
    ("said", "before", "token_hash"),
    [
        (wish(), None, None),
        (wish(), BEFORE, "a" * 32),
        (wish(token=""), BEFORE, None),
        (wish(token=NEW), BEFORE, None),
    ],
)
def test_a_token_stays_until_another_or_none_is_said(said: SshWish, before: Ssh | None, token_hash: str | None) -> None:
    """The digest of a new token is set later: `with_token_hash`."""
    accepted = accept_ssh(said, before)

    assert accepted is not None
    assert accepted.token_hash == token_hash


def test_merging_replaces_the_block_or_takes_it_away() -> None:
    spec = GPUUnitSpec.model_validate({"specName": "g1.1", "image": "example/lab", "ssh": BEFORE.to_json()})

    assert merge_change(spec, UnitChange(image="example/new")).ssh == BEFORE
    assert merge_change(spec, UnitChange.model_validate({"ssh": {"enabled": False}})).ssh is None
    changed = merge_change(spec, UnitChange(ssh=wish(authorizedKeys=[make_key(9)]))).ssh
    assert changed is not None
    assert (changed.authorized_keys, changed.token_hash) == ((make_key(9),), "a" * 32)


def test_nothing_that_is_written_down_holds_the_token() -> None:
    said = wish(token=NEW)
    accepted = accept_ssh(said)

    assert accepted is not None
    for text in (repr(said), str(said.to_json()), repr(accepted), str(accepted.to_json())):
        assert NEW not in text


@pytest.mark.parametrize("token", ["two words", "ünïcode", "line\nbreak"])
def test_a_token_that_the_client_could_not_read_is_refused_without_repeating_it(token: str) -> None:
    with pytest.raises(RequestError) as refused:
        accept_ssh(wish(token=token))

    assert refused.value.field == "ssh.token"
    assert token not in str(refused.value)


PLACE = ("runtime-instance", "lab")


def test_a_digest_is_the_same_for_one_unit_and_another_for_each_unit() -> None:
    digests = {
        hash_token(NEW, *PLACE),
        hash_token(f"{NEW}r", *PLACE),
        hash_token(NEW, "runtime-instance", "other"),
        hash_token(NEW, "tenant-acme", "lab"),
        hash_token(NEW, "runtime", "instance-lab"),
        hash_token_unsalted(NEW),
    }

    assert len(digests) == 6
    assert hash_token(NEW, *PLACE) in digests


@pytest.mark.parametrize(
    ("known", "found"),
    [
        (None, hash_token(NEW, *PLACE)),
        (hash_token(NEW, *PLACE), hash_token(NEW, *PLACE)),
        (hash_token_unsalted(NEW), hash_token_unsalted(NEW)),
        (hash_token("another", *PLACE), hash_token(NEW, *PLACE)),
        (hash_token_unsalted("another"), hash_token(NEW, *PLACE)),
    ],
)
def test_a_token_that_is_known_keeps_its_digest(known: str | None, found: str) -> None:
    assert find_token_hash(NEW, *PLACE, known) == found


def test_digests_that_an_earlier_version_recorded_are_known() -> None:
    recorded = EARLIER_TOKEN_UNIT["unit"]["spec"]["ssh"]["tokenHash"]
    token = EARLIER_TOKEN_UNIT["body"]["ssh"]["token"]

    assert find_token_hash(token, *PLACE, recorded) == recorded
    assert recorded != hash_token(token, *PLACE)


def test_a_request_has_its_digest_and_is_otherwise_as_it_was() -> None:
    plain = normalise_request(request(ssh=block().to_json()))
    hashed = with_token_hash(plain, "b" * 32)

    assert hashed.ssh is not None
    assert hashed.ssh.token_hash == "b" * 32
    assert with_token_hash(hashed, "c" * 32) == with_token_hash(plain, "c" * 32)
