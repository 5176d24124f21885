import com.fasterxml.jackson.databind.JsonNode;

import kafka.log.AppendOrigin;
import kafka.log.CompletedTxn;
import kafka.log.ProducerAppendInfo;
import kafka.log.ProducerStateEntry;
import kafka.log.ProducerStateManager;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.record.internal.FileLogInputStream.FileChannelRecordBatch;
import org.apache.kafka.common.utils.AppInfoParser;

import scala.Option;

import java.io.File;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Consumer;

/** The "replay" of ProducerStateOracle by the Scala classes of Kafka 2.4 to 2.7: the same requests, the same answers. */
public final class OracleBefore3 {
    private OracleBefore3() { }

    public static void main(String[] args) throws Exception {
        LogReplay.serveAll(AppInfoParser.getVersion(), OracleBefore3::serve);
    }

    private static Object serve(JsonNode request) throws Exception {
        if (!request.required("op").asText().equals("replay") || request.hasNonNull("out"))
            throw new UnsupportedOperationException("these classes are asked for replays alone");
        File dir = new File(request.required("dir").asText());
        Path scratch = Files.createTempDirectory("producer-state-oracle");
        try {
            TopicPartition partition = new TopicPartition(LogReplay.topic(dir), 0);
            State state = new State(new ProducerStateManager(partition, scratch.toFile(), 86_400_000));
            return LogReplay.replay(LogReplay.segments(dir), LogReplay.isRecover(request), state);
        } finally {
            Files.delete(scratch);
        }
    }

    private static final class State implements LogReplay.State {
        private final ProducerStateManager manager;
        private final AppendOrigin replication;

        private State(ProducerStateManager manager) throws ReflectiveOperationException {
            this.manager = manager;
            // A case object of Scala.
            this.replication = (AppendOrigin) Class.forName("kafka.log.AppendOrigin$Replication$").getField("MODULE$").get(null);
        }

        /** As LogSegment.recover and LogSegment.updateProducerState. */
        @Override
        public void recover(FileChannelRecordBatch batch, List<Object> completed) {
            ProducerAppendInfo info = manager.prepareUpdate(batch.producerId(), replication);
            Option<CompletedTxn> done = info.append(batch, Option.empty());
            manager.update(info);
            if (done.isDefined()) {
                completed.add(row(done.get(), manager.lastStableOffset(done.get())));
                manager.completeTxn(done.get());
            }
        }

        /** As Log.loadProducersFromLog and Log.updateProducers. */
        @Override
        public void rebuild(Iterable<FileChannelRecordBatch> batches, Consumer<FileChannelRecordBatch> seen, List<Object> completed) {
            Map<Long, ProducerAppendInfo> infos = new HashMap<>();
            List<CompletedTxn> done = new ArrayList<>();
            for (FileChannelRecordBatch batch : batches) {
                if (batch.hasProducerId()) {
                    ProducerAppendInfo info = infos.computeIfAbsent(batch.producerId(), id -> manager.prepareUpdate(id, replication));
                    Option<CompletedTxn> ended = info.append(batch, Option.empty());
                    if (ended.isDefined())
                        done.add(ended.get());
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
            Option<Object> first = manager.firstUndecidedOffset();
            return first.isDefined() ? (Long) first.get() : null;
        }

        @Override
        public List<Object> entries() {
            Map<Long, Object> rows = new TreeMap<>();
            var each = manager.activeProducers().valuesIterator();
            while (each.hasNext()) {
                ProducerStateEntry entry = each.next();
                Option<Object> first = entry.currentTxnFirstOffset();
                rows.put(entry.producerId(), LogReplay.entry(entry.producerId(), entry.producerEpoch(), entry.lastSeq(), entry.lastDataOffset(),
                    entry.lastOffsetDelta(), entry.lastTimestamp(), entry.coordinatorEpoch(), first.isDefined() ? (Long) first.get() : -1L));
            }
            return new ArrayList<>(rows.values());
        }

        private static Object row(CompletedTxn transaction, Long lastStableOffset) {
            return LogReplay.completed(transaction.producerId(), transaction.firstOffset(), transaction.lastOffset(), transaction.isAborted(), lastStableOffset);
        }
    }
}
