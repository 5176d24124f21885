import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.MockTime;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.raft.Batch;
import org.apache.kafka.raft.Isolation;
import org.apache.kafka.raft.LogFetchInfo;
import org.apache.kafka.raft.MetadataLogConfig;
import org.apache.kafka.raft.ValidOffsetAndEpoch;
import org.apache.kafka.raft.VoterSet;
import org.apache.kafka.raft.internals.KRaftControlRecordStateMachine;
import org.apache.kafka.raft.internals.KafkaRaftLog;
import org.apache.kafka.raft.internals.KafkaRaftMetrics;
import org.apache.kafka.raft.internals.RecordsIterator;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.OffsetAndEpoch;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.snapshot.RecordsSnapshotReader;
import org.apache.kafka.snapshot.SnapshotReader;
import org.apache.kafka.snapshot.Snapshots;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ScheduledFuture;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * What Kafka does with metadata log directories, one on each line of input, as a node meets them: it loads the log, reads it when Raft begins,
 * and tells a listener; then fetches are judged, a cleaner runs that may keep nothing, and each checkpoint is looked at: whether
 * Kafka would make it there, and what becomes of a follower that loaded it. The directory is changed. A line of output is JSON.
 */
public final class MetadataLogStart {
    private static final int BATCH_BYTES = 8 * 1024 * 1024;
    private static final LogContext CONTEXT = new LogContext();
    private static final TopicPartition PARTITION = new TopicPartition("__cluster_metadata", 0);

    private MetadataLogStart() { }

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

    private static KafkaRaftLog loaded(Path directory, Map<String, String> settings) throws Exception {
        MetadataLogConfig config = new MetadataLogConfig(new AbstractConfig(MetadataLogConfig.CONFIG_DEF, settings, false));
        MockTime time = new MockTime(0, 4_000_000_000_000L, 0);
        return KafkaRaftLog.createLog(PARTITION, Uuid.METADATA_TOPIC_ID, directory.toFile(), time, new Never(), config, 1);
    }

    private static String asked(Callable<String> question) {
        try {
            return question.call();
        } catch (Exception error) {
            return "throws " + error.getClass().getSimpleName();
        }
    }

    private static Map<String, Object> answer(String path) throws Exception {
        Map<String, Object> told = new TreeMap<>();
        Path directory = Path.of(path);
        List<KafkaRaftLog> made = new ArrayList<>();
        told.put("load", asked(() -> {
            made.add(loaded(directory, Map.of("metadata.max.retention.bytes", "0")));
            return "loads";
        }));
        told.put("files", names(directory));
        if (made.isEmpty())
            return told;
        KafkaRaftLog log = made.get(0);
        told.put("start", log.startOffset());
        told.put("end", log.endOffset().offset());
        told.put("epochs", Files.readAllLines(directory.resolve("leader-epoch-checkpoint")));
        told.put("snapshots", log.latestSnapshotId().map(MetadataLogStart::text).orElse("none"));
        told.put("raft", asked(() -> raft(log)));
        told.put("listener", asked(() -> listened(log)));
        log.updateHighWatermark(log.endOffset());
        Map<String, Object> checkpoints = new TreeMap<>();
        for (String name : names(directory))
            if (name.endsWith(".checkpoint")) {
                OffsetAndEpoch id = Snapshots.parse(directory.resolve(name)).orElseThrow().snapshotId();
                Map<String, Object> one = new TreeMap<>();
                one.put("made_there", asked(() -> log.createNewSnapshot(id).isPresent() ? "no such file is known" : "yes"));
                one.put("fetch", asked(() -> judged(log, id)));
                one.put("follower", asked(() -> followed(log, directory, name, id)));
                checkpoints.put(text(id), one);
            }
        told.put("checkpoints", checkpoints);
        told.put("cleaner", asked(() -> (log.maybeClean() ? "moves to " : "stays at ") + log.startOffset()));
        return told;
    }

    private static List<String> names(Path directory) throws Exception {
        try (Stream<Path> files = Files.list(directory)) {
            return files.map(each -> each.getFileName().toString()).sorted().collect(Collectors.toList());
        }
    }

    private static String text(OffsetAndEpoch id) {
        return id.offset() + "-" + id.epoch();
    }

    /** As {@code KafkaRaftClient.initialize}. */
    private static String raft(KafkaRaftLog log) {
        new KRaftControlRecordStateMachine(VoterSet.empty(), log, MetadataRecordSerde.INSTANCE, BufferSupplier.create(), BATCH_BYTES, CONTEXT,
            new KafkaRaftMetrics(new Metrics(), "raft"), ignored -> { }).updateState();
        return "reads to " + log.endOffset().offset() + " epoch " + log.lastFetchedEpoch();
    }

    /** As {@code KafkaRaftClient.updateListenersProgress} for a new listener: the latest snapshot, then the log behind it. */
    private static String listened(KafkaRaftLog log) {
        MetadataDelta delta = new MetadataDelta.Builder().build();
        long next = 0;
        int faults = 0;
        if (log.latestSnapshot().isPresent()) {
            try (SnapshotReader<ApiMessageAndVersion> reader = RecordsSnapshotReader.of(log.latestSnapshot().get(),
                    MetadataRecordSerde.INSTANCE, BufferSupplier.create(), BATCH_BYTES, true, CONTEXT)) {
                while (reader.hasNext())
                    faults += replayed(delta, reader.next());
                next = reader.lastContainedLogOffset() + 1;
            }
        } else if (log.startOffset() > 0) {
            return "none to load";
        }
        long skipped = 0;
        long again = 0;
        while (next < log.endOffset().offset()) {
            LogFetchInfo info = log.read(next, Isolation.UNCOMMITTED, Integer.MAX_VALUE);
            try (RecordsIterator<ApiMessageAndVersion> batches = new RecordsIterator<>(info.records, MetadataRecordSerde.INSTANCE,
                    BufferSupplier.create(), BATCH_BYTES, true, CONTEXT)) {
                if (!batches.hasNext())
                    return "stands still at " + next;
                while (batches.hasNext()) {
                    Batch<ApiMessageAndVersion> batch = batches.next();
                    skipped += Math.max(0, batch.baseOffset() - next);
                    again += Math.max(0, next - batch.baseOffset());
                    faults += replayed(delta, batch);
                    next = batch.lastOffset() + 1;
                }
            }
        }
        return "reads to " + next + ", skips " + skipped + ", takes again " + again + (faults == 0 ? "" : ", throws on records");
    }

    private static int replayed(MetadataDelta delta, Batch<ApiMessageAndVersion> batch) {
        int faults = 0;
        for (ApiMessageAndVersion record : batch.records())
            try {
                delta.replay(record.message());
            } catch (RuntimeException error) {
                faults++;
            }
        return faults;
    }

    private static String judged(KafkaRaftLog log, OffsetAndEpoch id) {
        ValidOffsetAndEpoch valid = log.validateOffsetAndEpoch(id.offset(), id.epoch());
        return valid.kind() + (valid.kind() == ValidOffsetAndEpoch.Kind.VALID ? "" : " " + text(valid.offsetAndEpoch()));
    }

    /** A follower that holds this checkpoint alone fetches once from this log. */
    private static String followed(KafkaRaftLog leader, Path directory, String name, OffsetAndEpoch id) throws Exception {
        Path own = Files.createTempDirectory(directory.getParent(), "follower").resolve("__cluster_metadata-0");
        Files.createDirectories(own);
        Files.copy(directory.resolve(name), own.resolve(name));
        KafkaRaftLog follower = loaded(own, Map.of());
        raft(follower);
        int epoch = follower.lastFetchedEpoch();
        ValidOffsetAndEpoch valid = leader.validateOffsetAndEpoch(follower.endOffset().offset(), epoch);
        switch (valid.kind()) {
            case VALID:
                if (leader.endOffset().offset() <= follower.endOffset().offset())
                    return "is at the end";
                FileRecords read = (FileRecords) leader.read(follower.endOffset().offset(), Isolation.UNCOMMITTED, Integer.MAX_VALUE).records;
                ByteBuffer sent = ByteBuffer.allocate(read.sizeInBytes());
                read.readInto(sent, 0);
                follower.appendAsFollower(MemoryRecords.readableRecords(sent), Integer.MAX_VALUE);
                return "takes up to " + follower.endOffset().offset();
            case SNAPSHOT:
                return "loads " + text(valid.offsetAndEpoch());
            default:
                return "cuts to " + follower.truncateToEndOffset(valid.offsetAndEpoch()) + ", is at " + follower.endOffset().offset();
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println("= " + Json.of(answer(line)));
        }
    }
}
