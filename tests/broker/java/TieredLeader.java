package org.apache.kafka.server.log.remote.storage;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.log.remote.metadata.storage.FoldedMetadata;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.AsyncOffsetReadFutureHolder;
import org.apache.kafka.storage.internals.log.AsyncOffsetReader;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.LogStartOffsetIncrementReason;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentMap;
import java.util.stream.Collectors;

/**
 * A leader of a topic with remote storage: Kafka's own log and its own RemoteLogManager on LocalTieredStorage, without any task.
 * Arguments: partition directory, log start offset, directory of the storage, topic id, a directory for caches. Reads lines: "M value"
 * takes a record of the metadata log, "T timestamp" asks for "offset timestamp epoch", "W offset" for the id of the copy that serves it, "D offset"
 * deletes the records below and prints what is left on disk, by base offset, and the ids of the copies that went.
 */
public final class TieredLeader extends RemoteLogManager {
    private static FoldedMetadata metadata;
    private static UnifiedLog log;

    private TieredLeader(RemoteLogManagerConfig config, String caches, BrokerTopicStats stats) throws IOException {
        super(config, 1, caches, "cluster", Time.SYSTEM, partition -> Optional.of(log), (partition, offset) -> { }, stats,
                new Metrics(), Optional.empty());
    }

    @Override RemoteStorageManager createRemoteStorageManager() {
        return new LocalTieredStorage();
    }

    @Override RemoteLogMetadataManager createRemoteLogMetadataManager() {
        return metadata;
    }

    public static void main(String[] args) throws Exception {
        File directory = new File(args[0]);
        TopicPartition partition = UnifiedLog.parseTopicPartitionName(directory);
        Uuid topicId = Uuid.fromString(args[3]);
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        BrokerTopicStats stats = new BrokerTopicStats(true);
        metadata = new FoldedMetadata();
        LogConfig config = new LogConfig(Map.of("remote.storage.enable", "true", "retention.ms", "-1"));
        log = UnifiedLog.create(directory, config, Long.parseLong(args[1]), 0, scheduler,
                stats, Time.SYSTEM, 900_000, new ProducerStateManagerConfig(86_400_000, false), 600_000, new LogDirFailureChannel(1),
                true, Optional.of(topicId), new ConcurrentHashMap<>(), true, LogOffsetsListener.NO_OP_OFFSETS_LISTENER);
        log.updateHighWatermark(log.logEndOffset());
        Map<String, Object> settings = new HashMap<>(Map.of("remote.log.storage.system.enable", "true",
                "rsm.config.dir", args[2], "remote.log.metadata.manager.listener.name", "PLAINTEXT",
                "remote.log.storage.manager.class.name", LocalTieredStorage.class.getName()));
        TieredLeader leader = new TieredLeader(
                new RemoteLogManagerConfig(new AbstractConfig(RemoteLogManagerConfig.configDef(), settings)), args[4], stats);
        leader.know(partition, topicId);
        boolean isLeading = false;
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String word = line.substring(2);
            if (line.startsWith("M")) {
                metadata.take(HexFormat.of().parseHex(word));
                continue;
            }
            if (!isLeading) {
                TopicIdPartition id = new TopicIdPartition(topicId, partition);
                log.updateLogStartOffsetFromRemoteTier(leader.findLogStartOffset(id, log));
                log.updateHighestOffsetInRemoteStorage(leader.findHighestRemoteOffset(id, log).offset());
                isLeading = true;
            }
            long number = Long.parseLong(word);
            System.out.println(switch (line.charAt(0)) {
                case 'T' -> leader.answer(number);
                case 'W' -> leader.copyOf(partition, number);
                default -> leader.deleteBelow(new TopicIdPartition(topicId, partition), number);
            });
        }
        System.out.flush();
        Runtime.getRuntime().halt(0); // threads of pools that are not needed
    }

    @SuppressWarnings("unchecked")
    private void know(TopicPartition partition, Uuid topicId) throws ReflectiveOperationException {
        var field = RemoteLogManager.class.getDeclaredField("topicIdByPartitionMap");
        field.setAccessible(true);
        ((ConcurrentMap<TopicPartition, Uuid>) field.get(this)).put(partition, topicId);
    }

    /** As {@code RemoteLogOffsetReader} does it, which only adds threads. */
    private String answer(long timestamp) throws IOException {
        String[] found = {"-1 -1 -1"};
        AsyncOffsetReader reader = (partition, asked, start, epochs, onDisk) -> {
            try {
                var record = findOffsetByTimestamp(partition, asked, start, epochs);
                if (record.isEmpty())
                    record = onDisk.get();
                found[0] = record.map(each -> each.offset + " " + each.timestamp + " " + each.leaderEpoch.orElse(-1)).orElse(found[0]);
            } catch (Exception error) {
                throw new IllegalStateException(error);
            }
            return new AsyncOffsetReadFutureHolder<>(CompletableFuture.completedFuture(null), new CompletableFuture<>());
        };
        var result = log.fetchOffsetByTimestamp(timestamp, Optional.of(reader));
        return result.timestampAndOffsetOpt()
                .map(each -> each.offset + " " + each.timestamp + " " + each.leaderEpoch.orElse(-1)).orElse(found[0]);
    }

    private String deleteBelow(TopicIdPartition id, long offset) throws Exception {
        log.maybeIncrementLogStartOffset(offset, LogStartOffsetIncrementReason.ClientRecordDeletion);
        log.deleteOldSegments();
        new RLMExpirationTask(id).cleanupExpiredRemoteLogSegments();
        String left = log.logSegments().stream().map(each -> String.valueOf(each.baseOffset())).collect(Collectors.joining(","));
        return left + " " + String.join(",", metadata.updated);
    }

    private String copyOf(TopicPartition partition, long offset) throws RemoteStorageException {
        OptionalInt epoch = log.leaderEpochCache().epochForOffset(offset);
        if (epoch.isEmpty())
            return "-";
        return fetchRemoteLogSegmentMetadata(partition, epoch.getAsInt(), offset)
                .map(each -> each.remoteLogSegmentId().id().toString()).orElse("-");
    }
}
