import kafka.log.AppendOrigin;
import kafka.log.BatchMetadata;
import kafka.log.CompletedTxn;
import kafka.log.ProducerAppendInfo;
import kafka.log.ProducerStateEntry;
import kafka.log.ProducerStateManager;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.record.MutableRecordBatch;

import scala.Option;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;

/**
 * The "answer" of ProducerStateOracle by the Scala classes of Kafka 2.4 to 2.7. Argument: an empty directory. Lines on stdin, in hexadecimal:
 *
 *   log BATCHES       what follows is asked after these batches
 *   reload BATCHES    the same, and the leader has taken a snapshot and loaded it
 *   batch BATCH       a line on stdout: "accepted", "duplicate N" with the offset that it acknowledges, or the name of the exception
 */
public final class LeaderBefore3 {
    private LeaderBefore3() { }

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        ProducerStateManager manager = null;
        int logs = 0;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("batch")) {
                System.out.println(answer(manager, batches(words[1]).iterator().next()));
                continue;
            }
            File dir = new File(args[0], Integer.toString(logs++));
            dir.mkdir();
            manager = new ProducerStateManager(new TopicPartition("t", 0), dir, 86_400_000);
            long end = replay(manager, words[1]);
            if (words[0].equals("reload")) {
                manager.takeSnapshot();
                manager = new ProducerStateManager(new TopicPartition("t", 0), dir, 86_400_000);
                manager.truncateAndReload(0, end, 0); // at moment 0 nothing has expired
            }
        }
    }

    private static long replay(ProducerStateManager manager, String log) throws ReflectiveOperationException {
        long end = 0;
        for (MutableRecordBatch batch : batches(log)) {
            end = batch.lastOffset() + 1;
            if (!batch.hasProducerId())
                continue;
            ProducerAppendInfo info = manager.prepareUpdate(batch.producerId(), origin("Replication"));
            Option<CompletedTxn> done = info.append(batch, Option.empty());
            manager.update(info);
            if (done.isDefined())
                manager.completeTxn(done.get());
        }
        manager.updateMapEndOffset(end);
        return end;
    }

    private static String answer(ProducerStateManager manager, MutableRecordBatch batch) throws ReflectiveOperationException {
        Option<ProducerStateEntry> entry = manager.lastEntry(batch.producerId());
        Option<BatchMetadata> duplicate = entry.isDefined() ? entry.get().findDuplicateBatch(batch) : Option.empty();
        if (duplicate.isDefined())
            return "duplicate " + duplicate.get().firstOffset();
        try {
            manager.prepareUpdate(batch.producerId(), origin("Client")).append(batch, Option.empty());
            return "accepted";
        } catch (ApiException error) {
            return error.getClass().getSimpleName();
        }
    }

    /** A case object of Scala. */
    private static AppendOrigin origin(String name) throws ReflectiveOperationException {
        return (AppendOrigin) Class.forName("kafka.log.AppendOrigin$" + name + "$").getField("MODULE$").get(null);
    }

    private static Iterable<MutableRecordBatch> batches(String hex) {
        return MemoryRecords.readableRecords(ByteBuffer.wrap(HexFormat.of().parseHex(hex))).batches();
    }
}
