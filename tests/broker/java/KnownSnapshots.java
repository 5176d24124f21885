import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import java.io.File;
import java.nio.file.Files;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;

/**
 * Loads a log as a broker of 4.x does that was stopped cleanly, and asks for the snapshot of each closed segment as the upload does
 * (ProducerStateManager.fetchSnapshot): for each a line of "next base offset, bytes in hex", or "next base offset, null", where the upload
 * would throw. At the end the last stable offset. Arguments: the directory, and the log end offset. What is put into the directory
 * when the log is loaded is not seen: with a third argument all snapshots are moved back there from that directory behind the load.
 */
public final class KnownSnapshots {
    private KnownSnapshots() { }

    public static void main(String[] args) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        File directory = new File(args[0]);
        try (UnifiedLog log = UnifiedLog.create(directory, new LogConfig(Map.of()), 0, Long.parseLong(args[1]), scheduler,
                new BrokerTopicStats(), Time.SYSTEM, 900_000, new ProducerStateManagerConfig(Integer.MAX_VALUE, false), 600_000,
                new LogDirFailureChannel(1), true, Optional.empty())) {
            if (args.length > 2)
                for (File late : new File(args[2]).listFiles())
                    Files.copy(late.toPath(), directory.toPath().resolve(late.getName()));
            LogSegment before = null;
            for (LogSegment segment : log.logSegments()) {
                if (before != null) {
                    Optional<File> snapshot = log.producerStateManager().fetchSnapshot(segment.baseOffset());
                    String known = snapshot.isEmpty() ? "null" : HexFormat.of().formatHex(Files.readAllBytes(snapshot.get().toPath()));
                    System.out.println(segment.baseOffset() + " " + known);
                }
                before = segment;
            }
            log.updateHighWatermark(log.logEndOffset());
            System.out.println("last stable offset " + log.lastStableOffset());
        }
        scheduler.shutdown();
    }
}
