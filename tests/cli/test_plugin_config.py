"""``--server-properties`` of verbs on remote storage: a fixed list of keys, and no secret in any output."""

import json
import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest
from command import Run, in_json, snaprebuild
from log_dirs import copy_of, of_zookeeper
from manifests import AIVEN, FIXTURES, LONG_AGO
from object_store import ObjectStore

from snaprebuild.storage.remote.plugin_config import read_access_key
from snaprebuild.storage.s3.requests import client_of
from snaprebuild.storage.store import S3Settings

SECRETS = {
    "rsm.config.storage.aws.access.key.id": "AKIAPLANTEDSECRET000",
    "rsm.config.storage.aws.secret.access.key": "planted-secret-of-the-bucket",
    "rsm.config.storage.aws.session.token": "planted-secret-token",
    "rsm.config.storage.proxy.password": "planted-secret-of-the-proxy",
    "rlmm.config.remote.log.metadata.common.client.sasl.jaas.config": "planted-secret-of-sasl",
    "ssl.keystore.password": "planted-secret-of-the-keystore",
    "listener.name.internal.plain.sasl.jaas.config": "planted-secret-of-a-listener",
    "rsm.config.encryption.key.pairs.key1.passphrase": "planted-secret-of-a-key",
}

PRIVATE_KEY = AIVEN / "keys" / "key1.private.pem"


def properties(to: Path, **more: object) -> Path:
    """The configuration of a broker with a secret under each key that holds one; ``__`` in a name stands for a dot."""
    values: dict[str, object] = {
        "node.id": 1,
        "log.dirs": to / "not-there",
        "remote.log.storage.manager.class.name": "io.aiven.kafka.tieredstorage.RemoteStorageManager",
        **{name.replace("__", "."): value for name, value in more.items()},
        **SECRETS,
    }
    file = to / "server.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in values.items()))
    return file


def of_directory(to: Path, name: str = "plain", **more: object) -> Path:
    return properties(
        to,
        rsm__config__storage__backend__class="io.aiven.kafka.tieredstorage.storage.filesystem.FileSystemStorage",
        rsm__config__storage__root=AIVEN / name / "store",
        **more,
    )


def of_bucket(to: Path, store: ObjectStore, name: str, **more: object) -> Path:
    return properties(
        to,
        rsm__config__storage__s3__bucket__name=name,
        rsm__config__storage__s3__endpoint__url=store.endpoint,
        rsm__config__storage__s3__region="us-east-1",
        rsm__config__storage__s3__path__style__access__enabled="true",
        rsm__config__key__prefix="tier/",
        **more,
    )


def no_secret(*texts: str) -> None:
    for text in texts:
        assert not [secret for secret in SECRETS.values() if secret in text]


def states(run: Run) -> dict[str, str]:
    return {copy["segment_id"]: copy["state"] for each in run.document["partitions"] for copy in each["copies"]}


def test_the_store_of_a_broker(tmp_path: Path) -> None:
    file = of_directory(tmp_path, rsm__config__key__prefix="tier/", rsm__config__chunk__size=4194304)
    run = in_json("tier inventory", "--server-properties", file, *LONG_AGO)
    named = in_json("tier inventory", AIVEN / "plain" / "store", "--set", "key_prefix=tier/", *LONG_AGO)
    assert states(run) == states(named) != {}
    assert run.document["plugin"] == {
        "bucket_name": None,
        "directory": str(AIVEN / "plain" / "store"),
        "endpoint_url": None,
        "region": None,
        "path_style": False,
        "key_prefix": "tier/",
        "chunk_size": 4194304,
        "encryption_enabled": False,
        "key_pairs": [],
        "custom_metadata_fields": [],
    }


def test_another_prefix_of_the_settings(tmp_path: Path) -> None:
    file = properties(tmp_path, remote__log__storage__manager__impl__prefix="x.", x__storage__root=AIVEN / "plain" / "store")
    assert states(in_json("tier inventory", "--server-properties", file))


def test_key_pairs_are_used_by_verbs_that_read(tmp_path: Path) -> None:
    file = of_directory(
        tmp_path,
        "encrypted",
        rsm__config__encryption__key__pairs="key1,key2",
        rsm__config__encryption__key__pairs__key1__private__key__file=PRIVATE_KEY,
    )
    run = in_json("tier audit", "--server-properties", file, *LONG_AGO)
    named = in_json("tier audit", AIVEN / "encrypted" / "store", "--set", f"private_key={PRIVATE_KEY}", *LONG_AGO)
    assert (run.document["totals"], run.document["totals"]["not-read"]) == (named.document["totals"], 0)
    pairs = in_json("tier inventory", "--server-properties", file).document["plugin"]["key_pairs"]
    assert [(each["name"], each["private_key_file"]) for each in pairs] == [("key1", str(PRIVATE_KEY)), ("key2", None)]


def test_a_verb_that_writes_does_not_use_them_untold(tmp_path: Path) -> None:
    shutil.copytree(AIVEN / "encrypted" / "store", tmp_path / "store")
    file = properties(
        tmp_path,
        rsm__config__storage__root=tmp_path / "store",
        rsm__config__encryption__key__pairs="key1",
        rsm__config__encryption__key__pairs__key1__private__key__file=PRIVATE_KEY,
    )
    words = ("tier", "repair", "--server-properties", file, *LONG_AGO, "--allow-unverified", "--dry-run")
    untold = snaprebuild(*words)
    named = snaprebuild(*words, "--set", f"private_key=key1={PRIVATE_KEY}")
    told = snaprebuild(*words, "--broker-credentials")
    assert untold.exit_code != 0
    assert "private_key" in untold.stderr
    assert named.exit_code == told.exit_code == 0


@pytest.mark.parametrize(
    ("more", "reads_key"),
    [
        ((), True),
        (("--dry-run",), True),
        (("--records-file", "records.jsonl"), False),
        (("--records-file", "records.jsonl", "--dry-run"), False),
        (("--log-dirs", "."), False),
        (("--produce-to", "localhost:1", "--producer-config", "missing.properties"), False),
        (("--records-file", "records.jsonl", "--broker-credentials"), True),
    ],
)
def test_tier_metadata_with_a_target_does_not_use_them_untold(more: tuple[str, ...], reads_key: bool, tmp_path: Path) -> None:
    """A private key that is not there is an error where it is read."""
    file = of_directory(
        tmp_path,
        "encrypted",
        rsm__config__encryption__key__pairs="key1",
        rsm__config__encryption__key__pairs__key1__private__key__file=tmp_path / "missing.pem",
    )
    run = snaprebuild("tier", "metadata", "--server-properties", file, *more, cwd=tmp_path)
    assert ("the private key cannot be read" in run.stderr) is reads_key, run.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("tier", "inventory"),
        ("tier", "inventory", "--output", "json"),
        ("tier", "inventory", "-vv"),
        ("tier", "audit", *LONG_AGO),
        ("tier", "audit", *LONG_AGO, "--output", "json", "-vv"),
        ("tier", "repair", *LONG_AGO, "--allow-unverified", "--dry-run", "--output", "json", "-vv"),
    ],
)
def test_no_secret_is_printed_or_written(tmp_path: Path, words: tuple[str, ...]) -> None:
    file = of_directory(tmp_path)
    written = [tmp_path / "saved.json"]
    more: tuple[object, ...] = ("--save-json", written[0])
    if words[1] == "inventory":
        written += [tmp_path / "keys.jsonl", tmp_path / "m.prom"]
        more = (*more, "--keys", written[1], "--metrics", written[2])
    run = snaprebuild(*words, "--server-properties", file, *more)
    assert run.exit_code in (0, 1)
    no_secret(run.stdout, run.stderr, *(path.read_text() for path in written))


def faulty(to: Path) -> dict[str, tuple[Path, str]]:
    """Configurations that are refused, with a part of the message."""
    made: dict[str, tuple[Path, str]] = {}
    for name, more, text in (
        ("nothing", {}, "no bucket and no directory"),
        ("provider", {"rsm__config__storage__s3__bucket__name": "${file:/x:bucket}"}, "only the config provider of the broker"),
        (
            "password in the endpoint",
            {"rsm__config__storage__s3__bucket__name": "b", "rsm__config__storage__s3__endpoint__url": "http://u:planted@h"},
            "without user, password",
        ),
    ):
        place = to / name
        place.mkdir()
        made[name] = (properties(place, **more), text)
    return made


@pytest.mark.parametrize("name", ["nothing", "provider", "password in the endpoint"])
def test_a_configuration_that_does_not_name_a_store(tmp_path: Path, name: str) -> None:
    file, text = faulty(tmp_path)[name]
    run = snaprebuild("tier", "inventory", "--server-properties", file)
    assert (run.exit_code, text in run.stderr) == (2, True), run.stderr
    no_secret(run.stdout, run.stderr)
    assert "planted" not in run.stderr


def test_another_bucket_than_that_of_the_broker(tmp_path: Path) -> None:
    file = properties(tmp_path, rsm__config__storage__s3__bucket__name="own")
    run = snaprebuild("tier", "inventory", "s3://other/tier", "--server-properties", file)
    assert (run.exit_code, "expected s3://own" in run.stderr) == (2, True)


KEY_PAIR_WITHOUT_KEY = {"rsm__config__encryption__key__pairs": "key1"}
BUCKET = {"rsm__config__storage__s3__bucket__name": "own"}


@pytest.mark.parametrize(
    ("more", "words", "text"),
    [
        (BUCKET, ("--set", "s3_anonymous=true"), "--broker-credentials: neither s3_profile nor s3_anonymous goes with it"),
        (BUCKET, ("--set", "s3_profile=own"), "--broker-credentials: neither s3_profile nor s3_anonymous goes with it"),
        ({}, ("s3://own/tier",), "--broker-credentials: the configuration names no bucket"),
        ({}, (str(AIVEN / "plain" / "store"),), "--broker-credentials: STORE is a directory, which needs no access key"),
        (KEY_PAIR_WITHOUT_KEY, (str(AIVEN / "plain" / "store"),), "--broker-credentials: STORE is a directory, which needs no"),
        (BUCKET, (str(AIVEN / "plain" / "store"),), "the store of --server-properties is s3://own"),
        (
            {},
            (str(AIVEN / "plain" / "store"), "--set", "private_key=nokey.pem"),
            "STORE is a directory, which needs no access key, and",
        ),
        (BUCKET, ("s3://other/tier",), "STORE is in another bucket than that of --server-properties: expected s3://own"),
    ],
)
def test_credentials_that_do_not_go_with_the_store(
    more: dict[str, object], words: tuple[str, ...], text: str, tmp_path: Path
) -> None:
    run = snaprebuild("tier", "inventory", "--server-properties", properties(tmp_path, **more), "--broker-credentials", *words)
    assert (run.exit_code, text in run.stderr) == (2, True), run.stderr
    no_secret(run.stdout, run.stderr)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("rsm.config.storage.aws.access.key.id=", "has no rsm.config.storage.aws.access.key.id: without --broker-credentials"),
        ("rsm.config.storage.aws.secret.access.key=", "has no rsm.config.storage.aws.secret.access.key: without"),
        (
            "rsm.config.storage.aws.secret.access.key=${file:/planted-path:planted-key}",
            "rsm.config.storage.aws.secret.access.key: its value is one that only the config provider of the broker can replace",
        ),
        (
            "rsm.config.storage.aws.secret.access.key=planted-begin${file:/planted-path:planted-key}",
            "rsm.config.storage.aws.secret.access.key: its value is one that only the config provider of the broker can replace",
        ),
    ],
)
def test_an_access_key_that_is_not_in_the_configuration(line: str, text: str, tmp_path: Path) -> None:
    file = properties(tmp_path, **BUCKET)
    file.write_text(f"{file.read_text()}{line}\n")
    run = snaprebuild("tier", "inventory", "--server-properties", file, "--broker-credentials")
    assert (run.exit_code, text in run.stderr) == (2, True), run.stderr
    no_secret(run.stdout, run.stderr)
    assert "planted-" not in run.stderr


VERBS = {
    "tier inventory": ("{store}",),
    "tier audit": ("{store}",),
    "tier metadata": ("{store}",),
    "tier repair": ("{store}",),
    "tier upload": ("{store}", "{log}"),
    "follower plan": ("{store}", "{log}"),
    "follower offsets": ("{store}", "{log}"),
    "follower fetch-path": ("{store}", "{log}"),
    "follower check": ("{store}", "{log}"),
    "follower repair": ("{store}", "{log}"),
    "follower build": ("{store}", "{log}"),
}
"""Each verb that takes the store from the configuration, with its arguments."""


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_on_a_store_is_told_to_use_the_credentials(verb: str, tmp_path: Path) -> None:
    places = {"store": "s3://own/tier", "log": str(FIXTURES / "tiered-local" / "logs")}
    words = [*verb.split(), *(each.format(**places) for each in VERBS[verb])]
    alone = snaprebuild(*words, "--broker-credentials")
    assert (alone.exit_code, "--broker-credentials goes with --server-properties" in alone.stderr) == (2, True), alone.stderr
    file = properties(tmp_path, rsm__config__storage__s3__bucket__name="another")
    other = snaprebuild(*words, "--server-properties", file, "--broker-credentials")
    assert (other.exit_code, "expected s3://another" in other.stderr) == (2, True), other.stderr
    no_secret(other.stdout, other.stderr)


def test_the_access_key_signs_requests_and_is_shown_nowhere(tmp_path: Path) -> None:
    settings = S3Settings(endpoint_url="http://127.0.0.1:1", broker_properties=str(properties(tmp_path)), region="us-east-1")
    url = client_of(settings).generate_presigned_url("get_object", Params={"Bucket": "b", "Key": "k"})
    assert SECRETS["rsm.config.storage.aws.access.key.id"] in url
    assert SECRETS["rsm.config.storage.aws.session.token"] in url
    key = read_access_key(str(settings.broker_properties))
    assert (key.key_id, key.secret, key.session_token) == tuple(SECRETS.values())[:3]
    no_secret(repr(settings), repr(key), repr(settings.connection))


@pytest.mark.s3
def test_a_bucket_with_the_credentials_of_its_broker(
    object_store: ObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment has others, which the store refuses. No output, object or receipt has the secret."""
    name = object_store.bucket()
    store = object_store.upload(AIVEN / "diseased" / "store" / "tier", f"s3://{name}/tier")
    secret = os.environ["AWS_SECRET_ACCESS_KEY"]
    file = of_bucket(tmp_path, object_store, name, rsm__config__chunk__size=1024)
    key = {"access.key.id": os.environ["AWS_ACCESS_KEY_ID"], "secret.access.key": secret, "session.token": ""}
    file.write_text(file.read_text() + "".join(f"rsm.config.storage.aws.{part}={value}\n" for part, value in key.items()))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "somebody-else")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "and-wrong")
    told = ("--server-properties", file, "--broker-credentials")
    outputs = tmp_path / "outputs"
    outputs.mkdir()
    logs = of_zookeeper(copy_of("kafka4-mixed", tmp_path))
    upload = ("tier", "upload", store, logs, *LONG_AGO, "--i-am-the-leader", "--topic-partition", "deleted-0")
    runs = {
        "inventory": ("tier", "inventory", "--keys", outputs / "keys.jsonl"),
        "audit": ("tier", "audit", *LONG_AGO, "--ledger", outputs / "ledger", "--metrics", outputs / "audit.prom"),
        "repair": ("tier", "repair", *LONG_AGO, "--allow-unverified", "--receipt", outputs / "receipt"),
        "upload": (*upload, "--records-file", outputs / "records.jsonl"),
    }
    refused = snaprebuild("tier", "inventory", "--server-properties", file)
    assert refused.exit_code == 5
    for verb, words in runs.items():
        run = snaprebuild(*words, *told, "--save-json", outputs / f"{verb}.json", "-vv")
        assert run.exit_code in (0, 1, 4), (verb, run.stderr)
        assert secret not in run.stdout + run.stderr, verb
        no_secret(run.stdout, run.stderr)
    uploaded = json.loads((outputs / "upload.json").read_text())
    assert uploaded["totals"]["uploaded"] > 0
    assert (outputs / "receipt").exists()
    for path in [each for each in outputs.rglob("*") if each.is_file()]:
        assert secret.encode() not in path.read_bytes(), path
    for place, data in object_store.files(f"s3://{name}").items():
        assert secret.encode() not in data, place


@pytest.mark.s3
def test_a_bucket_of_a_broker(object_store: ObjectStore, tmp_path: Path) -> None:
    name = object_store.bucket()
    object_store.upload(AIVEN / "plain" / "store" / "tier", f"s3://{name}/tier")
    file = of_bucket(tmp_path, object_store, name)
    keys = tmp_path / "keys.jsonl"
    run = in_json("tier inventory", "--server-properties", file, "--keys", keys)
    rows: list[dict[str, Any]] = [json.loads(line) for line in keys.read_text().splitlines()]
    assert len(states(run)) * 3 == len(rows)
    assert all(each["etag"] and each["storage_class"] == "STANDARD" for each in rows)
    assert run.document["bucket"]["versioning"] == "Off"
    no_secret(run.stdout, run.stderr, keys.read_text())


@pytest.mark.parametrize(
    ("store", "words"),
    [
        ("plain", ("tier", "inventory")),
        ("encrypted", ("tier", "inventory")),
        ("plain", ("tier", "audit", "--level", "structure")),
        ("diseased", ("tier", "audit")),
        ("diseased", ("tier", "repair", "--allow-unverified", "--dry-run")),
    ],
)
def test_the_next_command_names_the_configuration_too(tmp_path: Path, store: str, words: tuple[str, ...]) -> None:
    """It would lack a store otherwise."""
    file = of_directory(tmp_path, store, rsm__config__encryption__key__pairs="key1")
    with file.open("a") as opened:
        opened.write(f"rsm.config.encryption.key.pairs.key1.private.key.file={PRIVATE_KEY}\n")
    shown = snaprebuild(*words, "--server-properties", file, *LONG_AGO)
    (line,) = [each for each in shown.stdout.splitlines() if each.startswith("Next: ")]
    following = shlex.split(line.removeprefix("Next: "))[1:]
    assert following[following.index("--server-properties") + 1] == str(file)
