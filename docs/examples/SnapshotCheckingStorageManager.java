import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.TimeUnit;

/**
 * Lets no segment go to remote storage with a wrong producer snapshot: asks a program for the right one, and hands that to the real plugin.
 *
 * <p>It mends what a broker wrote without a look at its log, mostly an empty file. It cannot help where there is NO file: then the broker throws
 * before it calls a plugin, and only a rebuild before its start helps (docs/guides/uploader.md).
 *
 * <p>Settings, behind the {@code rsm.config.} of the broker: {@code checked.class.name}, the real plugin, which gets all settings;
 * {@code checked.command}, the program and its arguments (docs/examples/right-snapshot), to which directory, offset and seconds are added;
 * {@code checked.timeout.seconds}, 60 by default. Of what the program says in vain the upload fails, and the broker tries again.
 */
public final class SnapshotCheckingStorageManager implements RemoteStorageManager {
    private static final Logger LOG = LoggerFactory.getLogger(SnapshotCheckingStorageManager.class);
    private static final long KILL_SECONDS = 5;

    private RemoteStorageManager plugin;
    private List<String> command;
    private long timeoutSeconds;

    @Override
    public void configure(Map<String, ?> configs) {
        command = List.of(required(configs, "checked.command").trim().split("\\s+"));
        Object seconds = configs.get("checked.timeout.seconds");
        timeoutSeconds = seconds == null ? 60 : Long.parseLong(seconds.toString());
        String name = required(configs, "checked.class.name");
        try {
            plugin = (RemoteStorageManager) Class.forName(name).getDeclaredConstructor().newInstance();
        } catch (ReflectiveOperationException error) {
            throw new IllegalArgumentException("checked.class.name: " + name, error);
        }
        plugin.configure(configs);
    }

    private static String required(Map<String, ?> configs, String key) {
        Object value = configs.get(key);
        if (value == null || value.toString().isBlank())
            throw new IllegalArgumentException(key + " is not set");
        return value.toString();
    }

    @Override
    public Optional<CustomMetadata> copyLogSegmentData(RemoteLogSegmentMetadata metadata, LogSegmentData data)
            throws RemoteStorageException {
        Path replacement = null;
        try {
            byte[] right = rightSnapshot(data.logSegment().getParent(), metadata.endOffset() + 1);
            if (Arrays.equals(right, Files.readAllBytes(data.producerSnapshotIndex())))
                return plugin.copyLogSegmentData(metadata, data);
            replacement = Files.createTempFile("snapshot-", ".checked");
            Files.write(replacement, right);
            LOG.warn("{} is not what the log says: another is uploaded in its place", data.producerSnapshotIndex());
            return plugin.copyLogSegmentData(metadata, new LogSegmentData(data.logSegment(), data.offsetIndex(), data.timeIndex(),
                data.transactionIndex(), replacement, data.leaderEpochIndex()));
        } catch (IOException error) {
            throw new RemoteStorageException("the snapshot of " + data.logSegment() + " cannot be checked", error);
        } finally {
            if (replacement != null)
                deleteQuietly(replacement);
        }
    }

    /** Asks the program, which answers with the file on stdout and 0, or with a reason on stderr. */
    private byte[] rightSnapshot(Path directory, long offset) throws IOException, RemoteStorageException {
        List<String> words = new ArrayList<>(command);
        words.addAll(List.of(directory.toString(), Long.toString(offset), Long.toString(timeoutSeconds)));
        Path answer = Files.createTempFile("snapshot-", ".answer");
        Path reason = Files.createTempFile("snapshot-", ".reason");
        Process process = new ProcessBuilder(words).redirectOutput(answer.toFile()).redirectError(reason.toFile()).start();
        try {
            process.getOutputStream().close();
            if (!process.waitFor(timeoutSeconds + KILL_SECONDS, TimeUnit.SECONDS))
                throw new RemoteStorageException("no answer about the snapshot at " + offset + " within " + timeoutSeconds + " s");
            if (process.exitValue() != 0)
                throw new RemoteStorageException("no snapshot at " + offset + " can be proven: " + Files.readString(reason).strip());
            return Files.readAllBytes(answer);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
            throw new RemoteStorageException("interrupted while the snapshot at " + offset + " was checked", error);
        } finally {
            process.destroyForcibly();
            deleteQuietly(answer);
            deleteQuietly(reason);
        }
    }

    private static void deleteQuietly(Path file) {
        try {
            Files.deleteIfExists(file);
        } catch (IOException error) {
            LOG.warn("{} is left behind", file, error);
        }
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata metadata, int start) throws RemoteStorageException {
        return plugin.fetchLogSegment(metadata, start);
    }

    @Override
    public InputStream fetchLogSegment(RemoteLogSegmentMetadata metadata, int start, int end) throws RemoteStorageException {
        return plugin.fetchLogSegment(metadata, start, end);
    }

    @Override
    public InputStream fetchIndex(RemoteLogSegmentMetadata metadata, IndexType type) throws RemoteStorageException {
        return plugin.fetchIndex(metadata, type);
    }

    @Override
    public void deleteLogSegmentData(RemoteLogSegmentMetadata metadata) throws RemoteStorageException {
        plugin.deleteLogSegmentData(metadata);
    }

    @Override
    public void close() throws IOException {
        if (plugin != null)
            plugin.close();
    }
}
