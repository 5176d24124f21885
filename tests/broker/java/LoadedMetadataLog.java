import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.utils.MockTime;
import org.apache.kafka.raft.MetadataLogConfig;
import org.apache.kafka.raft.internals.KafkaRaftLog;
import org.apache.kafka.server.util.Scheduler;

import java.io.File;
import java.util.Map;
import java.util.concurrent.ScheduledFuture;

/** Kafka's own metadata log over a directory, loaded as a node does when it starts, at a moment that is given. */
public final class LoadedMetadataLog {
    private LoadedMetadataLog() { }

    /** What would run later does not: renamed files stay. */
    private static final class Never implements Scheduler {
        @Override
        public void startup() { }

        @Override
        public void shutdown() { }

        @Override
        public ScheduledFuture<?> schedule(String name, Runnable task, long delayMs, long periodMs) {
            return null;
        }

        @Override
        public void resizeThreadPool(int newSize) { }
    }

    /** The log; what it deletes gets another name and stays. */
    public static KafkaRaftLog of(File directory, Map<String, String> settings, long nowMs) throws Exception {
        MetadataLogConfig config = new MetadataLogConfig(new AbstractConfig(MetadataLogConfig.CONFIG_DEF, settings, false));
        TopicPartition partition = new TopicPartition("__cluster_metadata", 0);
        return KafkaRaftLog.createLog(partition, Uuid.METADATA_TOPIC_ID, directory, new MockTime(0, nowMs, 0), new Never(), config, 1);
    }
}
