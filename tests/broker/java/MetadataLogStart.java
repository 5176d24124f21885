import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.image.MetadataDelta;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.raft.Batch;
import org.apache.kafka.raft.Isolation;
import org.apache.kafka.raft.LogFetchInfo;
import org.apache.kafka.raft.ValidOffsetAndEpoch;
import org.apache.kafka.raft.VoterSet;
import org.apache.kafka.raft.internals.KRaftControlRecordStateMachine;
import org.apache.kafka.raft.internals.KafkaRaftLog;
import org.apache.kafka.raft.internals.KafkaRaftMetrics;
import org.apache.kafka.raft.internals.RecordsIterator;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.OffsetAndEpoch;
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
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * What Kafka does with metadata log directories as a node meets them: it loads the log, reads it when Raft begins, and calls a listener; then a
 * cleaner runs that may keep nothing, and checkpoints are looked at: whether Kafka would make them there, and what becomes of a follower that
 * loaded one. A line of input is a directory, which is changed, and after a tab the ids of checkpoints to look at, or "all". A line of
 * output is JSON.
 */
public final class MetadataLogStart {
    private static final int BATCH_BYTES = 8 * 1024 * 1024;
    private static final LogContext CONTEXT = new LogContext();

    private MetadataLogStart() { }

    private static KafkaRaftLog loaded(Path directory, Map<String, String> settings) throws Exception {
        return LoadedMetadataLog.of(directory.toFile(), settings, 4_000_000_000_000L);
    }

    private static String asked(Callable<String> question) {
        try {
            return question.call();
        } catch (Exception error) {
            return "throws " + error.getClass().getSimpleName();
        }
    }

    private static Map<String, Object> answer(String path, Set<String> wanted) throws Exception {
        Map<String, Object> told = new TreeMap<>();
        Path directory = Path.of(path);
        Path aged = copied(directory, "aged", names(directory));
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
                if (!wanted.contains("all") && !wanted.contains(text(id)))
                    continue;
                Map<String, Object> one = new TreeMap<>();
                one.put("made_there", asked(() -> log.createNewSnapshot(id).isPresent() ? "no such file is known" : "yes"));
                one.put("fetch", asked(() -> judged(log, id)));
                one.put("follower", asked(() -> followed(log, directory, name, id)));
                checkpoints.put(text(id), one);
            }
        told.put("checkpoints", checkpoints);
        told.put("cleaner", asked(() -> cleaned(log)));
        KafkaRaftLog old = loaded(aged, Map.of("metadata.max.retention.bytes", "-1", "metadata.max.retention.ms", "0"));
        told.put("cleaner_by_age", asked(() -> cleaned(old)));
        return told;
    }

    private static String cleaned(KafkaRaftLog log) {
        log.updateHighWatermark(log.endOffset());
        return (log.maybeClean() ? "moves to " : "stays at ") + log.startOffset();
    }

    private static Path copied(Path directory, String prefix, List<String> names) throws Exception {
        Path own = Files.createTempDirectory(directory.getParent(), prefix).resolve("__cluster_metadata-0");
        Files.createDirectories(own);
        for (String name : names)
            Files.copy(directory.resolve(name), own.resolve(name));
        return own;
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

    /** As {@code KafkaRaftClient.updateListenersProgress} for a new listener: the latest snapshot, then the log after it. */
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

    /** A follower that holds this checkpoint alone fetches from this log until it has all of it. */
    private static String followed(KafkaRaftLog leader, Path directory, String name, OffsetAndEpoch id) throws Exception {
        KafkaRaftLog follower = loaded(copied(directory, "follower", List.of(name)), Map.of());
        raft(follower);
        long skipped = 0;
        while (true) {
            long next = follower.endOffset().offset();
            ValidOffsetAndEpoch valid = leader.validateOffsetAndEpoch(next, follower.lastFetchedEpoch());
            if (valid.kind() == ValidOffsetAndEpoch.Kind.SNAPSHOT)
                return "loads " + text(valid.offsetAndEpoch());
            if (valid.kind() == ValidOffsetAndEpoch.Kind.DIVERGING)
                return "cuts to " + follower.truncateToEndOffset(valid.offsetAndEpoch());
            if (leader.endOffset().offset() <= next)
                return "takes up to " + next + ", skips " + skipped;
            FileRecords read = (FileRecords) leader.read(next, Isolation.UNCOMMITTED, Integer.MAX_VALUE).records;
            ByteBuffer sent = ByteBuffer.allocate(read.sizeInBytes());
            read.readInto(sent, 0);
            MemoryRecords records = MemoryRecords.readableRecords(sent);
            skipped += Math.max(0, records.batches().iterator().next().baseOffset() - next);
            follower.appendAsFollower(records, Integer.MAX_VALUE);
        }
    }

    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split("\t", -1);
            System.out.println("= " + Json.of(answer(words[0], Set.of(words[1].split(",")))));
        }
    }
}
