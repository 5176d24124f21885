package org.apache.kafka.server.log.remote.metadata.storage;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadataManager;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageException;

import java.util.Iterator;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;

/** Kafka's own cache of one partition's remote log metadata, filled with the values of records. */
public final class FoldedMetadata implements RemoteLogMetadataManager {
    private final RemoteLogMetadataCache cache = new RemoteLogMetadataCache();

    /** Ids of the copies whose state was changed by a task. */
    public final Set<String> updated = new TreeSet<>();

    /** Takes the value of the next record. */
    public void take(byte[] value) throws RemoteStorageException {
        Object record = new RemoteLogMetadataSerde().deserialize(value);
        if (record instanceof RemoteLogSegmentMetadata segment)
            cache.addCopyInProgressSegment(segment);
        else
            cache.updateRemoteLogSegmentMetadata((RemoteLogSegmentMetadataUpdate) record);
    }

    @Override public Optional<RemoteLogSegmentMetadata> remoteLogSegmentMetadata(TopicIdPartition id, int epoch, long offset) {
        return cache.remoteLogSegmentMetadata(epoch, offset);
    }

    @Override public Optional<Long> highestOffsetForEpoch(TopicIdPartition id, int epoch) {
        return cache.highestOffsetForEpoch(epoch);
    }

    @Override public Iterator<RemoteLogSegmentMetadata> listRemoteLogSegments(TopicIdPartition id) {
        return cache.listAllRemoteLogSegments();
    }

    @Override public Iterator<RemoteLogSegmentMetadata> listRemoteLogSegments(TopicIdPartition id, int epoch) throws RemoteStorageException {
        return cache.listRemoteLogSegments(epoch);
    }

    @Override public CompletableFuture<Void> addRemoteLogSegmentMetadata(RemoteLogSegmentMetadata metadata) {
        throw new UnsupportedOperationException();
    }

    @Override public CompletableFuture<Void> updateRemoteLogSegmentMetadata(RemoteLogSegmentMetadataUpdate update)
            throws RemoteStorageException {
        cache.updateRemoteLogSegmentMetadata(update);
        updated.add(update.remoteLogSegmentId().id().toString());
        return CompletableFuture.completedFuture(null);
    }

    @Override public CompletableFuture<Void> putRemotePartitionDeleteMetadata(RemotePartitionDeleteMetadata metadata) {
        throw new UnsupportedOperationException();
    }

    @Override public void onPartitionLeadershipChanges(Set<TopicIdPartition> leaders, Set<TopicIdPartition> followers) { }

    @Override public void onStopPartitions(Set<TopicIdPartition> partitions) { }

    @Override public long remoteLogSize(TopicIdPartition id, int epoch) {
        throw new UnsupportedOperationException();
    }

    @Override public void configure(Map<String, ?> configs) { }

    @Override public void close() { }
}
