"""Keys, tokens and credentials of NATS. That the real server takes them is tests/integration/test_queue_connection."""

import base64
import hashlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from gpu_platform.nats.credentials import (
    CredentialsFormError,
    KeyFormError,
    Keyring,
    KeyringError,
    KeyRole,
    build_account,
    build_seed,
    build_user,
    check_public_key,
    mint_sidecar,
    parse_credentials,
    parse_keyring,
    public_key_of,
    read_claims,
    read_public_key,
    read_seed,
    sign,
)
from gpu_platform.nats.permissions import (
    SHARED,
    WORKERS_JETSTREAM,
    QueueUser,
    inbox_prefix_of,
    permissions_of,
    sidecar_inbox_prefix,
    sidecar_permissions,
)

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
RAW = bytes(range(32))

# An example of the documentation of NATS.
DOCUMENTED_SEED = "SUACSSL3UAHUDXKFSNVUZRF5UHPMWZ6BFDTJ7M6USDXIEDNPPQYYYCU3VY"
DOCUMENTED_KEY = "UDXU4RCSJNZOIQHZNWXHXORDPRTGNJAHAHFRGZNEEJCPQTT2M7NLCNF4"


def verify(public_key: str, signature: bytes, data: bytes) -> None:
    Ed25519PublicKey.from_public_bytes(read_public_key(public_key)[1]).verify(signature, data)


def draws() -> Iterator[bytes]:
    number = 0
    while True:
        number += 1
        yield hashlib.sha256(str(number).encode()).digest()


@pytest.fixture
def keyring() -> Keyring:
    drawn = draws()
    return Keyring.new(lambda count: next(drawn)[:count])


def parts_of(token: str) -> list[bytes]:
    return [base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)) for part in token.split(".")]


def test_a_documented_key_is_read_as_the_documentation_says() -> None:
    role, raw = read_seed(DOCUMENTED_SEED)
    assert (role, public_key_of(DOCUMENTED_SEED)) == (KeyRole.USER, DOCUMENTED_KEY)
    assert build_seed(role, raw) == DOCUMENTED_SEED


@pytest.mark.parametrize(("role", "letter"), [(KeyRole.OPERATOR, "O"), (KeyRole.ACCOUNT, "A"), (KeyRole.USER, "U")])
def test_one_sees_what_a_key_is_for(role: KeyRole, letter: str) -> None:
    seed = build_seed(role, RAW)
    assert seed.startswith(f"S{letter}")
    assert public_key_of(seed).startswith(letter)
    assert read_seed(seed) == (role, RAW)
    assert read_public_key(public_key_of(seed))[0] is role


def test_a_signature_is_good_for_its_key_and_its_words_only() -> None:
    seed = build_seed(KeyRole.USER, RAW)
    verify(public_key_of(seed), sign(seed, b"nonce"), b"nonce")
    with pytest.raises(InvalidSignature):
        verify(public_key_of(seed), sign(seed, b"nonce"), b"another")


@pytest.mark.parametrize(
    "text", ["", "S", "SU", DOCUMENTED_SEED[:-1], DOCUMENTED_SEED[:-1] + "A", DOCUMENTED_SEED.lower(), DOCUMENTED_KEY]
)
def test_what_is_no_seed_is_refused_and_not_repeated(text: str) -> None:
    with pytest.raises(KeyFormError) as caught:
        read_seed(text)
    assert text == "" or text not in str(caught.value).split()


def test_a_key_of_another_role_is_refused() -> None:
    with pytest.raises(KeyFormError, match="role user, not account"):
        check_public_key(DOCUMENTED_KEY, KeyRole.ACCOUNT)
    with pytest.raises(KeyFormError, match="not account"):
        build_account(build_seed(KeyRole.OPERATOR, RAW), DOCUMENTED_KEY, "X", NOW)
    with pytest.raises(KeyFormError, match="signed with an account's key"):
        mint_sidecar(DOCUMENTED_SEED, "acme", "resize", NOW)


def test_a_token_says_who_vouches_for_whom_and_is_signed_by_that_one(keyring: Keyring) -> None:
    credentials = keyring.credentials_of(QueueUser.API, NOW)
    header, body, signature = parts_of(credentials.token)
    claims = json.loads(body)

    assert json.loads(header) == {"typ": "JWT", "alg": "ed25519-nkey"}
    assert (claims["iss"], claims["sub"]) == (public_key_of(keyring.account), public_key_of(credentials.seed))
    assert (claims["iat"], claims["name"]) == (int(NOW.timestamp()), "api")
    assert (claims["nats"]["type"], claims["nats"]["version"]) == ("user", 2)
    assert claims["nats"]["pub"]["allow"] == list(permissions_of(QueueUser.API).publish)
    verify(claims["iss"], signature, credentials.token.rpartition(".")[0].encode())


def test_a_tokens_id_is_the_hash_of_what_it_says(keyring: Keyring) -> None:
    claims = dict(read_claims(keyring.credentials_of(QueueUser.API, NOW).token))
    named = claims.pop("jti")
    digest = hashes.Hash(hashes.SHA512_256())
    digest.update(json.dumps(claims, separators=(",", ":")).encode())
    assert named == base64.b32encode(digest.finalize()).decode().rstrip("=")


def test_a_token_ends_when_it_is_told_to(keyring: Keyring) -> None:
    text = mint_sidecar(keyring.workers, "acme", "resize", NOW, timedelta(days=1))
    assert read_claims(parse_credentials(text).token)["exp"] == int((NOW + timedelta(days=1)).timestamp())
    assert "exp" not in read_claims(parse_credentials(mint_sidecar(keyring.workers, "acme", "resize", NOW)).token)


def test_the_same_question_has_the_same_credentials_and_another_one_others(keyring: Keyring) -> None:
    first = mint_sidecar(keyring.workers, "acme", "resize", NOW)
    assert mint_sidecar(keyring.workers, "acme", "resize", NOW) == first
    others = (
        mint_sidecar(keyring.workers, "acme", "resize", NOW + timedelta(seconds=1)),
        mint_sidecar(keyring.workers, "acme", "other", NOW),
        mint_sidecar(keyring.workers, "umbrella", "resize", NOW),
        mint_sidecar(keyring.account, "acme", "resize", NOW),
    )
    assert len({parse_credentials(text).seed for text in (first, *others)}) == 5


def test_a_sidecar_belongs_to_the_account_of_the_workers(keyring: Keyring) -> None:
    credentials = parse_credentials(mint_sidecar(keyring.workers, "acme", "resize", NOW))
    assert read_claims(credentials.token)["iss"] == public_key_of(keyring.workers)
    assert credentials.jetstream_prefix == WORKERS_JETSTREAM
    assert keyring.credentials_of(QueueUser.API, NOW).jetstream_prefix is None


def test_credentials_are_read_back_as_they_were_written(keyring: Keyring) -> None:
    credentials = keyring.credentials_of(QueueUser.FUNCTIONS, NOW)
    assert parse_credentials(credentials.render()) == credentials
    assert parse_credentials(credentials.render().replace("\n", "\r\n")) == credentials


def test_broken_credentials_are_refused_and_not_repeated(keyring: Keyring) -> None:
    api, other = (keyring.credentials_of(user, NOW) for user in (QueueUser.API, QueueUser.FUNCTIONS))
    text = api.render()
    broken = {
        "": "should hold a user's token and its seed",
        text.partition("***")[0]: "should hold a user's token and its seed",
        text.replace(api.seed, other.seed): "not that of the user",
        text.replace(api.seed, api.seed[:-2]): "checksum",
        text.replace(api.token, "a.b.c"): "not one of NATS",
        text.replace(api.token, "nothing"): "not one of NATS",
    }
    for each, sentence in broken.items():
        with pytest.raises(CredentialsFormError, match=sentence) as caught:
            parse_credentials(each)
        assert api.seed[:-2] not in str(caught.value)


def test_a_ring_of_keys_is_read_back_as_it_was_written(keyring: Keyring) -> None:
    assert parse_keyring(keyring.render()) == keyring


def test_what_is_no_ring_of_keys_is_refused(keyring: Keyring) -> None:
    swapped = keyring.render().replace(keyring.operator, keyring.account)
    for text in ("", "[]", "{}", keyring.render().replace(keyring.system, "SA"), swapped):
        with pytest.raises(KeyringError) as caught:
            parse_keyring(text)
        assert keyring.account not in str(caught.value)


def test_the_servers_block_holds_no_secret(keyring: Keyring) -> None:
    block = keyring.render_server(NOW)
    seeds = (keyring.operator, keyring.system, keyring.account, keyring.workers, *keyring.users.values())
    assert not [seed for seed in seeds if seed in block]


def test_everybody_listens_to_an_inbox_of_their_own() -> None:
    prefixes = [inbox_prefix_of(user) for user in QueueUser]
    prefixes += [sidecar_inbox_prefix("acme", "resize"), sidecar_inbox_prefix("acme-resize", "x")]
    assert len(set(prefixes)) == len(prefixes)
    for user in set(QueueUser) - {QueueUser.PLATFORM}:
        inboxes = [subject for subject in permissions_of(user).subscribe if subject.startswith("_INBOX")]
        assert inboxes == [f"{inbox_prefix_of(user)}.>"]
    assert sidecar_permissions("acme", "resize").subscribe == ("_INBOX_acme_resize.>",)


def test_only_the_functions_controller_makes_streams_and_consumers() -> None:
    makers = {
        user
        for user in set(QueueUser) - {QueueUser.PLATFORM}
        for subject in permissions_of(user).publish
        if any(verb in subject for verb in (".CREATE", ".UPDATE", "CONSUMER.DELETE", "STREAM.DELETE"))
    }
    assert makers == {QueueUser.FUNCTIONS}


def test_whatever_a_sidecar_may_say_is_shared_with_its_account() -> None:
    shared = [each.local_subject.replace("$1", "*") for each in SHARED]

    def is_within(subject: str, pattern: str) -> bool:
        words, places = subject.split("."), pattern.split(".")
        for word, place in zip(words, places, strict=False):
            if place == ">":
                return True
            if place not in ("*", word):
                return False
        return len(words) == len(places)

    for subject in sidecar_permissions("acme", "resize").publish:
        assert any(is_within(subject, pattern) for pattern in shared), subject


def test_a_user_of_an_account_is_signed_with_its_key(keyring: Keyring) -> None:
    with pytest.raises(KeyFormError, match="an account's key"):
        build_user(keyring.operator, DOCUMENTED_KEY, "x", permissions_of(QueueUser.API), NOW)
