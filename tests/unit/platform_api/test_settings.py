"""The API's settings: what they are without a word, where everybody may be let in, and one sentence when wrong."""

from pathlib import Path

import pytest
import yaml

from gpu_platform.domain.tenant_limits import TenantLimits
from gpu_platform.settings import SettingsError
from platform_api.settings import ENVIRONMENT_PREFIX, ApiSettings, load_api_settings
from tests.architecture.repository import ROOT

SAMPLE = ROOT / "config" / "local" / "api.yaml"


def load(**environment: str) -> ApiSettings:
    return load_api_settings(None, {f"{ENVIRONMENT_PREFIX}{key}": value for key, value in environment.items()})


def test_without_a_word_it_listens_on_loopback_and_wants_keys() -> None:
    settings = load()
    assert settings == ApiSettings()
    assert (settings.http_addr, settings.auth, settings.kube_mode) == ("127.0.0.1:8080", "keys", "auto")
    assert settings.resync.total_seconds() == 300


def test_the_file_comes_over_the_defaults_and_the_environment_over_both(tmp_path: Path) -> None:
    file = tmp_path / "api.yaml"
    file.write_text("burst: 3\nmaxStreams: 7\nkubeMode: required\n")
    settings = load_api_settings(file, {f"{ENVIRONMENT_PREFIX}MAX_STREAMS": "8"})
    assert (settings.burst, settings.max_streams, settings.kube_mode) == (3, 8, "required")


def test_every_setting_can_come_from_the_environment() -> None:
    environment = {
        "HTTP_ADDR": "0.0.0.0:1",
        "METRICS_ADDRESS": "0.0.0.0:2",
        "PROBE_ADDRESS": "[::1]:0",
        "AUTH": "keys",
        "KUBE_MODE": "off",
        "KUBECONFIG": "file",
        "REPORT_INTERVAL_SECONDS": "5",
        "RESYNC_SECONDS": "10",
        "MAX_BODY_BYTES": "1024",
        "MAX_REQUESTS_IN_FLIGHT": "1",
        "MAX_CONNECTIONS": "16",
        "CLIENT_TIMEOUT_SECONDS": "1",
        "MAX_STREAMS": "0",
        "REQUESTS_PER_SECOND": "2",
        "BURST": "3",
        "FAILED_LOGINS_PER_MINUTE": "6",
        "MAX_PROXIED": "4",
        "PROXY_IDLE_SECONDS": "5",
        "PUBLIC_URL": "https://gpu.example/platform",
        "DEVELOPMENT_ADDRESSES": "true",
        "NATS_URL": "tls://nats:4222",
        "NATS_CREDENTIALS": "api.creds",
        "NATS_CA": "ca.crt",
        "MAX_INVOCATION_BYTES": "2048",
        "RESULT_RETENTION_SECONDS": "60",
        "TENANT_LIMITS": '{"units": 7}',
        "NVIDIA_METRICS_ENDPOINT": "http://dcgm:9400/metrics",
        "LOG_LEVEL": "debug",
    }
    assert load(**environment) == ApiSettings(
        http_addr="0.0.0.0:1",
        metrics_address="0.0.0.0:2",
        probe_address="[::1]:0",
        auth="keys",
        kube_mode="off",
        kubeconfig=Path("file"),
        report_interval_seconds=5,
        resync_seconds=10,
        max_body_bytes=1_024,
        max_requests_in_flight=1,
        max_connections=16,
        client_timeout_seconds=1,
        max_streams=0,
        requests_per_second=2,
        burst=3,
        failed_logins_per_minute=6,
        max_proxied=4,
        proxy_idle_seconds=5,
        public_url="https://gpu.example/platform",
        development_addresses=True,
        nats_url="tls://nats:4222",
        nats_credentials=Path("api.creds"),
        nats_ca=Path("ca.crt"),
        max_invocation_bytes=2_048,
        result_retention_seconds=60,
        tenant_limits=TenantLimits(units=7),
        nvidia_metrics_endpoint="http://dcgm:9400/metrics",
        log_level="debug",
    )
    assert {key.lower() for key in environment} == set(ApiSettings.model_fields)


@pytest.mark.parametrize("address", ["127.0.0.1:0", "127.9.9.9:80", "[::1]:8080", "localhost:8080"])
def test_everybody_may_be_let_in_on_loopback(address: str) -> None:
    assert load(AUTH="none", HTTP_ADDR=address).auth == "none"


@pytest.mark.parametrize(
    "address", ["0.0.0.0:8080", "[::]:8080", "10.0.0.1:80", "192.168.1.1:80", "[fe80::1]:80", "example.com:80"]
)
def test_everybody_is_let_in_nowhere_else(address: str) -> None:
    assert load(AUTH="keys", HTTP_ADDR=address).http_addr == address
    with pytest.raises(SettingsError) as caught:
        load(AUTH="none", HTTP_ADDR=address)
    assert str(caught.value) == (
        f"auth is none, which lets everybody in, and httpAddr is {address}: listen on 127.0.0.1, or set auth: keys"
    )


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("auth: maybe", "auth is \"maybe\", and should be 'keys' or 'none'"),
        ("kubeMode: on", "kubeMode is true, and should be 'auto', 'off' or 'required'"),
        ("kubeMode: off", "kubeMode is false, and should be 'auto', 'off' or 'required'"),
        ("httpAddr: 8080", "httpAddr is 8080, and should be a valid string"),
        ("httpAddr: '8080'", 'httpAddr is "8080", and should be host:port'),
        ("maxBodyBytes: 200001", "maxBodyBytes is 200001, and should be less than or equal to 200000"),
        ("maxBodyBytes: 10", "maxBodyBytes is 10, and should be greater than or equal to 1024"),
        ("burst: '5'", 'burst is "5", and should be a valid integer'),
        ("burst: 0", "burst is 0, and should be greater than or equal to 1"),
        ("maxStreams: -1", "maxStreams is -1, and should be greater than or equal to 0"),
        ("logLevel: loud", 'logLevel is "loud", and should be'),
        ("max_streams: 1", "there is no setting 'max_streams'; did you mean maxStreams?"),
    ],
)
def test_a_bad_file_is_one_sentence_with_place_key_and_fix(text: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "api.yaml"
    file.write_text(text + "\n")
    with pytest.raises(SettingsError) as caught:
        load_api_settings(file, {})
    assert str(caught.value).startswith(f"{file}: {sentence}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("variable", "text", "sentence"),
    [
        ("BURST", "many", 'BURST: burst is "many", and should be a valid integer'),
        ("AUTH", "None", "AUTH: auth is \"None\", and should be 'keys' or 'none'"),
        ("HTTP_ADDRESS", "x:1", "HTTP_ADDRESS: there is no such setting; did you mean GPU_PLATFORM_API_HTTP_ADDR?"),
    ],
)
def test_a_bad_variable_is_one_sentence_with_its_name(variable: str, text: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(**{variable: text})
    assert str(caught.value).startswith(f"{ENVIRONMENT_PREFIX}{sentence}")
    assert "\n" not in str(caught.value)


def test_the_sample_shows_every_key_with_its_default() -> None:
    shown = yaml.safe_load(SAMPLE.read_text())
    assert set(shown) == {field.alias for field in ApiSettings.model_fields.values()}
    assert load_api_settings(SAMPLE, {}) == ApiSettings()
