package io.aiven.kafka.tieredstorage;

import io.aiven.kafka.tieredstorage.config.RemoteStorageManagerConfig;
import io.aiven.kafka.tieredstorage.storage.BytesRange;
import java.io.InputStream;
import java.util.Optional;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.log.remote.storage.LogSegmentData;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteStorageManager;
import org.slf4j.Logger;

/** Stands in for the plugin's writer of Iceberg tables, whose libraries the tests do without. Never made with segment.format=kafka. */
class IcebergRemoteStorageManager extends InternalRemoteStorageManager {
    IcebergRemoteStorageManager(Logger log, Time time, RemoteStorageManagerConfig config) {
        super(log, time, config);
        throw new UnsupportedOperationException();
    }

    @Override
    Optional<RemoteLogSegmentMetadata.CustomMetadata> copyLogSegmentData(
            RemoteLogSegmentMetadata segment, LogSegmentData data, UploadMetricReporter reporter) {
        throw new UnsupportedOperationException();
    }

    @Override
    InputStream fetchLogSegment(RemoteLogSegmentMetadata segment, BytesRange range) {
        throw new UnsupportedOperationException();
    }

    @Override
    InputStream fetchIndex(RemoteLogSegmentMetadata segment, RemoteStorageManager.IndexType type) {
        throw new UnsupportedOperationException();
    }

    @Override
    void deleteLogSegmentData(RemoteLogSegmentMetadata segment) {
        throw new UnsupportedOperationException();
    }

    @Override
    public void close() {
    }
}
