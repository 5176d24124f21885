import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.errors.CorruptRecordException;
import org.apache.kafka.common.record.internal.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.common.utils.Exit;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.CompletedTxn;
import org.apache.kafka.storage.internals.log.ProducerAppendInfo;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.stream.Stream;

/**
 * Asks Kafka's own classes what a log says about its producers. One JSON request a line on stdin, one JSON answer a line on stdout:
 *
 *   {"op": "replay", "dir": D, "mode": "rebuild" | "recover", "out": DIR or absent}
 *       folds every segment of a partition directory, from the first on disk and with empty state. "rebuild" follows
 *       UnifiedLog.rebuildProducerState (one ProducerAppendInfo per producer and segment read), "recover" follows LogSegment.recover
 *       (one per batch, CRC checked). With "out", ProducerStateManager also writes its snapshot of every boundary there.
 *   {"op": "answer", "log": HEX, "reload": BOOL, "attempts": [{"batch": HEX, "bumps_epochs": BOOL}, ...]}
 *       what a leader does with each of the batches after the log, as UnifiedLog.analyzeAndValidateProducerState: "accepted",
 *       "duplicate N" with the offset that it acknowledges, or the name of the exception. With "reload" it has taken a snapshot before, and loaded it.
 *   {"op": "snapshot", "file": F}       ProducerStateManager.readSnapshot
 *   {"op": "dump", "file": F, "options": [...]}    the text of DumpLogSegments
 *
 * An answer is {"ok": ...} or {"error": "class: message"}. The directory that is read is never written to.
 */
public final class ProducerStateOracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    private ProducerStateOracle() { }

    public static void main(String[] args) throws IOException {
        PrintStream answers = System.out;
        System.setOut(System.err); // whatever a library prints must not get between the answers
        Exit.setExitProcedure((code, message) -> {
            throw new IllegalStateException("exit " + code + (message == null ? "" : ": " + message));
        });
        answer(answers, Map.of("ok", Map.of("version", AppInfoParser.getVersion())));
        BufferedReader requests = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = requests.readLine(); line != null; line = requests.readLine()) {
            Map<String, Object> result = new HashMap<>();
            try {
                result.put("ok", serve(JSON.readTree(line)));
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

    private static Object serve(JsonNode request) throws Throwable {
        String op = request.required("op").asText();
        switch (op) {
            case "replay":
                File out = request.hasNonNull("out") ? new File(request.get("out").asText()) : null;
                return replay(new File(request.required("dir").asText()), request.required("mode").asText(), out);
            case "answer":
                return answers(request);
            case "snapshot":
                List<Object> rows = new ArrayList<>();
                for (ProducerStateEntry entry : ProducerStateManager.readSnapshot(new File(request.required("file").asText())))
                    rows.add(row(entry));
                return rows;
            case "dump":
                List<String> options = new ArrayList<>();
                request.path("options").forEach(option -> options.add(option.asText()));
                return dump(request.required("file").asText(), options);
            default:
                throw new IllegalArgumentException("unknown op " + op);
        }
    }

    // ---- replay ----

    private static Object replay(File dir, String mode, File out) throws IOException {
        boolean recover = mode.equals("recover");
        if (!recover && !mode.equals("rebuild"))
            throw new IllegalArgumentException("mode is rebuild or recover, not " + mode);
        List<File> segments = segments(dir);
        Path scratch = out != null ? null : Files.createTempDirectory("producer-state-oracle");
        try {
            // The expiration is never applied here: only loading a snapshot and the periodic task look at it.
            ProducerStateManager manager = new ProducerStateManager(new TopicPartition(topic(dir), 0),
                out != null ? out : scratch.toFile(), 900_000, new ProducerStateManagerConfig(86_400_000, false), Time.SYSTEM);
            return replay(segments, recover, manager, out != null);
        } finally {
            if (scratch != null)
                Files.delete(scratch);
        }
    }

    private static Map<String, Object> replay(List<File> segments, boolean recover, ProducerStateManager manager, boolean snapshots)
            throws IOException {
        List<Object> boundaries = new ArrayList<>();
        List<Object> completed = new ArrayList<>();
        Map<String, Object> stopped = null;
        long end = segments.isEmpty() ? 0L : baseOffset(segments.get(0));
        for (int i = 0; i < segments.size() && stopped == null; i++) {
            Segment segment = new Segment(segments.get(i));
            boolean whole = true;
            try (FileRecords records = FileRecords.open(segment.file, false)) {
                if (recover)
                    recover(segment, records, manager, completed);
                else
                    rebuild(segment, records, manager, completed);
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
            manager.updateMapEndOffset(boundary);
            if (snapshots)
                manager.takeSnapshot();
            boundaries.add(segment.row(boundary, manager));
        }
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("segments", boundaries);
        result.put("end_offset", end);
        result.put("stopped", stopped);
        result.put("completed", completed);
        return result;
    }

    /** As UnifiedLog.loadProducersFromRecords. */
    private static void rebuild(Segment segment, FileRecords records, ProducerStateManager manager, List<Object> completed) {
        Map<Long, ProducerAppendInfo> infos = new HashMap<>();
        List<CompletedTxn> done = new ArrayList<>();
        for (FileChannelRecordBatch batch : records.batches()) {
            if (batch.hasProducerId()) {
                ProducerAppendInfo info = infos.computeIfAbsent(batch.producerId(), id -> manager.prepareUpdate(id, AppendOrigin.REPLICATION));
                info.append(batch, Optional.empty()).ifPresent(done::add);
            }
            segment.add(batch);
        }
        infos.values().forEach(manager::update);
        for (CompletedTxn transaction : done) {
            manager.completeTxn(transaction);
            completed.add(row(transaction, null));
        }
    }

    /** As LogSegment.recover and LogSegment.updateProducerState. */
    private static void recover(Segment segment, FileRecords records, ProducerStateManager manager, List<Object> completed) {
        for (FileChannelRecordBatch batch : records.batches()) {
            batch.ensureValid();
            if (batch.magic() >= 2 && batch.hasProducerId()) {
                ProducerAppendInfo info = manager.prepareUpdate(batch.producerId(), AppendOrigin.REPLICATION);
                Optional<CompletedTxn> done = info.append(batch, Optional.empty());
                manager.update(info);
                if (done.isPresent()) {
                    completed.add(row(done.get(), manager.lastStableOffset(done.get())));
                    manager.completeTxn(done.get());
                }
            }
            segment.add(batch);
        }
    }

    // ---- answers ----

    private static Object answers(JsonNode request) throws Exception {
        Path scratch = Files.createTempDirectory("producer-state-oracle");
        try {
            ProducerStateManager manager = managerIn(scratch);
            long end = 0;
            for (MutableRecordBatch batch : batches(request.required("log").asText())) {
                end = batch.lastOffset() + 1;
                if (!batch.hasProducerId())
                    continue;
                ProducerAppendInfo info = manager.prepareUpdate(batch.producerId(), AppendOrigin.REPLICATION);
                Optional<CompletedTxn> done = info.append(batch, Optional.empty());
                manager.update(info);
                done.ifPresent(manager::completeTxn);
            }
            manager.updateMapEndOffset(end);
            if (request.required("reload").asBoolean()) {
                manager.takeSnapshot();
                manager = managerIn(scratch);
                manager.truncateAndReload(0, end, 0); // at moment 0 nothing has expired
            }
            List<Object> answers = new ArrayList<>();
            for (JsonNode attempt : request.required("attempts"))
                answers.add(answer(manager, batches(attempt.required("batch").asText()).iterator().next(), attempt.required("bumps_epochs").asBoolean()));
            return answers;
        } finally {
            try (Stream<Path> files = Files.list(scratch)) {
                for (Path file : files.toList())
                    Files.delete(file);
            }
            Files.delete(scratch);
        }
    }

    private static ProducerStateManager managerIn(Path dir) throws IOException {
        return new ProducerStateManager(new TopicPartition("t", 0), dir.toFile(), 900_000,
            new ProducerStateManagerConfig(86_400_000, false), Time.SYSTEM);
    }

    private static Iterable<MutableRecordBatch> batches(String hex) {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(hex))).batches();
    }

    private static String answer(ProducerStateManager manager, MutableRecordBatch batch, boolean bumpsEpochs) throws Exception {
        long id = batch.producerId();
        Optional<ProducerStateEntry> entry = manager.lastEntry(id);
        Optional<BatchMetadata> duplicate = entry.isPresent() ? findDuplicate(entry.get(), batch) : Optional.empty();
        if (duplicate.isPresent())
            return "duplicate " + duplicate.get().firstOffset();
        // A leader makes the verification entry where no transaction is open; 3.x knows no version 2 of transactions.
        boolean isOpen = entry.isPresent() && entry.get().currentTxnFirstOffset().isPresent();
        if (bumpsEpochs && batch.isTransactional() && !isOpen)
            ProducerStateManager.class.getMethod("maybeCreateVerificationStateEntry", long.class, int.class, short.class, boolean.class)
                .invoke(manager, id, batch.baseSequence(), batch.producerEpoch(), true);
        try {
            manager.prepareUpdate(id, AppendOrigin.CLIENT).append(batch, Optional.empty());
            return "accepted";
        } catch (ApiException error) {
            return error.getClass().getSimpleName();
        } finally {
            manager.clearVerificationStateEntry(id);
        }
    }

    @SuppressWarnings("unchecked")
    private static Optional<BatchMetadata> findDuplicate(ProducerStateEntry entry, RecordBatch batch) throws ReflectiveOperationException {
        var method = ProducerStateEntry.class.getDeclaredMethod("findDuplicateBatch", RecordBatch.class);
        method.setAccessible(true); // package-private in 4.x
        return (Optional<BatchMetadata>) method.invoke(entry, batch);
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
            this.baseOffset = ProducerStateOracle.baseOffset(file);
            this.nextOffset = baseOffset;
        }

        private void add(FileChannelRecordBatch batch) {
            batches++;
            maxMagic = Math.max(maxMagic, batch.magic());
            maxTimestamp = Math.max(maxTimestamp, batch.maxTimestamp());
            nextOffset = batch.lastOffset() + 1;
        }

        private Map<String, Object> row(long boundary, ProducerStateManager manager) {
            Map<String, Object> row = new LinkedHashMap<>();
            row.put("segment", file.getName());
            row.put("base_offset", baseOffset);
            row.put("bytes", file.length());
            row.put("batches", batches);
            row.put("max_magic", maxMagic);
            row.put("max_timestamp", maxTimestamp);
            row.put("next_offset", nextOffset);
            row.put("snapshot_offset", boundary);
            row.put("first_undecided_offset", manager.firstUndecidedOffset().isPresent() ? manager.firstUndecidedOffset().getAsLong() : null);
            List<Object> entries = new ArrayList<>();
            for (ProducerStateEntry entry : new TreeMap<>(manager.activeProducers()).values())
                entries.add(ProducerStateOracle.row(entry));
            row.put("entries", entries);
            return row;
        }
    }

    private static List<File> segments(File dir) throws IOException {
        try (Stream<Path> files = Files.list(dir.toPath())) {
            return files.map(Path::toFile).filter(file -> file.isFile() && file.getName().matches("\\d{20}\\.log"))
                .sorted((a, b) -> Long.compare(baseOffset(a), baseOffset(b))).toList();
        }
    }

    private static long baseOffset(File segment) {
        return Long.parseLong(segment.getName().substring(0, 20));
    }

    private static String topic(File dir) {
        return dir.getName().replaceFirst("-\\d+$", "");
    }

    // ---- values ----

    private static Map<String, Object> row(ProducerStateEntry entry) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("producer_id", entry.producerId());
        row.put("epoch", entry.producerEpoch());
        row.put("last_sequence", value(entry, "lastSeq"));
        row.put("last_offset", entry.lastDataOffset());
        row.put("offset_delta", value(entry, "lastOffsetDelta"));
        row.put("timestamp", entry.lastTimestamp());
        row.put("coordinator_epoch", entry.coordinatorEpoch());
        row.put("current_txn_first_offset", entry.currentTxnFirstOffset().orElse(-1L));
        return row;
    }

    private static Map<String, Object> row(CompletedTxn transaction, Long lastStableOffset) {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("producer_id", value(transaction, "producerId"));
        row.put("first_offset", value(transaction, "firstOffset"));
        row.put("last_offset", value(transaction, "lastOffset"));
        row.put("aborted", value(transaction, "isAborted"));
        row.put("last_stable_offset", lastStableOffset);
        return row;
    }

    /** An accessor that is public, package-private or a plain field, depending on Kafka's version. */
    private static Object value(Object owner, String name) {
        try {
            try {
                var method = owner.getClass().getDeclaredMethod(name);
                method.setAccessible(true);
                return method.invoke(owner);
            } catch (NoSuchMethodException noMethod) {
                var field = owner.getClass().getDeclaredField(name);
                field.setAccessible(true);
                return field.get(owner);
            }
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    // ---- DumpLogSegments ----

    private static String dump(String file, List<String> options) throws Throwable {
        Class<?> tool;
        try {
            tool = Class.forName("org.apache.kafka.tools.DumpLogSegments");
        } catch (ClassNotFoundException before4) {
            tool = Class.forName("kafka.tools.DumpLogSegments");
        }
        List<String> args = new ArrayList<>(List.of("--files", file));
        args.addAll(options);
        ByteArrayOutputStream text = new ByteArrayOutputStream();
        PrintStream before = System.out;
        PrintStream captured = new PrintStream(text, true, StandardCharsets.UTF_8);
        try {
            System.setOut(captured);
            callMain(tool, captured, args.toArray(new String[0]));
        } catch (InvocationTargetException error) {
            throw error.getCause();
        } finally {
            System.setOut(before);
        }
        captured.flush();
        return text.toString(StandardCharsets.UTF_8);
    }

    private static void callMain(Class<?> tool, PrintStream captured, String[] args) throws ReflectiveOperationException {
        Class<?> scalaConsole;
        try {
            scalaConsole = Class.forName("scala.Console$");
        } catch (ClassNotFoundException noScala) {
            tool.getMethod("main", String[].class).invoke(null, (Object) args);
            return;
        }
        // The Scala tool of 3.x prints through scala.Console, which keeps the stream it found first.
        Object console = scalaConsole.getField("MODULE$").get(null);
        var method = scalaConsole.getMethod("withOut", java.io.OutputStream.class, Class.forName("scala.Function0"));
        Object body = java.lang.reflect.Proxy.newProxyInstance(tool.getClassLoader(), new Class<?>[] {Class.forName("scala.Function0")},
            (proxy, called, values) -> {
                tool.getMethod("main", String[].class).invoke(null, (Object) args);
                return null;
            });
        try {
            method.invoke(console, captured, body);
        } catch (InvocationTargetException error) {
            Throwable cause = error;
            while (cause.getCause() != null && (cause instanceof InvocationTargetException || cause instanceof java.lang.reflect.UndeclaredThrowableException))
                cause = cause.getCause();
            throw new InvocationTargetException(cause);
        }
    }

    private static String describe(Throwable error) {
        return error.getClass().getName() + ": " + error.getMessage();
    }
}
