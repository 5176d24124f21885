import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;

import java.io.File;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;

/**
 * Does with one segment what RemoteLogManager does with it: hands it to a plugin, and then asks that for the producer snapshot, as a follower
 * does. Arguments: class of the plugin, partition directory, base offset, next base offset, leader epoch, then settings as key=value. Prints
 * the snapshot in hex, or "refused: " with the messages of the exception.
 */
public final class CopySegment {
    private CopySegment() { }

    public static void main(String[] args) throws Exception {
        File directory = new File(args[1]);
        long base = Long.parseLong(args[2]);
        long next = Long.parseLong(args[3]);
        Map<String, Object> settings = new HashMap<>(Map.of("broker.id", 1)); // which a broker adds, as a number
        for (int at = 5; at < args.length; at++)
            settings.put(args[at].substring(0, args[at].indexOf('=')), args[at].substring(args[at].indexOf('=') + 1));
        Map<Integer, Long> epochs = args[4].isEmpty() ? Map.of() : Map.of(Integer.parseInt(args[4]), base);
        TopicIdPartition partition = new TopicIdPartition(Uuid.randomUuid(), new TopicPartition("mixed", 0));
        File log = file(directory, base, ".log");
        RemoteLogSegmentMetadata metadata;
        try {
            metadata = new RemoteLogSegmentMetadata(RemoteLogSegmentId.generateNew(partition), base, next - 1, 0L, 1, 0L, (int) log.length(), epochs);
        } catch (IllegalArgumentException error) {
            System.out.println(error.getClass().getName() + ": " + error.getMessage());
            return;
        }
        LogSegmentData data = new LogSegmentData(log.toPath(), file(directory, base, ".index").toPath(), file(directory, base, ".timeindex").toPath(),
            Optional.empty(), file(directory, next, ".snapshot").toPath(), ByteBuffer.wrap("0\n0\n".getBytes(StandardCharsets.UTF_8)));
        try (RemoteStorageManager plugin = (RemoteStorageManager) Class.forName(args[0]).getDeclaredConstructor().newInstance()) {
            plugin.configure(settings);
            plugin.copyLogSegmentData(metadata, data);
            try (InputStream snapshot = plugin.fetchIndex(metadata, RemoteStorageManager.IndexType.PRODUCER_SNAPSHOT)) {
                System.out.println(HexFormat.of().formatHex(snapshot.readAllBytes()));
            }
        } catch (RemoteStorageException error) {
            System.out.println("refused: " + error.getMessage());
        }
    }

    private static File file(File directory, long offset, String suffix) {
        return new File(directory, String.format("%020d", offset) + suffix);
    }
}
