"""By what the cluster's processes prove who they are: certificates of its own authority, which is made once per
directory (leaves are made at every start), and the keys and credentials of NATS."""

import ipaddress
import secrets
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from gpu_platform.devcluster import DevClusterError
from gpu_platform.devcluster.directory import ClusterDirectory
from gpu_platform.domain.rbac import ACCOUNTS, account_groups, account_user
from gpu_platform.nats.credentials import Keyring, KeyringError, parse_keyring
from gpu_platform.nats.permissions import QueueUser
from gpu_platform.process import write_atomically

AUTHORITY_LIFE = timedelta(days=3650)
LEAF_LIFE = timedelta(days=365)
CLOCK_SKEW = timedelta(minutes=5)

SERVER_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)

SERVER_ADDRESSES = ("127.0.0.1", "10.0.0.1")
"""Loopback, and the first address of the service range, under which pods know the API server."""


@dataclass(frozen=True)
class Identity:
    """Whom a leaf certificate speaks for: user (common name) and groups (organizations) in Kubernetes' terms."""

    file: str
    user: str
    groups: tuple[str, ...] = ()
    serves: bool = False


IDENTITIES = (
    Identity("server", "server", serves=True),
    Identity("admin", "admin", ("system:masters",)),
    Identity("etcd-client", "kube-apiserver-etcd-client"),
    Identity("kubelet-client", "kube-apiserver-kubelet-client", ("system:masters",)),
    Identity("kube-controller-manager", "system:kube-controller-manager"),
    Identity("kube-scheduler", "system:kube-scheduler"),
    Identity("kwok", "kwok", ("system:masters",)),
    Identity("host-node", "system:node:host", ("system:nodes",)),
    # The platform's processes: their ServiceAccounts, whose Roles the bootstrap declares.
    *(Identity(account, account_user(account), account_groups()) for account in ACCOUNTS),
)


@dataclass(frozen=True)
class KeyPair:
    certificate: Path
    key: Path


def key_pair(pki: Path, name: str) -> KeyPair:
    return KeyPair(pki / f"{name}.crt", pki / f"{name}.key")


def service_account_key(pki: Path) -> Path:
    return pki / "service-account.key"


def ensure_certificates(pki: Path, now: datetime) -> None:
    """Creates the lasting keys that are missing, and every leaf again."""
    authority = key_pair(pki, "ca")
    if not (authority.certificate.exists() and authority.key.exists()):
        _make_authority(authority, now)
    if not service_account_key(pki).exists():
        _write_key(service_account_key(pki), ec.generate_private_key(ec.SECP256R1()))
    issuer = x509.load_pem_x509_certificate(authority.certificate.read_bytes())
    signing_key = serialization.load_pem_private_key(authority.key.read_bytes(), password=None)
    if not isinstance(signing_key, ec.EllipticCurvePrivateKey):
        raise TypeError(f"{authority.key} is not an elliptic-curve key")
    for identity in IDENTITIES:
        _make_leaf(key_pair(pki, identity.file), identity, issuer, signing_key, now)


def _make_authority(pair: KeyPair, now: datetime) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = _name("gpu-platform-dev", ())
    certificate = (
        _builder(name, name, key.public_key(), now, AUTHORITY_LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_key_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write_key(pair.key, key)
    _write_certificate(pair.certificate, certificate)


def _make_leaf(
    pair: KeyPair,
    identity: Identity,
    issuer: x509.Certificate,
    signing_key: ec.EllipticCurvePrivateKey,
    now: datetime,
) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    uses = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if identity.serves else [])]
    builder = (
        _builder(_name(identity.user, identity.groups), issuer.subject, key.public_key(), now, LEAF_LIFE)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_key_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False)
    )
    if identity.serves:
        names: list[x509.GeneralName] = [x509.DNSName(name) for name in SERVER_NAMES]
        names += [x509.IPAddress(ipaddress.ip_address(address)) for address in SERVER_ADDRESSES]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    _write_key(pair.key, key)
    _write_certificate(pair.certificate, builder.sign(signing_key, hashes.SHA256()))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: ec.EllipticCurvePublicKey,
    now: datetime,
    life: timedelta,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - CLOCK_SKEW)
        .not_valid_after(now + life)
    )


def _name(user: str, groups: Sequence[str]) -> x509.Name:
    organizations = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*organizations, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _key_usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        # SEC1 ("EC PRIVATE KEY"): the form in which kube-apiserver reads a service-account signing key.
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )
    write_atomically(path, pem.decode())


def _write_certificate(path: Path, certificate: x509.Certificate) -> None:
    write_atomically(path, certificate.public_bytes(serialization.Encoding.PEM).decode(), mode=0o644)


def admin_tls(directory: ClusterDirectory) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=key_pair(directory.pki, "ca").certificate)
    admin = key_pair(directory.pki, "admin")
    context.load_cert_chain(admin.certificate, admin.key)
    return context


def credentials_file(directory: ClusterDirectory, user: QueueUser) -> Path:
    return directory.nats_identity / f"{user}.creds"


def signing_key_file(directory: ClusterDirectory) -> Path:
    return directory.nats_identity / "signing.key"


def ensure_identities(directory: ClusterDirectory, now: datetime) -> Keyring:
    """Creates the keys that are missing, and the credentials of every user again."""
    keyring = _ensure_keyring(directory.nats_identity / "keys.json")
    for user in QueueUser:
        write_atomically(credentials_file(directory, user), keyring.credentials_of(user, now).render())
    write_atomically(signing_key_file(directory), f"{keyring.workers}\n")
    return keyring


def _ensure_keyring(file: Path) -> Keyring:
    try:
        return parse_keyring(file.read_text())
    except FileNotFoundError:
        keyring = Keyring.new(secrets.token_bytes)
        write_atomically(file, keyring.render())
        return keyring
    except KeyringError as error:
        raise DevClusterError(f"{file} cannot be used: {error}; without it, new keys are made") from error
