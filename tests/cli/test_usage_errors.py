"""Wrong arguments: one line says what was expected and found, nothing is printed or written, and no word of the program's language."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from every_verb import INTERNALS
from in_process import snaprebuild

REBUILD = "rebuild fixtures/magic0 --dry-run"
MIXED = "fixtures/kafka27-mixed/logs/mixed-0"
LOG = f"{MIXED}/{0:020d}.log"
TIERED = "fixtures/tiered-local/remote"
LEADER = "follower offsets fixtures/follower-lost-state/node1 fixtures/follower-lost-state/remote --topic payments"
MOVED = "fixtures/kraft-metadata-moved"
CLUSTER = "fixtures/kraft-cluster3"
HISTORY = f"cluster history {CLUSTER}/node1"
SOURCE = f"cluster source {CLUSTER}/node1"
UPLOAD = "tier upload fixtures/kafka4-mixed/logs {tmp}/store"
STAGE = "stage fixtures/kafka27-mixed --to {tmp}/staged"
HEALTHY = "fixtures/damaged/healthy/tier/remote"
AUDIT = "tier audit fixtures/aiven-layout/encrypted/store"
KEY = "fixtures/aiven-layout/keys/key1.private.pem"

CASES = [
    # paths, times, ranges and numbers
    (
        f"{REBUILD} --as-of yesterday",
        "--as-of: expected a time like 2026-11-21T12:00:00Z, milliseconds since 1970, or now; found 'yesterday'",
    ),
    (f"{REBUILD} --as-of -1", "found '-1'"),
    (f"{REBUILD} --as-of 1700000000", "1700000000 ms lie before 1974: are they seconds"),
    (
        f"{REBUILD} --as-of 9999999999999999999999999999999999999999999999999999999999999999999999",
        "'999999999999999999999999999999999999999999999999999999999...' does not lie between 1970 and 9999",
    ),
    (f"{REBUILD} --as-of 1969-12-31T23:59:59Z", "'1969-12-31T23:59:59Z' does not lie between 1970 and 9999"),
    (f"{REBUILD} --expiration-ms 0", "'--expiration-ms': expected a number from 1 to 9223372036854775807, found '0'"),
    (f"{REBUILD} --expiration-ms 1.5", "found '1.5'; units: ms, s, m, h, d"),
    (f"{REBUILD} --offsets ''", "--offsets: expected FROM:TO, FROM:, :TO or one offset; found ''"),
    (f"{REBUILD} --offsets :", "found ':'"),
    (f"{REBUILD} --offsets 1_0", "found '1_0'"),
    (f"{REBUILD} --offsets '٧'", "found '٧'"),
    (f"{REBUILD} --offsets 5:1", "--offsets: nothing lies in '5:1'"),
    (f"{REBUILD} --offsets 9223372036854775808:", "--offsets: no offset is larger than 9223372036854775807"),
    (f"{REBUILD} --partition -1", "'--partition': expected a number from 0 to 2147483647, found '-1'"),
    (f"{REBUILD} --topic ''", "--topic: the pattern is empty"),
    (f"{REBUILD} --jobs 0", "'--jobs': expected a number from 1 to 1024, found '0'"),
    (f"{REBUILD} --output yaml", "'yaml' is not one of 'table', 'json'"),
    (f"{REBUILD} --out ''", "--out: the path is empty"),
    (f"{REBUILD} --out README.md", "README.md: --out leads there, and it is not a directory"),
    (f"{REBUILD} --out README.md/below/it", "README.md: --out leads there, and it is not a directory"),
    (f"{REBUILD} --out nowhere --set-aside", "--set-aside renames files in the log directories, and --out does not change those"),
    (f"{REBUILD} --server-properties ''", "--server-properties: the path is empty"),
    (f"{REBUILD} --server-properties fixtures", "--server-properties: expected a file, found the directory fixtures"),
    (f"{REBUILD} --server-properties nowhere", "nowhere: does not exist"),
    (f"{REBUILD} --save-json ''", "--save-json: expected a file, found an empty path"),
    (f"{REBUILD} --save-json fixtures", "--save-json: expected a file, found fixtures"),
    (f"{REBUILD} --save-json nowhere/report.json", "--save-json: the directory of nowhere/report.json does not exist"),
    (f"{REBUILD} ''", "a PATH is empty"),
    (f"{REBUILD} nowhere", "nowhere: does not exist"),
    (f"{REBUILD} /", "/: is the root of the file system: name a log directory"),
    (f"{REBUILD} /tmp/..", "is the root of the file system"),
    (f"{REBUILD} README.md", "README.md: is no directory: name the directory that the file is in"),
    (f"{REBUILD} --nope", "No such option '--nope'"),
    (f"{REBUILD} --max-read-rate 10MiB", "No such option '--max-read-rate'. Did you mean '--set max_read_rate=VALUE'?"),
    # documents and verbs
    ("rebuild", "name at least one path, or the --server-properties of a broker"),
    ("rebuild --plan ''", "--plan: the path is empty"),
    ("rebuild --plan fixtures", "--plan: expected a file, found the directory fixtures"),
    ("rebuild --plan README.md", "README.md: is not a saved plan: line 1: expected "),
    ("plan fixtures/magic0 --save nowhere/plan.json", "--save: the directory of nowhere/plan.json does not exist"),
    ("plan fixtures/magic0 --save one.json --save-json ./one.json", "--save-json and --save name one file"),
    ("rebuild --plan README.md --save-json README.md", "the plan and --save-json name one file"),
    ("rebuildd", "No such command 'rebuildd'"),
    ("dump fixtures/magic0", "No such command 'dump'. Did you mean 'inspect dump'? (see snaprebuild --help)"),
    ("explain", "No such command 'explain'. Did you mean 'inspect explain'?"),
    ("check", "No such command 'check'. Did you mean 'follower check' or 'cluster check'?"),
    ("undo fixtures", "fixtures: is a directory: name a file"),
    ("install fixtures", "fixtures: is a directory: name a file"),
    ("undo README.md", "README.md: is not a receipt: "),
    ("undo README.md --save-json README.md", "the receipt and --save-json name one file"),
    ("verify --receipt README.md --topic t", "--receipt names the files by itself"),
    ("report README.md README.md --html {tmp}/page.html", "is named twice"),
    ("report --html {tmp}/page.html", "name at least one document"),
    ("fleet fixtures", "fixtures: is a directory: name a file"),
    ("report fixtures", "fixtures: is a directory: name a file"),
    # settings and selections
    (f"{REBUILD} --set broker_epoch=5", "--set: 'broker_epoch' is no setting; expected one of impact, jobs, "),
    (f"{REBUILD} --set max_requests", "--set: expected NAME=VALUE, found 'max_requests'"),
    (
        f"{REBUILD} --set max_requests=few",
        "max_requests: expected a number from 1 to 9223372036854775807, found 'few' (from --set)",
    ),
    (f"{REBUILD} --set s3_anonymous=yes", "s3_anonymous: expected one of true, false, found 'yes' (from --set)"),
    (f"{REBUILD} --set max_read_rate=0", "max_read_rate: expected "),
    (f"{REBUILD} --set max_read_rate=64MB", "max_read_rate: expected "),
    (f"{REBUILD} --set jobs_per_disk=0", "jobs_per_disk: expected "),
    (f"{REBUILD} --set priority=last", "priority: expected "),
    ("rebuild s3://bucket/logs --set-aside", "--set-aside renames files, and objects are never renamed"),
    (f"verify {MIXED} --offsets 5", "--offsets: no boundary of 1 selected partition is in this range; they are from 583 to 8231"),
    (
        f"plan {MIXED} --offsets 99999:",
        "--offsets: no boundary of 1 selected partition is in this range; they are from 583 to 8231",
    ),
    (f"rebuild {MIXED} --out {{tmp}}/out --offsets 1:2", "--offsets: no boundary of 1 selected partition is in this range"),
    (
        "cluster source fixtures/kafka4-mixed --topic mixed --peer fixtures/txn-state",
        "--peer: no topic matches 'mixed' (4 partitions found)",
    ),
    (f"{REBUILD} --config nowhere.toml", "nowhere.toml: does not exist"),
    ("--set max_requests=many tier inventory s3://bucket", "max_requests: expected a number"),
    (
        "tier --set s3_anonymous=true --set s3_requester_pays=true inventory s3://bucket",
        "s3_anonymous: an anonymous request has no account that pays",
    ),
    # staging
    ("plan fixtures/kafka27-mixed --to {tmp}/staged --engine spark", "not with --engine spark"),
    (f"{STAGE} --engine spark", "No such option '--engine'"),
    (f"{STAGE} --out x", "No such option '--out'"),
    (f"{STAGE} --set-aside", "--set-aside needs a broker that is stopped: not with --to"),
    (f"{STAGE} --boundaries all", "--to is for snapshots that are missing: not with --boundaries all"),
    (f"{STAGE} --drop-expired", "no entry may be dropped from it"),
    (f"{STAGE} --broker-running", "No such option '--broker-running'"),
    (f"{STAGE} --receipt r.jsonl", "No such option '--receipt'"),
    # names of --assume
    (
        f"{LEADER} --assume high_watermark",
        "--assume: expected NAME=VALUE with one of leader_epoch, high_watermark, remote_storage; found ",
    ),
    (f"{LEADER} --assume highest_remote=5", "--assume: expected NAME=VALUE with one of leader_epoch, "),
    (
        f"{LEADER} --assume high_watermark=-1",
        "--assume high_watermark: expected a number from 0 to 9223372036854775807, found '-1'",
    ),
    (f"{LEADER} --assume remote_storage=true", "--assume remote_storage: expected one of on, off, found 'true'"),
    (f"{LEADER} --assume leader_epoch=5 --assume leader-epoch=6", "--assume: leader_epoch is given twice"),
    # before-start
    ("before-start {tmp} --", "-- expects the command"),
    ("before-start {tmp} -- ''", "-- expects the command"),
    ("before-start {tmp} --fail-closed", "--fail-closed says when CMD is started: none is given"),
    ("before-start {tmp} --output json -- true", "--output json: stdout belongs to CMD; --save-json FILE takes the document"),
    ("install {tmp}/plan.jsonl --output json -- true", "--output json: stdout belongs to CMD; --save-json FILE takes the document"),
    ("before-start {tmp} s3://bucket/logs", "no broker starts on an object store"),
    ("before-start {tmp} --deadline -1", "expected a number from 0"),
    # inspect
    (f"inspect explain {MIXED} --producer-id -1", "expected a number from 0 to 9223372036854775807"),
    (
        f"inspect explain {MIXED} --producer-id 1 --assume kafka_release=2.3",
        "--assume kafka_release: expected a release of Kafka from 2.4 to 4.4; found '2.3'",
    ),
    (f"inspect explain {MIXED} --producer-id 1 --epoch 32768", "expected a number from 0 to 32767"),
    (f"inspect explain {MIXED}", "Missing option '--producer-id'"),
    ("inspect dump", "no FILE"),
    ("inspect dump ''", "a PATH is empty"),
    (f"inspect dump {LOG} --offsets 9:1", "nothing lies"),
    (f"inspect dump {LOG} --file-kind table", "--file-kind"),
    (f"inspect dump {MIXED}", ": is a directory; name the files in it"),
    ("inspect diff fixtures/kafka27-mixed/logs fixtures/kafka27-mixed/logs", ": is a directory; name the files in it"),
    ("inspect diff nowhere nowhere", "nowhere: no such file"),
    (f"inspect transactions {MIXED} --assume late_after_ms=1 --assume max_timeout_ms=1", "give one of them"),
    ("inspect diff a", "expected two snapshots, A and B; found 1"),
    ("inspect diff a a a", "expected two snapshots, A and B; found 3"),
    # remote storage and followers
    (f"follower build {TIERED} {{tmp}} --topic-partition mixed", "expected TOPIC-N"),
    (f"follower build {TIERED} {{tmp}} --topic-partition other-0", "has no copy of other-0"),
    (f"follower build {TIERED} {{tmp}} --topic-partition mixed-1", "has no copy of mixed-1"),
    (f"follower build {TIERED} {{tmp}} --topic-partition mixed-0 --topic-id x", "--topic-id: "),
    (f"follower build {TIERED} {{tmp}} --topic-partition mixed-0 --assume log_start=6390", "is not above the log start 6390"),
    ("tier inventory {tmp}", "has no copy of a segment"),
    ("tier audit {tmp}", "has no copy of a segment"),
    (f"tier inventory {TIERED} --metadata-log fixtures/kafka27-mixed", "has no partition of __remote_log_metadata"),
    (
        f"tier audit {HEALTHY} --level reachable --local-log-start nosuch-0=4",
        "nosuch-0 is not in remote storage, which has payments-0",
    ),
    (f"tier audit {HEALTHY} --partition 7", "has no copy of a segment that the selection takes"),
    (f"tier audit {HEALTHY} --local-log-start payments-0=1", "go with --level reachable"),
    (f"{AUDIT} --set private_key=fixtures/aiven-layout/keys/key1.public.pem", "expected an RSA key in PEM"),
    (f"tier audit {HEALTHY} --set private_key=/nowhere/key.pem", "/nowhere/key.pem: the private key cannot be read"),
    (f"{AUDIT} --set private_key={KEY} --set private_key={KEY}", "private_key: two files without a name: write NAME=FILE"),
    (f"{AUDIT} --set private_key=key1={KEY} --set private_key=key1={KEY}", "private_key: two files for the key 'key1'"),
    (f"{AUDIT} --set private_key=key1=", "private_key: expected FILE or NAME=FILE"),
    (f"{UPLOAD} --topic-partition nobody-0", "no partition 'nobody-0' was found"),
    (f"{UPLOAD} --topic-id mixed", "expected TOPIC=ID"),
    (f"{UPLOAD} --topic-id mixed=x", "expected 22 characters"),
    (f"{UPLOAD} --uploader {'x' * 1001}", "--uploader: expected at most 1000 characters, found 1001"),
    (f"{UPLOAD} --set key_prefix=../", "key_prefix: a part of it is empty"),
    (f"{UPLOAD} --set key_prefix=/a", "key_prefix: a part of it is empty"),
    (f"{UPLOAD} --chunk-size 0", "expected a number from 1 to 1073741823"),
    (
        f"{UPLOAD} --produce-to localhost",
        "--produce-to: expected HOST:PORT, several with commas between; found 'localhost'",
    ),
    (f"{UPLOAD} --produce-to a:9092,b:99999", "found 'b:99999'"),
    (f"{UPLOAD} --produce-to user@a:9092", "found 'user@a:9092'"),
    (f"{UPLOAD} --produce-to a:9092 --records-file r", "neither --records-file nor --metadata-log go with it"),
    (f"{UPLOAD} --produce-to a:9092 --producer-config /nowhere", "/nowhere: the settings cannot be read"),
    (f"{UPLOAD} --producer-config x", "--produce-to, which is not given"),
    # metadata logs
    (
        f"{HISTORY} --topic shrink --from 348",
        "the log has nothing between --from and --to: what was read are offsets 0 to 347",
    ),
    (
        f"{HISTORY} --topic shrink --to 2026-01-01",
        "the log has nothing between --from and --to: it begins at 0",
    ),
    (
        f"{HISTORY} --topic shrink --from yesterday",
        "--from: expected an offset, or a time like 2026-11-21T12:00:00Z; found 'yesterday'",
    ),
    (
        f"{HISTORY} --topic shrink --to 9223372036854775808",
        "--to: expected an offset up to 9223372036854775807",
    ),
    (f"{HISTORY} --topic shrink --to 5", "nothing from offset 0 to 5 mentions shrink"),
    (f"{HISTORY}", "name a --topic, a --broker, or both"),
    (f"{HISTORY} --broker 1 --partition 0", "--partition belongs to a --topic"),
    (f"{HISTORY} --topic nope", "nothing from offset 0 to 347 mentions nope"),
    (f"{HISTORY} --broker 9", "mentions broker 9"),
    (f"cluster image {CLUSTER}/node1 --voter {CLUSTER}/node1", "is of voter 1, like"),
    (f"cluster image {CLUSTER}/node1 --voter fixtures/kraft-metadata/logs", "is of cluster"),
    (f"cluster image {CLUSTER}/node1 --offset 348", "the log ends before offset 348: its last one is 347"),
    (
        f"cluster image {CLUSTER}/node2 --offset 100",
        "nothing is known at offset 100: no checkpoint is so old, and the log begins at 234",
    ),
    (f"cluster image {CLUSTER}/node1 --offset yesterday", "expected an offset or 'proven', found 'yesterday'"),
    (f"cluster image {CLUSTER}/node1 --assume 'voters=1;2'", "--assume voters: expected ids with commas between them, found '1;2'"),
    (f"cluster image {CLUSTER}/node1 --voter 9999999999=node2", "--voter: expected [ID=]DIR with an id up to 2147483647"),
    (f"cluster image {CLUSTER}/node1/orders-0", "is a partition of orders, not __cluster_metadata-0"),
    (f"{SOURCE} --metadata ''", "--metadata: the path is empty"),
    (f"{SOURCE} --metadata fixtures/kafka27-mixed", "holds no __cluster_metadata-0"),
    (f"{SOURCE} --offset 400", "the log ends before offset 400: its last one is 347"),
    ("cluster check nowhere", "nowhere: does not exist"),
    ("cluster check fixtures/magic0", "holds no __cluster_metadata-0"),
    (f"cluster check {CLUSTER}", "holds several metadata logs"),
    ("cluster check fixtures/kraft-metadata fixtures/kraft-metadata", "is named twice"),
    ("cluster check fixtures/kraft-metadata --leader fixtures/magic0", "--leader: is not one of the directories"),
    (f"cluster advise {MOVED} --assume replica=2:1 --assume replica=2:2", "--assume replica: 2 is named twice"),
    (f"cluster advise {MOVED} --assume listener=broker", "--assume listener: expected NAME:OFFSET, found 'broker'"),
    (f"cluster advise {MOVED} --assume leader_start=5", "--assume leader_start: expected OFFSET:EPOCH, found '5'"),
    (f"cluster advise {MOVED} --assume max_retention_bytes=-2", "--assume max_retention_bytes: expected a number from -1 to"),
    (f"cluster advise {MOVED} --assume lag_time_max_ms=-1", "--assume lag_time_max_ms: expected a number from 0 to"),
    (f"cluster advise {MOVED} {CLUSTER}/node1", "the directories are of 2 clusters"),
    (f"cluster advise {MOVED} {MOVED}", "two directories are of node 1"),
    ("cluster advise", "name the directory of a metadata log, or the --server-properties of its node"),
    ("cluster isr {tmp}", "{tmp}"),
    # simulations
    ("simulate isr nope", "expected one of race, "),
    ("simulate isr race --search", "exclude each other"),
    ("simulate isr --scenario absent.txt", "does not exist"),
]


@pytest.mark.parametrize(("command", "said"), CASES, ids=[command[:60] for command, _ in CASES])
def test_one_line_says_what_was_expected_and_found(command: str, said: str, tmp_path: Path) -> None:
    run = snaprebuild(*(word.replace("{tmp}", str(tmp_path)) for word in shlex.split(command)))
    assert (run.exit_code, run.stdout) == (2, "")
    assert said.replace("{tmp}", str(tmp_path)) in run.stderr
    assert run.stderr.startswith("snaprebuild: ")
    assert run.stderr.count("\n") == 1, run.stderr
    assert not INTERNALS.search(run.stderr.replace(str(tmp_path), ""))
    assert os.listdir(tmp_path) == []
