import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ListOffsetsOptions;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.common.IsolationLevel;
import org.apache.kafka.common.TopicPartition;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;

/**
 * Asks a live broker by Kafka's own admin client: its address is the argument. A line on stdin is a topic, an isolation level and a
 * timestamp, or -1 to -6; a line on stdout is the answer for partition 0: offset, timestamp of the record and leader epoch, -1 for none.
 */
public final class LiveOffsets {
    private LiveOffsets() { }

    public static void main(String[] args) throws Exception {
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", args[0]))) {
            BufferedReader questions = new BufferedReader(new InputStreamReader(System.in));
            for (String line = questions.readLine(); line != null; line = questions.readLine()) {
                String[] words = line.split(" ");
                TopicPartition partition = new TopicPartition(words[0], 0);
                ListOffsetsOptions options = new ListOffsetsOptions(IsolationLevel.valueOf(words[1].toUpperCase(java.util.Locale.ROOT)));
                Map<TopicPartition, OffsetSpec> asked = Map.of(partition, specification(Long.parseLong(words[2])));
                ListOffsetsResultInfo found = admin.listOffsets(asked, options).partitionResult(partition).get();
                System.out.println(found.offset() + " " + found.timestamp() + " " + found.leaderEpoch().orElse(-1));
            }
        }
    }

    private static OffsetSpec specification(long timestamp) {
        if (timestamp >= 0)
            return OffsetSpec.forTimestamp(timestamp);
        return switch ((int) timestamp) {
            case -1 -> OffsetSpec.latest();
            case -2 -> OffsetSpec.earliest();
            case -3 -> OffsetSpec.maxTimestamp();
            case -4 -> OffsetSpec.earliestLocal();
            case -5 -> OffsetSpec.latestTiered();
            case -6 -> OffsetSpec.earliestPendingUpload();
            default -> throw new IllegalArgumentException("timestamp " + timestamp);
        };
    }
}
