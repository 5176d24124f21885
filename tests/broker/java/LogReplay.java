import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.common.errors.CorruptRecordException;
import org.apache.kafka.common.record.internal.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.internal.FileRecords;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.stream.Stream;

/** What the oracles of all releases share: requests and answers as lines of JSON, and the way through the segments of a directory. */
final class LogReplay {
    static final ObjectMapper JSON = new ObjectMapper();

    private LogReplay() { }

    interface Server {
        Object serve(JsonNode request) throws Throwable;
    }

    /** The producer state of a partition, by the classes of a release. */
    interface State {
        /** A batch as LogSegment.recover takes it: an append info of its own. */
        void recover(FileChannelRecordBatch batch, List<Object> completed);

        /** The batches of a segment as UnifiedLog.loadProducersFromRecords takes them; each is passed to {@code seen} after its append. */
        void rebuild(Iterable<FileChannelRecordBatch> batches, Consumer<FileChannelRecordBatch> seen, List<Object> completed);

        /** The next boundary. */
        void endsAt(long offset);

        /** Null where no transaction is open. */
        Long firstUndecidedOffset();

        /** In the order of their ids. */
        List<Object> entries();
    }

    /** Answers each line of stdin, until it ends. */
    static void serveAll(String version, Server server) throws IOException {
        PrintStream answers = System.out;
        System.setOut(System.err); // whatever a library prints must not get between the answers
        answer(answers, Map.of("ok", Map.of("version", version)));
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            Map<String, Object> result = new HashMap<>();
            try {
                result.put("ok", server.serve(JSON.readTree(line)));
            } catch (Throwable error) { // an Error of Kafka's is an answer, too
                result.put("error", describe(error));
            }
            answer(answers, result);
        }
    }

    private static void answer(PrintStream answers, Map<String, Object> value) throws IOException {
        answers.write((JSON.writeValueAsString(value) + "\n").getBytes(StandardCharsets.UTF_8));
        answers.flush();
    }

    static Map<String, Object> replay(List<File> segments, boolean recover, State state) throws IOException {
        List<Object> boundaries = new ArrayList<>();
        List<Object> completed = new ArrayList<>();
        Map<String, Object> stopped = null;
        long end = segments.isEmpty() ? 0L : baseOffset(segments.get(0));
        for (int i = 0; i < segments.size() && stopped == null; i++) {
            Segment segment = new Segment(segments.get(i));
            boolean whole = true;
            try (FileRecords records = FileRecords.open(segment.file, false)) {
                if (recover)
                    recover(segment, records, state, completed);
                else
                    state.rebuild(records.batches(), segment::add, completed);
            } catch (RuntimeException error) {
                // LogSegment.recover cuts the segment at a batch that is corrupt and goes on; anything else stops the broker.
                whole = recover && (error instanceof CorruptRecordException || error.getClass().getSimpleName().equals("InvalidRecordException"));
                stopped = new LinkedHashMap<>();
                stopped.put("segment", segment.file.getName());
                stopped.put("offset", segment.nextOffset);
                stopped.put("truncated", whole);
                stopped.put("error", describe(error));
            }
            end = segment.nextOffset;
            if (!whole)
                break;
            boolean last = i + 1 == segments.size() || stopped != null;
            long boundary = last ? segment.nextOffset : baseOffset(segments.get(i + 1));
            state.endsAt(boundary);
            boundaries.add(segment.row(boundary, state));
        }
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("segments", boundaries);
        result.put("end_offset", end);
        result.put("stopped", stopped);
        result.put("completed", completed);
        return result;
    }

    /** As LogSegment.recover and LogSegment.updateProducerState. */
    private static void recover(Segment segment, FileRecords records, State state, List<Object> completed) {
        for (FileChannelRecordBatch batch : records.batches()) {
            batch.ensureValid();
            if (batch.magic() >= 2 && batch.hasProducerId())
                state.recover(batch, completed);
            segment.add(batch);
        }
    }

    static boolean isRecover(JsonNode request) {
        String mode = request.required("mode").asText();
        if (!mode.equals("recover") && !mode.equals("rebuild"))
            throw new IllegalArgumentException("mode is rebuild or recover, not " + mode);
        return mode.equals("recover");
    }

    /** The segments of a directory, by base offset. */
    static List<File> segments(File dir) throws IOException {
        try (Stream<Path> files = Files.list(dir.toPath())) {
            return files.map(Path::toFile).filter(file -> file.isFile() && file.getName().matches("\\d{20}\\.log"))
                .sorted((a, b) -> Long.compare(baseOffset(a), baseOffset(b))).toList();
        }
    }

    private static long baseOffset(File segment) {
        return Long.parseLong(segment.getName().substring(0, 20));
    }

    static String topic(File dir) {
        return dir.getName().replaceFirst("-\\d+$", "");
    }

    static Map<String, Object> entry(long producerId, short epoch, int lastSequence, long lastOffset, int offsetDelta, long timestamp,
            int coordinatorEpoch, long currentTxnFirstOffset) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("producer_id", producerId);
        row.put("epoch", epoch);
        row.put("last_sequence", lastSequence);
        row.put("last_offset", lastOffset);
        row.put("offset_delta", offsetDelta);
        row.put("timestamp", timestamp);
        row.put("coordinator_epoch", coordinatorEpoch);
        row.put("current_txn_first_offset", currentTxnFirstOffset);
        return row;
    }

    static Map<String, Object> completed(long producerId, long firstOffset, long lastOffset, boolean aborted, Long lastStableOffset) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("producer_id", producerId);
        row.put("first_offset", firstOffset);
        row.put("last_offset", lastOffset);
        row.put("aborted", aborted);
        row.put("last_stable_offset", lastStableOffset);
        return row;
    }

    static String describe(Throwable error) {
        return error.getClass().getName() + ": " + error.getMessage();
    }

    /** What was seen of one segment. */
    private static final class Segment {
        private final File file;
        private final long baseOffset;
        private long batches = 0;
        private int maxMagic = -1;
        private long maxTimestamp = -1;
        private long nextOffset;

        private Segment(File file) {
            this.file = file;
            this.baseOffset = LogReplay.baseOffset(file);
            this.nextOffset = baseOffset;
        }

        private void add(FileChannelRecordBatch batch) {
            batches++;
            maxMagic = Math.max(maxMagic, batch.magic());
            maxTimestamp = Math.max(maxTimestamp, batch.maxTimestamp());
            nextOffset = batch.lastOffset() + 1;
        }

        private Map<String, Object> row(long boundary, State state) {
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("segment", file.getName());
            row.put("base_offset", baseOffset);
            row.put("bytes", file.length());
            row.put("batches", batches);
            row.put("max_magic", maxMagic);
            row.put("max_timestamp", maxTimestamp);
            row.put("next_offset", nextOffset);
            row.put("snapshot_offset", boundary);
            row.put("first_undecided_offset", state.firstUndecidedOffset());
            row.put("entries", state.entries());
            return row;
        }
    }
}
