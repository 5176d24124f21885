"""The settings of a client of Kafka in a file: those of librdkafka, and what operators have for Java's client.

Next to a broker that wants them: ``tests/broker/test_secure_cluster.py``.
"""

from pathlib import Path

import pytest

from snaprebuild.errors import UsageError
from snaprebuild.storage.remote.client_config import read_client_config

SECRET = "not-to-be-told"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "client.properties"
    path.write_bytes(text.encode())
    return str(path)


def test_settings(tmp_path: Path) -> None:
    text = f"# a comment\n! another\n\n security.protocol = SASL_SSL\nsasl.password={SECRET}==\nempty=\n"
    expected = {"security.protocol": "SASL_SSL", "sasl.password": f"{SECRET}==", "empty": ""}
    assert read_client_config(written(tmp_path, text)) == expected


def test_what_ends_a_line_elsewhere_may_stand_in_a_password(tmp_path: Path) -> None:
    expected = {"security.protocol": "SASL_SSL", "sasl.password": "a\u2028b\x1cc\x0bd", "sasl.username": "u"}
    text = "".join(f"{name}={value}\r\n" for name, value in expected.items())
    assert read_client_config(written(tmp_path, text)) == expected


@pytest.mark.parametrize(
    ("login", "user", "password"),
    [
        (f'{PLAIN_MODULE} required username="u" password="{SECRET}";', "u", SECRET),
        (f"{SCRAM_MODULE} required password='{SECRET}' username='u' ;", "u", SECRET),
        (f"{SCRAM_MODULE}  required  username=u  password={SECRET};", "u", SECRET),
        (f'{PLAIN_MODULE} required username="a b" password="; = \'";', "a b", "; = '"),
        (f'{PLAIN_MODULE} required username="" password="";', "", ""),
    ],
)
def test_the_login_of_java(login: str, user: str, password: str, tmp_path: Path) -> None:
    text = f"security.protocol=SASL_SSL\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n"
    expected = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": user, "sasl.password": password}
    assert read_client_config(written(tmp_path, text)) == expected


def test_stores_of_java_that_are_pem(tmp_path: Path) -> None:
    store = tmp_path / "store.pem"
    store.write_text("-")
    stores = f"ssl.truststore.type=pem\nssl.truststore.location={store}\nssl.keystore.type=PEM\nssl.keystore.location={store}\n"
    found = read_client_config(written(tmp_path, f"security.protocol=SSL\n{stores}ssl.key.password={SECRET}\n"))
    names = ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location")
    assert found == {"security.protocol": "SSL", "ssl.key.password": SECRET, **dict.fromkeys(names, str(store))}


def test_a_key_store_of_pkcs12_and_names_that_are_not_compared(tmp_path: Path) -> None:
    store = tmp_path / "store.p12"
    store.write_text("-")
    kept = {"security.protocol": "SSL", "ssl.keystore.location": str(store), "ssl.keystore.password": SECRET}
    text = "".join(f"{name}={value}\n" for name, value in kept.items())
    text += "ssl.keystore.type=PKCS12\nssl.endpoint.identification.algorithm=\n"
    assert read_client_config(written(tmp_path, text)) == {**kept, "ssl.endpoint.identification.algorithm": "none"}


SASL = "security.protocol=SASL_SSL\n"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (SECRET, "line 2: expected NAME=VALUE"),
        (f"={SECRET}", "line 2: expected NAME=VALUE"),
        (f"sasl password={SECRET}", "line 2: expected NAME=VALUE"),
        (f"sasl.password={SECRET}\\", "line 2: sasl.password ends with a backslash"),
        (f"client.id={SECRET}\nclient.id=x", "line 3: client.id is set twice"),
        (f"acks={SECRET}", "line 2: acks may not be set here"),
        (f"plugin.library.paths={SECRET}", "line 2: plugin.library.paths may not be set here"),
        (f"ssl.truststore.password={SECRET}", "line 2: ssl.truststore.password is a setting of the Java client: ssl.ca.location"),
        (f"ssl.keystore.key={SECRET}", "line 2: ssl.keystore.key is a setting of the Java client: write it to a PEM file"),
        (f"ssl.truststore.location={SECRET}.jks", "line 2: ssl.truststore.location: the client here reads no store of Java"),
        (f"x=y\nssl.truststore.type={SECRET}", "line 3: ssl.truststore.type: the client here reads no store of Java"),
        (f"ssl.keystore.type={SECRET}", "line 2: ssl.keystore.type: the client here reads PEM and PKCS12"),
        (f"sasl.jaas.config={SECRET}", "line 2: sasl.jaas.config: expected a PlainLoginModule or ScramLoginModule"),
        (f'sasl.jaas.config=a.Krb5LoginModule required keyTab="{SECRET}";', "expected a PlainLoginModule or ScramLoginModule"),
        (
            f'sasl.jaas.config={PLAIN_MODULE} required username="u";',
            "line 2: sasl.jaas.config: expected username and password alone",
        ),
        (f'sasl.jaas.config={PLAIN_MODULE} required username="u" password="\\\\{SECRET}";', "and without a backslash"),
        (f'sasl.jaas.config={PLAIN_MODULE} required username="u" password="x"{SECRET};', "expected username and password alone"),
        (
            f'sasl.jaas.config={SCRAM_MODULE} required username="u" password="{SECRET}" tokenauth="true";',
            "expected username and password alone",
        ),
        (
            f'sasl.username=v\nsasl.jaas.config={PLAIN_MODULE} required username="u" password="{SECRET}";',
            "line 3: sasl.jaas.config: says the same as sasl.username",
        ),
        ("ssl.ca.location=nowhere.pem", "line 2: ssl.ca.location: the file cannot be read: No such file or directory"),
        (
            "ssl.truststore.type=PEM\nssl.truststore.location=nowhere.pem",
            "line 3: ssl.truststore.location: the file cannot be read",
        ),
        ("ssl.key.location=a\0b", "line 2: ssl.key.location: the file cannot be read: no path"),
        ("sasl.mechanism=OAUTHBEARER", "line 2: sasl.mechanism: the client here has no source of tokens"),
    ],
)
def test_settings_that_are_none(lines: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_client_config(written(tmp_path, f"{SASL}{lines}\n"))
    assert message in str(caught.value)
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (f"sasl.password={SECRET}", "line 1: sasl.password: would be ignored, because security.protocol is not set"),
        (
            f"security.protocol=SSL\nsasl.username={SECRET}",
            "line 2: sasl.username: would be ignored, because security.protocol has no SASL",
        ),
        (f"security.protocol=sasl_plaintext\nssl.key.password={SECRET}", "because security.protocol has no SSL"),
    ],
)
def test_settings_that_the_client_would_ignore(lines: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError) as caught:
        read_client_config(written(tmp_path, f"{lines}\n"))
    assert message in str(caught.value)
    assert SECRET not in str(caught.value)


def test_a_file_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "bytes").write_bytes(b"a=\xff")
    (tmp_path / "large").write_bytes(b"#" * (1 << 20) + b"\n")
    for path, message in (
        (tmp_path, "cannot be read"),
        (tmp_path / "bytes", "byte 2 is not UTF-8"),
        (tmp_path / "large", "1048576"),
    ):
        with pytest.raises(UsageError, match=message):
            read_client_config(str(path))
