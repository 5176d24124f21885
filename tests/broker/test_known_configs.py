"""Which configurations are masked: as the Admin API of a real broker masks them, name by name."""

import random

import pytest
from kafka_classpath import java_output

from formats.broker.broker_files import Properties, Property
from formats.broker.kafka_settings import kafka_settings
from snaprebuild.cluster.metadata.image_model import AccessControlEntry, ConfigResource, Mask, ResourceType, mask_of, mechanism_name
from snaprebuild.cluster.quorum.advise import start_settings_of
from snaprebuild.errors import UsageError

pytestmark = pytest.mark.kafka

BROKER = int(ResourceType.BROKER)


def asked_names() -> list[tuple[int, str]]:
    """Every name, of every type and of others; after the prefix of a listener, and of a mechanism; and names that are unknown."""
    random_ = random.Random(4)
    known = [(number, name) for number, names in kafka_settings().items() for name in names]
    others = [(random_.choice((2, 4, 16, 32)), name) for _, name in known[::5]]
    broker_names = [name for number, name in known if number == BROKER]
    prefixed = [(BROKER, f"listener.name.{listener}.{name}") for name in broker_names for listener in ("external", "a_b")]
    mechanisms = [(BROKER, f"listener.name.x.scram-sha-512.{name}") for name in broker_names if "sasl" in name or "reauth" in name]
    unknown = ["my.secret", "x", "ssl.keystore.passwords", "listener.name.ssl.key.password", "listener.name.x", "listener.name.x."]
    unknown += ["listener.name.x.y.ssl.key.password", "sasl.jaas.config.x", "listener.name.x.asasl.jaas.config", "SSL.KEY.PASSWORD"]
    return [*known, *others, *prefixed, *mechanisms, *((number, name) for name in unknown for number in (2, 4, 16, 32))]


SETTINGS = {
    "metadata.max.retention.bytes": (
        "0",
        "-1",
        "-9",
        " 7 ",
        "+7",
        "9223372036854775807",
        "9223372036854775808",
        "1e3",
        "",
        "100MB",
        "0x7",
    ),
    "metadata.max.retention.ms": ("0", "-1", "604800000", "7d", "1_000", "- 1"),
    "metadata.log.max.snapshot.interval.ms": ("0", "-1", "3600000", "1.0"),
    "metadata.log.max.record.bytes.between.snapshots": ("1", "0", "-1", "007"),
}


@pytest.fixture(scope="module")
def kafka() -> list[str]:
    """Answers of Kafka's process about every name and every value that is asked for."""
    lines = [f"{number} {name}" for number, name in asked_names()]
    lines += [f"{name} {value}" for name, values in SETTINGS.items() for value in values]
    return java_output("KnownConfigs", arguments=["names"], lines=lines)


def words_of(kafka: list[str]) -> tuple[list[list[str]], list[str]]:
    """Names that it lists, and its answers."""
    words = [line.split()[1:] for line in kafka if line.startswith("= ")]
    return [each for each in words if len(each) == 3], [each[0] for each in words if len(each) == 1]


def test_what_is_masked_is_what_a_broker_masks(kafka: list[str]) -> None:
    known, answers = words_of(kafka)
    listed = {(int(number), name): kind for number, name, kind in known}
    ours = {(number, name): each.is_secret for number, names in kafka_settings().items() for name, each in names.items()}
    assert {each: "secret" if ours.get(each) else "plain" for each in listed} == listed
    assert listed.keys() <= ours.keys()
    asked, masked = asked_names(), 0
    for (number, name), answer in zip(asked, answers, strict=False):
        mask = mask_of(ConfigResource(number, "1"), name)
        if mask is None and answer == "masked":
            # Of another release: this one does not know the name.
            rest = name.removeprefix("listener.name.").partition(".")[2] if name.startswith("listener.name.") else name
            assert (number, rest) not in listed, name
            continue
        assert (mask is not None) == (answer == "masked"), (number, name, mask)
        masked += mask is Mask.SECRET
    assert masked > 40


def test_settings_of_a_metadata_log_are_read_as_kafka_reads_them(kafka: list[str]) -> None:
    answers = words_of(kafka)[1][len(asked_names()) :]
    asked = [(name, value) for name, values in SETTINGS.items() for value in values]
    assert len(answers) == len(asked)
    for (name, value), answer in zip(asked, answers, strict=True):
        try:
            read = start_settings_of(Properties((Property(name, value, 1),)), "server.properties")
        except UsageError:
            found = "refused"
        else:
            found = str(
                {
                    "metadata.max.retention.bytes": read.retention_bytes,
                    "metadata.max.retention.ms": read.retention_ms,
                    "metadata.log.max.snapshot.interval.ms": read.checkpoints.interval_ms,
                    "metadata.log.max.record.bytes.between.snapshots": read.checkpoints.record_bytes,
                }[name]
            )
        # Whatever is negative is none.
        assert found == ("-1" if answer.startswith("-") else answer), (name, value)


def test_numbers_in_acls_and_credentials_have_kafkas_names(kafka: list[str]) -> None:
    lines = [line.split()[1:] for line in kafka if line.startswith("# ")]
    assert len(lines) == 20
    for number, (resource, pattern, operation, permission, mechanism) in enumerate(lines):
        numbers = dict.fromkeys(("resourceType", "patternType", "operation", "permissionType"), number)
        acl = AccessControlEntry.of({"id": bytes(16), "resourceName": "", "principal": "", "host": "", **numbers})
        ours = (acl.resource_type, acl.pattern_type, acl.operation, acl.permission, mechanism_name(number))
        for name, kafkas in zip(ours, (resource, pattern, operation, permission, mechanism), strict=True):
            assert name == kafkas or (kafkas == "UNKNOWN" and name == str(number)), number
