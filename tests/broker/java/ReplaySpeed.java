import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.LogSegments;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.Stream;

/**
 * Times Kafka's own replays of a partition directory. Each line of stdin, "rebuild DIR" or "recover DIR", is one pass; each is answered by
 * "nanoseconds producers bytes" of it.
 *
 * rebuild: UnifiedLog.rebuildProducerState over all segments, headers only, as after a clean start without a snapshot.
 * recover: LogSegment.recover of each segment with the checksum of each batch, as after an unclean stop; it writes the segments' indexes anew,
 * so DIR must be a copy of everything but the logs, which it leaves alone. Opening the segments is not timed, nor is anything written for boundaries apart from what Kafka itself writes.
 */
public final class ReplaySpeed {
    private static final KafkaScheduler SCHEDULER = new KafkaScheduler(1);

    private ReplaySpeed() { }

    public static void main(String[] args) throws Exception {
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
        SCHEDULER.startup();
        System.out.println("ready");
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            String[] words = line.split(" ", 2);
            Path scratch = Files.createTempDirectory("replay-speed");
            try {
                System.out.println(pass(words[0], new File(words[1]), scratch));
            } finally {
                try (Stream<Path> files = Files.list(scratch)) {
                    for (Path file : files.toList())
                        Files.delete(file);
                }
                Files.delete(scratch);
            }
        }
        SCHEDULER.shutdown();
    }

    private static String pass(String what, File dir, Path scratch) throws Exception {
        TopicPartition partition = new TopicPartition("bench", 0);
        LogSegments segments = new LogSegments(partition);
        List<File> files = new ArrayList<>(List.of(dir.listFiles((parent, name) -> name.endsWith(".log"))));
        files.sort(null);
        long bytes = 0;
        for (File file : files) {
            long base = Long.parseLong(file.getName().substring(0, 20));
            segments.add(LogSegment.open(dir, base, new LogConfig(Map.of()), Time.SYSTEM, true, 0, false, ""));
            bytes += file.length();
        }
        ProducerStateManager manager = new ProducerStateManager(partition, scratch.toFile(), 900_000,
            new ProducerStateManagerConfig(86_400_000, false), Time.SYSTEM);
        LeaderEpochFileCache epochs = new LeaderEpochFileCache(partition,
            new LeaderEpochCheckpointFile(new File(scratch.toFile(), "leader-epoch-checkpoint"), new LogDirFailureChannel(1)), SCHEDULER);
        long end = segments.lastSegment().get().readNextOffset();
        long begin = System.nanoTime();
        if (what.equals("rebuild")) {
            UnifiedLog.rebuildProducerState(manager, segments, 0, end, Time.SYSTEM, false, "");
        } else {
            for (LogSegment segment : segments.values()) {
                int cut = segment.recover(manager, epochs);
                if (cut != 0)
                    throw new IllegalStateException(segment + " was cut by " + cut);
            }
        }
        long nanos = System.nanoTime() - begin;
        int producers = manager.activeProducers().size();
        segments.close();
        return nanos + " " + producers + " " + bytes;
    }
}
