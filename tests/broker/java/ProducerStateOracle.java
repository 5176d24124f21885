import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.record.internal.FileLogInputStream.FileChannelRecordBatch;
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

import java.io.File;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import java.util.function.Consumer;
import java.util.stream.Stream;

/**
 * Asks Kafka's own classes what a log says about its producers. One JSON request a line on stdin, one JSON answer a line on stdout:
 *
 *   {"op": "replay", "dir": D, "mode": "rebuild" | "recover"}
 *       folds every segment of a partition directory, from the first on disk and with empty state. "rebuild" follows
 *       UnifiedLog.rebuildProducerState (one ProducerAppendInfo per producer and segment read), "recover" follows LogSegment.recover
 *       (one per batch, CRC checked). With "base": F, a snapshot of the first offset, it begins with that.
 *   {"op": "answer", "log": HEX, "reload": BOOL, "attempts": [{"batch": HEX, "bumps_epochs": BOOL}, ...]}
 *       what a leader does with each of the batches after the log, as UnifiedLog.analyzeAndValidateProducerState: "accepted",
 *       "duplicate N" with the offset that it acknowledges, or the name of the exception. With "reload" it has taken a snapshot before, and loaded it.
 *   {"op": "snapshot", "file": F}       ProducerStateManager.readSnapshot
 *
 * An answer is {"ok": ...} or {"error": "class: message"}. The directory that is read is never written to.
 */
public final class ProducerStateOracle {
    private ProducerStateOracle() { }

    public static void main(String[] args) throws IOException {
        Exit.setExitProcedure((code, message) -> {
            throw new IllegalStateException("exit " + code + (message == null ? "" : ": " + message));
        });
        LogReplay.serveAll(AppInfoParser.getVersion(), ProducerStateOracle::serve);
    }

    private static Object serve(JsonNode request) throws Throwable {
        String op = request.required("op").asText();
        switch (op) {
            case "replay":
                return replay(new File(request.required("dir").asText()), LogReplay.isRecover(request), request.path("base").asText(null));
            case "answer":
                return answers(request);
            case "snapshot":
                List<Object> rows = new ArrayList<>();
                for (ProducerStateEntry entry : ProducerStateManager.readSnapshot(new File(request.required("file").asText())))
                    rows.add(row(entry));
                return rows;
            default:
                throw new IllegalArgumentException("unknown op " + op);
        }
    }

    // ---- replay ----

    private static Object replay(File dir, boolean recover, String base) throws IOException {
        Path scratch = Files.createTempDirectory("producer-state-oracle");
        try {
            // The expiration is never applied here: only loading a snapshot and the periodic task look at it.
            ProducerStateManager manager = new ProducerStateManager(new TopicPartition(LogReplay.topic(dir), 0),
                scratch.toFile(), 900_000, new ProducerStateManagerConfig(86_400_000, false), Time.SYSTEM);
            if (base != null) {
                long offset = Long.parseLong(new File(base).getName().split("[.]")[0]);
                Files.copy(Path.of(base), scratch.resolve(new File(base).getName()));
                manager = new ProducerStateManager(new TopicPartition(LogReplay.topic(dir), 0),
                    scratch.toFile(), 900_000, new ProducerStateManagerConfig(86_400_000, false), Time.SYSTEM);
                manager.truncateAndReload(0, offset, 0); // at moment 0 nothing has expired
            }
            return LogReplay.replay(LogReplay.segments(dir), recover, new State(manager));
        } finally {
            deleteAll(scratch);
        }
    }

    private static void deleteAll(Path scratch) throws IOException {
        try (Stream<Path> files = Files.list(scratch)) {
            for (Path file : files.toList())
                Files.delete(file);
        }
        Files.delete(scratch);
    }

    private static final class State implements LogReplay.State {
        private final ProducerStateManager manager;

        private State(ProducerStateManager manager) {
            this.manager = manager;
        }

        /** As LogSegment.recover and LogSegment.updateProducerState. */
        @Override
        public void recover(FileChannelRecordBatch batch, List<Object> completed) {
            ProducerAppendInfo info = manager.prepareUpdate(batch.producerId(), AppendOrigin.REPLICATION);
            Optional<CompletedTxn> done = info.append(batch, Optional.empty());
            manager.update(info);
            if (done.isPresent()) {
                completed.add(row(done.get(), manager.lastStableOffset(done.get())));
                manager.completeTxn(done.get());
            }
        }

        /** As UnifiedLog.loadProducersFromRecords. */
        @Override
        public void rebuild(Iterable<FileChannelRecordBatch> batches, Consumer<FileChannelRecordBatch> seen, List<Object> completed) {
            Map<Long, ProducerAppendInfo> infos = new HashMap<>();
            List<CompletedTxn> done = new ArrayList<>();
            for (FileChannelRecordBatch batch : batches) {
                if (batch.hasProducerId()) {
                    ProducerAppendInfo info = infos.computeIfAbsent(batch.producerId(), id -> manager.prepareUpdate(id, AppendOrigin.REPLICATION));
                    info.append(batch, Optional.empty()).ifPresent(done::add);
                }
                seen.accept(batch);
            }
            infos.values().forEach(manager::update);
            for (CompletedTxn transaction : done) {
                manager.completeTxn(transaction);
                completed.add(row(transaction, null));
            }
        }

        @Override
        public void endsAt(long offset) {
            manager.updateMapEndOffset(offset);
        }

        @Override
        public Long firstUndecidedOffset() {
            return manager.firstUndecidedOffset().isPresent() ? manager.firstUndecidedOffset().getAsLong() : null;
        }

        @Override
        public List<Object> entries() {
            List<Object> entries = new ArrayList<>();
            for (ProducerStateEntry entry : new TreeMap<>(manager.activeProducers()).values())
                entries.add(row(entry));
            return entries;
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
            deleteAll(scratch);
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

    // ---- values ----

    private static Object row(ProducerStateEntry entry) {
        return LogReplay.entry(entry.producerId(), entry.producerEpoch(), (Integer) value(entry, "lastSeq"), entry.lastDataOffset(),
            (Integer) value(entry, "lastOffsetDelta"), entry.lastTimestamp(), entry.coordinatorEpoch(), entry.currentTxnFirstOffset().orElse(-1L));
    }

    private static Object row(CompletedTxn transaction, Long lastStableOffset) {
        return LogReplay.completed((Long) value(transaction, "producerId"), (Long) value(transaction, "firstOffset"),
            (Long) value(transaction, "lastOffset"), (Boolean) value(transaction, "isAborted"), lastStableOffset);
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
}
