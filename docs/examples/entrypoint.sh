#!/bin/sh
# Entry point of a broker's image, for operators that offer no init containers:
#   ENTRYPOINT ["/entrypoint.sh"]
#   CMD ["/opt/kafka/bin/kafka-server-start.sh", "/etc/kafka/server.properties"]
# Writes the missing producer snapshots, then becomes CMD, with this process id: what stops the container stops the broker.
#   KAFKA_SERVER_PROPERTIES   the broker's configuration, which names its log directories; or
#   KAFKA_LOG_DIRS            the log directories, with commas between them
#   SNAPREBUILD_RECEIPTS      where receipts go: on a volume, in no log directory; by default "snaprebuild" next to the first log directory
#   SNAPREBUILD_DEADLINE      seconds, by default 300
set -euf
say() { printf 'entrypoint: %s\n' "$1" >&2; }

deadline="${SNAPREBUILD_DEADLINE:-300}"
case "$deadline" in
    *[!0-9]* | ???????*) wrong=yes ;;
    *) if [ "$deadline" -gt 604800 ]; then wrong=yes; else wrong=; fi ;;
esac
if [ -n "$wrong" ]; then
    say "SNAPREBUILD_DEADLINE: expected seconds, at most 604800, found $deadline: 300 are taken"
    deadline=300
fi

properties="${KAFKA_SERVER_PROPERTIES:-}"
if [ -n "$properties" ]; then
    log_dirs="$(sed -n 's/^[[:space:]]*log\.dirs\{0,1\}[[:space:]]*[=:]//p' "$properties" || true)"
else
    log_dirs="${KAFKA_LOG_DIRS:?the log directories of the broker, with commas between them, or KAFKA_SERVER_PROPERTIES}"
fi

set -- -- "$@"
first=
found=
IFS=','
for directory in $log_dirs; do
    directory="$(printf '%s' "$directory" | sed 's/^[[:space:]]*//; s/[[:space:]]*$//')"
    [ -n "$directory" ] || continue
    first="${first:-$directory}"
    if [ -d "$directory" ]; then
        found=yes
        [ -n "$properties" ] || set -- "$directory" "$@"
    else
        say "$directory is no directory: it is skipped"
    fi
done
if [ -n "$properties" ]; then
    set -- --server-properties "$properties" "$@"
elif [ -z "$found" ]; then
    say "there is nothing to prepare"
    shift
    exec "$@"
fi

# The path without links; what is missing at its end stays as it is.
real() {
    existing="$1"
    missing=
    while [ ! -d "$existing" ]; do
        missing="/$(basename "$existing")$missing"
        existing="$(dirname "$existing")"
    done
    printf '%s%s' "$(cd -P "$existing" && pwd)" "$missing"
}

# A broker does not start if it finds an unknown directory in a log directory: nothing is made at or below one.
in_log_dir() {
    place="$(real "$1")"
    for directory in $log_dirs; do
        directory="$(printf '%s' "$directory" | sed 's/^[[:space:]]*//; s/[[:space:]]*$//')"
        [ -n "$directory" ] || continue
        case "$place/" in
            "$(real "$directory")"/*) return 0 ;;
        esac
    done
    return 1
}

receipts="${SNAPREBUILD_RECEIPTS:-${first:+$(dirname "$first")/snaprebuild}}"
if [ -z "$receipts" ]; then
    say "no place for receipts is known: the default one is taken"
elif in_log_dir "$receipts"; then
    say "$receipts is in a log directory: receipts go to the default place"
elif mkdir -p "$receipts"; then
    set -- --receipt "$receipts/receipt-$(date -u +%Y%m%dT%H%M%SZ)-$$.jsonl" "$@"
fi
# Few jobs need little memory: if that of the container is used up, the kernel may end the broker's process, too.
exec snaprebuild before-start --deadline "$deadline" --jobs 2 "$@"
