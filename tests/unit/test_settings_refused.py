"""Wrong settings: refused before anybody waits for a broker, by one line that names the setting."""

from __future__ import annotations

from pathlib import Path

import pytest

from streams.errors import UsageError
from streams.settings import load_settings


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        pytest.param({"KAFKA__PARTITION": "4"}, "DOCDELTA_KAFKA__PARTITION is no setting", id="unknown name"),
        pytest.param({"KAFKA__PARTITION": "4"}, "did you mean DOCDELTA_KAFKA__PARTITIONS?", id="close name"),
        pytest.param({"KAFKA_PARTITIONS": "4"}, "did you mean DOCDELTA_KAFKA__PARTITIONS?", id="one underscore"),
        pytest.param({"LOGLEVEL": "debug"}, "did you mean DOCDELTA_LOG_LEVEL?", id="name without a part"),
        pytest.param({"WORLD": "1"}, "DOCDELTA_WORLD is no setting of docdelta; see", id="nothing close"),
        pytest.param({"KAFKA__PARTITIONS": "four"}, "kafka.partitions", id="wrong type"),
        pytest.param({"PARSER__REF_ROOTS": "/srv"}, "DOCDELTA_PARSER__REF_ROOTS: takes a JSON list", id="no list"),
        pytest.param({"KAFKA__BOOTSTRAP_SERVERS": ""}, "bootstrap_servers: '' is no host:port", id="no broker"),
        pytest.param({"KAFKA__BOOTSTRAP_SERVERS": "a:9092,b"}, "'b' is no host:port", id="no port"),
        pytest.param({"KAFKA__BOOTSTRAP_SERVERS": "http://a:9092"}, "is no host:port", id="a URL"),
        pytest.param({"KAFKA__BOOTSTRAP_SERVERS": "a:99999"}, "is no host:port", id="port too large"),
        pytest.param({"KAFKA__SECURITY_PROTOCOL": "SSL", "KAFKA__SSL_CA_FILE": "none.pem"}, "none.pem is no file", id="no CA"),
        pytest.param({"KAFKA__SSL_CA_FILE": "here.pem"}, "ssl_ca_file: is not used with", id="CA without TLS"),
        pytest.param({"KAFKA__SECURITY_PROTOCOL": "SSL", "KAFKA__SSL_KEY_FILE": "here.pem"}, "go together", id="key alone"),
        pytest.param({"KAFKA__SECURITY_PROTOCOL": "SASL_SSL", "KAFKA__SASL_USERNAME": "me"}, "needs sasl_", id="no password"),
        pytest.param({"KAFKA__SASL_USERNAME": "me"}, "sasl_username: is not used with", id="user without SASL"),
        pytest.param({"KAFKA__HEARTBEAT_SECONDS": "30"}, "heartbeat_seconds: must be below", id="heartbeat of a session"),
        pytest.param({"QDRANT__URL": "http://a", "QDRANT__PATH": "b"}, "exclude each other", id="two indexes"),
    ],
)
def test_a_wrong_setting_is_named(variables: dict[str, str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.pem").write_text("", encoding="ascii")
    for name, value in variables.items():
        monkeypatch.setenv(f"DOCDELTA_{name}", value)
    with pytest.raises(UsageError) as raised:
        load_settings()
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_wrong_file_is_named_and_its_secrets_are_not_told(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    for text, words in (
        ("[kafka]\npartitionz = 3\n", "kafka.partitionz: no such setting (did you mean kafka.partitions?)"),
        ("[kafka\n", "mine.toml"),
        ("kafka = 3\n", "setting kafka"),
        ("kafka = 3\n", "mine.toml"),
        ('[kafka]\npartitions = "x"\n', "mine.toml"),
        ('[kafka]\nsasl_password = ["geheim"]\n', "kafka.sasl_password"),
    ):
        file.write_text(text, encoding="utf-8")
        with pytest.raises(UsageError) as raised:
            load_settings(file)
        assert words in str(raised.value)
        assert "geheim" not in str(raised.value)
