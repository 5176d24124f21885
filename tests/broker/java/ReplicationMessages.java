import com.fasterxml.jackson.databind.JsonNode;

import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.Readable;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.util.HexFormat;

/** Reads bodies of messages with Kafka's own classes; prints what is in each, and the bytes that Kafka writes for it. */
public final class ReplicationMessages {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        StringBuilder output = new StringBuilder();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ", -1);
            short version = Short.parseShort(words[1]);
            ByteBuffer bytes = ByteBuffer.wrap(HexFormat.of().parseHex(words[2]));
            Class<?> type = Class.forName("org.apache.kafka.common.message." + words[0] + "Data");
            ApiMessage message = (ApiMessage) type.getConstructor(Readable.class, short.class)
                .newInstance(new ByteBufferAccessor(bytes), version);
            if (bytes.hasRemaining())
                throw new IllegalStateException(words[0] + ": " + bytes.remaining() + " bytes are left");
            output.append(written(message, version)).append(' ').append(json(type, message, version)).append('\n');
        }
        System.out.print(output);
    }

    private static String written(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        return HexFormat.of().formatHex(buffer.array());
    }

    private static JsonNode json(Class<?> type, ApiMessage message, short version) throws Exception {
        Method write = Class.forName(type.getName() + "JsonConverter").getMethod("write", type, short.class, boolean.class);
        return (JsonNode) write.invoke(null, message, version, false);
    }
}
