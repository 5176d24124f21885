#!/bin/sh
# Entry point of a broker's image, for operators that offer no init containers:
#   ENTRYPOINT ["/entrypoint.sh"]
#   CMD ["/opt/kafka/bin/kafka-server-start.sh", "/etc/kafka/server.properties"]
# Writes the missing producer snapshots, then becomes CMD, with this process id: what stops the container stops the broker.
set -eu
: "${KAFKA_LOG_DIRS:?the log directories of the broker, with commas between them}"
deadline="${SNAPREBUILD_DEADLINE:-300}"
set -- -- "$@"
IFS=,
for directory in $KAFKA_LOG_DIRS; do
    set -- "$directory" "$@"
done
exec snaprebuild hook run --deadline "$deadline" "$@"
