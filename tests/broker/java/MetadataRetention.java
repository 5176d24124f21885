import org.apache.kafka.raft.internals.KafkaRaftLog;
import org.apache.kafka.server.common.OffsetAndEpoch;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.util.Map;

/**
 * Loads metadata logs as a node does when it starts, and lets each move its start once. A line of input is a directory and either
 * "clean", retention bytes, retention ms and the time, or "before", the offset and the epoch of a checkpoint. A line of output is
 * "moved" or "stayed" with the start before and after, or "refused" where the directory cannot be loaded; what was deleted has got another name.
 */
public final class MetadataRetention {
    private MetadataRetention() { }

    private static String answer(String[] words) throws Exception {
        boolean cleans = words[1].equals("clean");
        Map<String, String> settings = cleans
            ? Map.of("metadata.max.retention.bytes", words[2], "metadata.max.retention.ms", words[3])
            : Map.of();
        KafkaRaftLog log;
        try {
            log = LoadedMetadataLog.of(new File(words[0]), settings, cleans ? Long.parseLong(words[4]) : 0);
        } catch (IllegalStateException | NumberFormatException | StringIndexOutOfBoundsException error) {
            return "refused " + error.getClass().getSimpleName();
        }
        log.updateHighWatermark(log.endOffset());
        long before = log.startOffset();
        boolean moved = cleans
            ? log.maybeClean()
            : log.deleteBeforeSnapshot(new OffsetAndEpoch(Long.parseLong(words[2]), Integer.parseInt(words[3])));
        // Not closed: the end of the process does that, and a close would ask the scheduler for what it never scheduled.
        return (moved ? "moved " : "stayed ") + before + " " + log.startOffset() + " " + log.endOffset().offset();
    }

    public static void main(String[] args) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            System.out.println(answer(line.split("\t")));
        }
    }
}
