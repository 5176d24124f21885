package io.aiven.kafka.tieredstorage.iceberg;

import org.apache.kafka.common.Configurable;

/** Stands in for the plugin's interface, which needs Avro. */
public interface StructureProvider extends Configurable {
}
