"""``--command-config`` next to a broker with SASL and TLS: what works, the one error of what does not, and no secret in any output."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import certificate
from command import in_json, snaprebuild
from kafka_node import KafkaNode
from tiered_topics import SECONDS, SMALL_SEGMENTS, use_a_group

from snaprebuild.errors import UsageError
from snaprebuild.storage.remote.client_config import read_client_config
from snaprebuild.tier.running_topic import RunningTopic

pytestmark = [pytest.mark.broker, pytest.mark.full, pytest.mark.xdist_group("secure-cluster")]

PLAIN_SECRET = "planted-for-plain"
SCRAM_SECRET = "planted-for-scram"
KEY_SECRET = "planted-for-a-key"
WRONG_SECRET = "planted-and-wrong"
SECRETS = (PLAIN_SECRET, SCRAM_SECRET, KEY_SECRET, WRONG_SECRET)
MODULES = "org.apache.kafka.common.security"
PLAIN = f"{MODULES}.plain.PlainLoginModule required"
SCRAM = f"{MODULES}.scram.ScramLoginModule required"
AS_OF = ("--as-of", "2030-01-01", "--jobs", "1")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNode]:
    """A broker with copies, in whose directory ``client``, ``server`` and ``other`` have a certificate each."""
    root = tmp_path_factory.mktemp("secure")
    for name in ("client", "server", "other"):
        (root / name).mkdir()
        certificate(root / name)
    secure = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": root / "server" / "keystore.pem",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": root / "client" / "certificate.pem",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "plain.sasl.jaas.config": f'{PLAIN} user_reader="{PLAIN_SECRET}";',
        "scram-sha-512.sasl.jaas.config": f"{SCRAM};",
    }
    settings = {
        "rlmm.config.remote.log.metadata.topic.num.partitions": 3,
        "log.retention.check.interval.ms": 500,
        "log.initial.task.delay.ms": 500,
    }
    with KafkaNode(root, settings=settings, secure=secure) as running:
        running.start()
        add_scram_user(running)
        running.create_topic("one", SMALL_SEGMENTS)
        running.produce("one", 200)
        running.wait_until_copied("one-0")
        use_a_group(running)
        yield running


def add_scram_user(node: KafkaNode) -> None:
    from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    user = UserScramCredentialUpsertion("reader", info, SCRAM_SECRET.encode())
    admin = AdminClient({"bootstrap.servers": node.address})
    for future in admin.alter_user_scram_credentials([user]).values():
        future.result(SECONDS)


def client(node: KafkaNode, directory: Path, lines: str) -> Path:
    """A file of settings, in which ``{server}``, ``{client}`` and ``{other}`` are directories with certificates."""
    file = directory / "client.properties"
    file.write_text(lines.format(server=node.root / "server", client=node.root / "client", other=node.root / "other"))
    return file


SERVER = "security.protocol=SASL_SSL\nssl.ca.location={server}/certificate.pem\n"
TLS = "security.protocol=SSL\nssl.ca.location={server}/certificate.pem\n"
JAVA_SERVER = "security.protocol=SASL_SSL\nssl.truststore.type=PEM\nssl.truststore.location={server}/certificate.pem\n"
WITH_PLAIN = f"sasl.mechanism=PLAIN\nsasl.username=reader\nsasl.password={PLAIN_SECRET}\n"
WITH_SCRAM = f"sasl.mechanism=SCRAM-SHA-512\nsasl.username=reader\nsasl.password={SCRAM_SECRET}\n"


@pytest.mark.parametrize(
    ("port", "lines"),
    [
        ("secure_port", SERVER + WITH_PLAIN),
        ("secure_port", SERVER + WITH_SCRAM),
        (
            "secure_port",
            f'{JAVA_SERVER}sasl.mechanism=PLAIN\nsasl.jaas.config={PLAIN} username="reader" password="{PLAIN_SECRET}";\n',
        ),
        (
            "secure_port",
            f'{JAVA_SERVER}sasl.mechanism=SCRAM-SHA-512\nsasl.jaas.config={SCRAM} username="reader" password="{SCRAM_SECRET}";\n',
        ),
        ("tls_port", f"{TLS}ssl.certificate.location={{client}}/certificate.pem\nssl.key.location={{client}}/keystore.pem\n"),
        ("tls_port", f"{TLS}ssl.keystore.type=PEM\nssl.keystore.location={{client}}/keystore.pem\n"),
    ],
)
def test_who_may_read_reads_the_same(port: str, lines: str, node: KafkaNode, tmp_path: Path) -> None:
    words = ("--bootstrap-server", f"127.0.0.1:{getattr(node, port)}", "--command-config", client(node, tmp_path, lines))
    run = in_json("tier inventory", node.remote_dir, *words)
    plain = in_json("tier inventory", node.remote_dir, "--bootstrap-server", node.address)
    assert (run.exit_code, run.document["verified"]) == (plain.exit_code, plain.document["verified"]) == (0, True), run.stderr
    assert run.document["states"] == plain.document["states"]
    assert {each["state"] for each in run.document["states"]} == {"live"}
    assert not [secret for secret in SECRETS if secret in run.stdout + run.stderr]


LOGIN = "check security.protocol, sasl.mechanism, sasl.username and sasl.password, in the file of --command-config"
CERTIFICATES = "check security.protocol and the settings of ssl, such as ssl.ca.location, in the file of --command-config"
CONNECTION = "check --bootstrap-server, and security.protocol and the settings of ssl, in the file of --command-config"

CERTIFICATES_OR_CONNECTION = (CERTIFICATES, CONNECTION)
"""The library reports some broken handshakes as errors of TLS or as closed connections, as they come."""


@pytest.mark.parametrize(
    ("port", "lines", "advice"),
    [
        ("secure_port", f"{SERVER}sasl.mechanism=PLAIN\nsasl.username=reader\nsasl.password={WRONG_SECRET}\n", LOGIN),
        ("secure_port", f"{SERVER}sasl.mechanism=SCRAM-SHA-512\nsasl.username=reader\nsasl.password={WRONG_SECRET}\n", LOGIN),
        ("secure_port", f"{SERVER}sasl.mechanism=SCRAM-SHA-256\nsasl.username=reader\nsasl.password={SCRAM_SECRET}\n", LOGIN),
        ("secure_port", f"security.protocol=SASL_SSL\nssl.ca.location={{other}}/certificate.pem\n{WITH_PLAIN}", CERTIFICATES),
        ("secure_port", f"security.protocol=SASL_SSL\n{WITH_PLAIN}", CERTIFICATES),
        ("secure_port", "security.protocol=PLAINTEXT\n", CONNECTION),
        ("secure_port", TLS, CONNECTION),
        ("tls_port", TLS, CERTIFICATES_OR_CONNECTION),
        (
            "tls_port",
            f"{TLS}ssl.certificate.location={{other}}/certificate.pem\nssl.key.location={{other}}/keystore.pem\n",
            CONNECTION,
        ),
        ("port", TLS, CERTIFICATES_OR_CONNECTION),
        ("port", SERVER + WITH_PLAIN, CERTIFICATES_OR_CONNECTION),
        ("port", f"security.protocol=SASL_PLAINTEXT\n{WITH_PLAIN}", LOGIN),
    ],
)
def test_who_may_not_read_gets_one_error(
    port: str, lines: str, advice: str | tuple[str, ...], node: KafkaNode, tmp_path: Path
) -> None:
    """It names the server and the settings, and comes before the time for an answer is over."""
    server = f"127.0.0.1:{getattr(node, port)}"
    run = snaprebuild(
        "tier", "inventory", node.remote_dir, "--bootstrap-server", server, "--command-config", client(node, tmp_path, lines)
    )
    assert run.exit_code == 5
    (line,) = run.stderr.splitlines()
    assert line.startswith(f"snaprebuild: {server}: the brokers do not answer: ")
    assert line.endswith(advice)
    assert "no answer within" not in line
    assert run.stdout == ""
    assert not [secret for secret in SECRETS if secret in line]


def test_an_encrypted_key_needs_the_right_password(node: KafkaNode, tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization

    pem = (node.root / "client" / "keystore.pem").read_bytes()
    key = serialization.load_pem_private_key(pem, password=None)
    encryption = serialization.BestAvailableEncryption(KEY_SECRET.encode())
    encrypted = tmp_path / "key.pem"
    encrypted.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption))
    lines = f"{TLS}ssl.certificate.location={{client}}/certificate.pem\nssl.key.location={encrypted}\nssl.key.password="
    words = ("tier", "inventory", node.remote_dir, "--bootstrap-server", f"127.0.0.1:{node.tls_port}", "--command-config")
    assert snaprebuild(*words, client(node, tmp_path, f"{lines}{KEY_SECRET}\n")).exit_code == 0
    wrong = snaprebuild(*words, client(node, tmp_path, f"{lines}{WRONG_SECRET}\n"))
    assert wrong.exit_code == 2
    assert "--command-config: the client does not take these settings: look at ssl.key.location" in wrong.stderr
    assert not [secret for secret in SECRETS if secret in wrong.stderr]


def test_no_output_of_any_verb_has_a_secret(node: KafkaNode, tmp_path: Path) -> None:
    store = tmp_path / "store"
    shutil.copytree(node.remote_dir, store)
    first_snapshot = sorted(store.rglob("*.snapshot"))[1]
    first_snapshot.write_bytes(first_snapshot.read_bytes()[:-1] + b"\0")  # which repair names, and leaves alone in this layout
    settings = client(
        node,
        tmp_path,
        f'{JAVA_SERVER}sasl.mechanism=PLAIN\nsasl.jaas.config={PLAIN} username="reader" password="{PLAIN_SECRET}";\n',
    )
    cluster = ("--bootstrap-server", f"127.0.0.1:{node.secure_port}", "--command-config", settings)
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    runs = {
        "inventory": ("--keys", outputs / "keys.jsonl", "--metrics", outputs / "inventory.prom"),
        "metadata": ("--log-start", "one-0=0", "--records-file", outputs / "records.jsonl"),
        "audit": ("--ledger", outputs / "ledger", "--metrics", outputs / "audit.prom", *AS_OF),
        "repair": AS_OF,
    }
    for verb, words in runs.items():
        run = snaprebuild("tier", verb, store, *cluster, *words, "--save-json", outputs / f"{verb}.json", "-v")
        assert run.exit_code in ((3,) if verb == "repair" else (0, 1, 4)), (verb, run.stderr)
        assert not [secret for secret in SECRETS if secret in run.stdout + run.stderr], verb
    written = [path for path in tmp_path.rglob("*") if path.is_file() and path != settings]
    assert {path.name for path in written} >= {"keys.jsonl", "records.jsonl", "ledger", "audit.prom", "repair.json"}
    for path in written:
        assert not [secret for secret in SECRETS if secret.encode() in path.read_bytes()], path
    topic = RunningTopic(str(cluster[1]), {**read_client_config(str(settings)), "no.such.setting": WRONG_SECRET})
    with pytest.raises(UsageError) as caught:
        topic.read()
    assert not [secret for secret in SECRETS if secret in f"{caught.value!r} {topic!r}"]
