import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import java.io.File;
import java.util.Map;
import java.util.Optional;

/**
 * What a broker of 4.x holds in memory of the producers of a partition when it has started: for each batch a line of
 * "producer id, first sequence, last sequence, first offset". Arguments: the directory, the recovery point, and whether the stop was clean.
 */
public final class StartedLog {
    private StartedLog() { }

    public static void main(String[] args) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        try (UnifiedLog log = UnifiedLog.create(new File(args[0]), new LogConfig(Map.of()), 0, Long.parseLong(args[1]), scheduler,
                new BrokerTopicStats(), Time.SYSTEM, 900_000, new ProducerStateManagerConfig(86_400_000, false), 600_000,
                new LogDirFailureChannel(1), Boolean.parseBoolean(args[2]), Optional.empty())) {
            for (ProducerStateEntry entry : log.producerStateManager().activeProducers().values())
                for (BatchMetadata batch : entry.batchMetadata())
                    System.out.println(entry.producerId() + " " + batch.firstSeq() + " " + batch.lastSeq() + " " + batch.firstOffset());
        }
        scheduler.shutdown();
    }
}
