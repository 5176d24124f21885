import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.MockTime;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogOffsetsListener;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import java.io.File;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;

/**
 * What a broker of 4.3 with remote storage has when it has loaded a directory, and when it has then appended what a follower fetches.
 * Arguments: the directory, the moment of the load (ms; producers that are older than the longest expiration are not loaded), log start
 * offset, recovery point, whether the stop was clean, leader epoch, and files with fetched batches.
 */
public final class FollowerLog {
    private FollowerLog() { }

    private static void tell(UnifiedLog log) {
        System.out.println("offsets " + log.logStartOffset() + " " + log.localLogStartOffset() + " " + log.logEndOffset());
        log.leaderEpochCache().epochEntries().forEach(each -> System.out.println("epoch " + each.epoch() + " " + each.startOffset()));
        for (ProducerStateEntry each : log.producerStateManager().activeProducers().values()) {
            BatchMetadata last = each.batchMetadata().stream().reduce((one, next) -> next).orElse(new BatchMetadata(-1, -1, 0, -1));
            System.out.println("producer " + each.producerId() + " " + each.producerEpoch() + " " + last.lastSeq() + " " + last.lastOffset()
                + " " + last.offsetDelta() + " " + each.lastTimestamp() + " " + each.coordinatorEpoch() + " "
                + each.currentTxnFirstOffset().orElse(-1));
        }
        System.out.println("topic id " + log.topicId().map(Uuid::toString).orElse("none"));
        System.out.println("end");
    }

    public static void main(String[] args) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        LogConfig config = new LogConfig(Map.of("remote.storage.enable", "true"));
        ProducerStateManagerConfig producers = new ProducerStateManagerConfig(Integer.MAX_VALUE, false);
        try (UnifiedLog log = UnifiedLog.create(new File(args[0]), config, Long.parseLong(args[2]), Long.parseLong(args[3]), scheduler,
                new BrokerTopicStats(), new MockTime(0, Long.parseLong(args[1]), 0), 900_000, producers, 600_000, new LogDirFailureChannel(1),
                Boolean.parseBoolean(args[4]), Optional.empty(), new ConcurrentHashMap<>(), true, LogOffsetsListener.NO_OP_OFFSETS_LISTENER)) {
            tell(log);
            for (int at = 6; at < args.length; at++) {
                byte[] fetched = Files.readAllBytes(Path.of(args[at]));
                log.appendAsFollower(MemoryRecords.readableRecords(ByteBuffer.wrap(fetched)), Integer.parseInt(args[5]));
                tell(log);
            }
        }
        scheduler.shutdown();
    }
}
