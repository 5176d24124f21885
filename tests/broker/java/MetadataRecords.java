import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.metadata.MetadataJsonConverters;
import org.apache.kafka.common.metadata.MetadataRecordType;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.stream.Collectors;

/**
 * Reads values of the metadata log, one in hexadecimal on each line, and prints of each the bytes that Kafka writes for it, its key and version,
 * and what is in it. First a line with each key and its highest version.
 */
public final class MetadataRecords {
    private MetadataRecords() { }

    public static void main(String[] arguments) throws Exception {
        System.out.println(Arrays.stream(MetadataRecordType.values())
            .map(type -> type.id() + ":" + type.lowestSupportedVersion() + "-" + type.highestSupportedVersion())
            .collect(Collectors.joining(" ")));
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            byte[] value = HexFormat.of().parseHex(line);
            ApiMessageAndVersion record = MetadataRecordSerde.INSTANCE.read(new ByteBufferAccessor(ByteBuffer.wrap(value)), value.length);
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer written = ByteBuffer.allocate(MetadataRecordSerde.INSTANCE.recordSize(record, cache));
            MetadataRecordSerde.INSTANCE.write(record, cache, new ByteBufferAccessor(written));
            JsonNode json = MetadataJsonConverters.writeJson(record.message(), record.version());
            System.out.println(HexFormat.of().formatHex(written.array()) + " " + record.message().apiKey() + " " + record.version() + " " + json);
        }
    }
}
