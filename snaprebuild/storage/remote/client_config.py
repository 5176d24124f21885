"""The settings of a Kafka client in a file of ``NAME=VALUE`` lines: those of librdkafka, and what operators have for Java's client.

Nothing is dropped in silence: a setting that the client here cannot take, or would ignore, is an error. No message repeats a value:
passwords may be among them.

Source: ``SaslConfigs``, ``SslConfigs``, ``JaasConfig``, ``DefaultSslEngineFactory`` of Kafka; ``CONFIGURATION.md`` of librdkafka.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from snaprebuild.errors import UsageError

__all__ = ["CONFIG_BYTES_MAX", "SECURITY_SETTINGS", "read_client_config"]

CONFIG_BYTES_MAX = 1 << 20

PROTOCOL = "security.protocol"
USERNAME = "sasl.username"
PASSWORD = "sasl.password"  # noqa: S105 - a name
MECHANISM = ("sasl.mechanism", "sasl.mechanisms")
TOKEN_SOURCES = ("sasl.oauthbearer.method", "enable.sasl.oauthbearer.unsecure.jwt")
IDENTIFICATION = "ssl.endpoint.identification.algorithm"
JAAS = "sasl.jaas.config"
TRUST_STORE = "ssl.truststore.location"
TRUST_STORE_TYPE = "ssl.truststore.type"
KEY_STORE = "ssl.keystore.location"
KEY_STORE_TYPE = "ssl.keystore.type"
CA_FILE = "ssl.ca.location"
CERTIFICATE_FILE = "ssl.certificate.location"
KEY_FILE = "ssl.key.location"

PEM = "PEM"
PKCS12 = "PKCS12"

FILE_SETTINGS = (CA_FILE, CERTIFICATE_FILE, KEY_FILE, KEY_STORE)
"""Settings whose value is a file."""

SECURITY_SETTINGS = frozenset(
    {PROTOCOL, *MECHANISM, USERNAME, PASSWORD, *FILE_SETTINGS, "ssl.keystore.password", "ssl.key.password"}
)

DECIDED_HERE = frozenset(
    {
        "acks",
        "allow.auto.create.topics",
        "auto.offset.reset",
        "bootstrap.servers",
        "enable.auto.commit",
        "enable.auto.offset.store",
        "enable.gapless.guarantee",
        "enable.idempotence",
        "enable.partition.eof",
        "isolation.level",
        "metadata.broker.list",
        "request.required.acks",
        "transactional.id",
    }
)
"""The guarantees about records depend on these settings."""

LOADS_CODE = frozenset({"plugin.library.paths"})

JAVA_ONLY = {
    "ssl.truststore.password": "ssl.ca.location names a PEM file, which has no password",
    "ssl.truststore.certificates": "write them to a PEM file, and name it with ssl.ca.location",
    "ssl.keystore.certificate.chain": "write it to a PEM file, and name it with ssl.certificate.location",
    "ssl.keystore.key": "write it to a PEM file, and name it with ssl.key.location",
    "ssl.enabled.protocols": "leave it out",
    "ssl.protocol": "leave it out",
    "sasl.login.class": "the client here has no such thing",
    "sasl.login.callback.handler.class": "the client here has no such thing",
    "sasl.client.callback.handler.class": "the client here has no such thing",
}
"""Settings of Java's client that have no translation, with what to do."""

_LOGIN_MODULE = re.compile(
    r"(?P<module>[\w.]+)\s+(?:required|requisite|sufficient|optional)\b(?P<options>.*?);?\s*", re.ASCII | re.DOTALL
)
_LOGIN_OPTION = re.compile(r"""\s+(\w+)\s*=\s*(?:"([^"\\]*)"|'([^'\\]*)'|([^\s"'\\;]+))""", re.ASCII)
_LOGIN_MODULES = frozenset({"PlainLoginModule", "ScramLoginModule"})


@dataclass(frozen=True, slots=True)
class _SettingLine:
    """One setting.

    Attributes:
        number: of the line, from 1.
        value: without blanks around it.
    """

    number: int
    value: str


def read_client_config(path: str) -> dict[str, str]:
    """Reads the settings of a client, by their names in librdkafka.

    Args:
        path: of the file; lines that begin with ``#`` or ``!`` are comments.

    Raises:
        UsageError: it cannot be read, a line is no setting, or a setting is not allowed there, cannot be translated or would be ignored.
    """
    lines = _lines_of(path)
    settings = _Settings(path, lines)
    settings.translate_login()
    settings.translate_trust_store()
    settings.translate_key_store()
    settings.translate_identification()
    settings.check_protocol()
    settings.check_tokens()
    settings.check_files()
    return settings.values


def _lines_of(path: str) -> dict[str, _SettingLine]:
    """The settings of a file by name."""
    try:
        with open(path, "rb") as file:
            data = file.read(CONFIG_BYTES_MAX + 1)
        text = data.decode()
    except OSError as error:
        raise UsageError(f"the settings cannot be read: {error.strerror}", path=path) from error
    except UnicodeDecodeError as error:
        raise UsageError(f"the settings are no text: byte {error.start} is not UTF-8", path=path) from error
    if len(data) > CONFIG_BYTES_MAX:
        raise UsageError(f"the settings have more than {CONFIG_BYTES_MAX} bytes", path=path)
    lines: dict[str, _SettingLine] = {}
    # Not splitlines(): a password may contain characters that end a line elsewhere.
    for number, line in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        stripped = line.strip()
        if not stripped or stripped[0] in "#!":
            continue
        name, equals, value = (part.strip() for part in stripped.partition("="))
        if not equals or not name or " " in name:
            raise UsageError(f"line {number}: expected NAME=VALUE", path=path)
        if value.endswith("\\"):
            raise UsageError(f"line {number}: {name} ends with a backslash: write each setting on one line", path=path)
        if name in lines:
            raise UsageError(f"line {number}: {name} is set twice", path=path)
        if name in JAVA_ONLY:
            raise UsageError(f"line {number}: {name} is a setting of the Java client: {JAVA_ONLY[name]}", path=path)
        if name in DECIDED_HERE | LOADS_CODE:
            raise UsageError(f"line {number}: {name} may not be set here", path=path)
        lines[name] = _SettingLine(number, value)
    return lines


class _Settings:
    """The settings of a file while they are translated.

    Attributes:
        values: by their names in librdkafka.
    """

    def __init__(self, path: str, lines: Mapping[str, _SettingLine]) -> None:
        self._path = path
        self._lines = lines
        self.values = {name: line.value for name, line in lines.items()}

    def translate_login(self) -> None:
        """Takes the user and the password of ``sasl.jaas.config``."""
        if JAAS not in self._lines:
            return
        module = _LOGIN_MODULE.fullmatch(self.values.pop(JAAS))
        if module is None or module["module"].rpartition(".")[2] not in _LOGIN_MODULES:
            raise self._error(JAAS, "expected a PlainLoginModule or ScramLoginModule of Kafka, with username and password")
        options = _login_options(module["options"])
        if options is None or set(options) != {"username", "password"}:
            message = f"expected username and password alone, in quotes and without a backslash: else set {USERNAME} and {PASSWORD}"
            raise self._error(JAAS, message)
        self._add(JAAS, USERNAME, options["username"])
        self._add(JAAS, PASSWORD, options["password"])

    def translate_trust_store(self) -> None:
        """Takes a trust store that is a PEM file."""
        kind = self.values.pop(TRUST_STORE_TYPE, None)
        is_pem = kind is not None and kind.upper() == PEM
        location = self.values.pop(TRUST_STORE, None)
        if not is_pem and (location is not None or kind is not None):
            message = (
                f"the client here reads no store of Java (JKS, PKCS12): write its certificates to a PEM file, as "
                f"`keytool -list -rfc -keystore FILE` prints them, and name it with {CA_FILE}"
            )
            raise self._error(TRUST_STORE if location is not None else TRUST_STORE_TYPE, message)
        if location is not None:
            self._add(TRUST_STORE, CA_FILE, location)

    def translate_key_store(self) -> None:
        """Takes a key store that is a PEM file; one of PKCS#12 has the same name in librdkafka."""
        kind = self.values.pop(KEY_STORE_TYPE, PKCS12).upper()
        if kind not in (PEM, PKCS12):
            message = (
                "the client here reads PEM and PKCS12: convert it with `keytool -importkeystore -srckeystore FILE -destkeystore NEW "
                f"-deststoretype PKCS12`, or name PEM files with {CERTIFICATE_FILE} and {KEY_FILE}"
            )
            raise self._error(KEY_STORE_TYPE, message)
        location = None if kind == PKCS12 else self.values.pop(KEY_STORE, None)
        if location is not None:
            self._add(KEY_STORE, CERTIFICATE_FILE, location)
            self._add(KEY_STORE, KEY_FILE, location)

    def translate_identification(self) -> None:
        """Takes an empty value, by which Java's client does not compare the name of the server."""
        if self.values.get(IDENTIFICATION) == "":
            self.values[IDENTIFICATION] = "none"

    def check_protocol(self) -> None:
        """Refuses settings that the client would ignore by its protocol."""
        protocol = self.values.get(PROTOCOL, "PLAINTEXT").upper()
        for prefix, word in (("sasl.", "SASL"), ("ssl.", "SSL")):
            ignored = [name for name, line in self._lines.items() if name.startswith(prefix) and line.value]
            if ignored and word not in protocol:
                found = "is not set" if PROTOCOL not in self._lines else f"has no {word}"
                raise self._error(ignored[0], f"would be ignored, because {PROTOCOL} {found}")

    def check_tokens(self) -> None:
        """Refuses OAUTHBEARER without a source of tokens, for which the client would wait in vain."""
        name = next((each for each in MECHANISM if self.values.get(each, "").upper() == "OAUTHBEARER"), None)
        if name is not None and not any(each in self.values for each in TOKEN_SOURCES):
            raise self._error(name, f"the client here has no source of tokens: set {TOKEN_SOURCES[0]}=oidc and its settings")

    def check_files(self) -> None:
        """Makes sure that the files that are named can be read."""
        for name in FILE_SETTINGS:
            path = self.values.get(name)
            if path is None or (name == CA_FILE and path == "probe"):
                continue
            try:
                if not os.path.isdir(path):
                    with open(path, "rb"):
                        pass
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else "no path"
                raise self._error(self._origin(name), f"the file cannot be read: {reason}") from None

    def _origin(self, name: str) -> str:
        """The setting of the file that a setting comes from."""
        if name in self._lines:
            return name
        return TRUST_STORE if name == CA_FILE else KEY_STORE

    def _add(self, origin: str, name: str, value: str) -> None:
        if name in self.values:
            raise self._error(origin, f"says the same as {name}: leave one of them out")
        self.values[name] = value

    def _error(self, name: str, message: str) -> UsageError:
        return UsageError(f"line {self._lines[name].number}: {name}: {message}", path=self._path)


def _login_options(text: str) -> dict[str, str] | None:
    """The options of a login module; None if the text has others than ``name="value"``, or one of them twice."""
    options: dict[str, str] = {}
    position = 0
    for match in _LOGIN_OPTION.finditer(text):
        if match.start() != position or match[1] in options:
            return None
        quoted, single, bare = match[2], match[3], match[4]
        options[match[1]] = next(each for each in (quoted, single, bare) if each is not None)
        position = match.end()
    return options if not text[position:].strip() else None
