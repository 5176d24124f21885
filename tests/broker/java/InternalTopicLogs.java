import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.MessageUtil;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.utils.ByteUtils;

import java.io.BufferedReader;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.util.HexFormat;

/**
 * Writes segments of Kafka's own topics with its own classes. Lines on stdin, their words with tabs between them:
 * "segment FILE" begins one at offset 0; every other line is a record:
 * "raw KEY VALUE", in hexadecimal, "-" for null;
 * "pair TYPE CLASS VERSION JSON CLASS VERSION JSON", a key after its record type and a value after its version, the last three "-" for null;
 * "framed CLASS API_KEY VERSION JSON", a value alone.
 */
public final class InternalTopicLogs {
    private static final long TIMESTAMP = 1_700_000_000_000L;
    private static final ObjectMapper JSON = new ObjectMapper();

    private InternalTopicLogs() { }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        FileChannel file = null;
        long offset = 0;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t", -1);
            if (words[0].equals("segment")) {
                if (file != null)
                    file.close();
                file = new FileOutputStream(words[1]).getChannel();
                offset = 0;
                continue;
            }
            SimpleRecord record = new SimpleRecord(TIMESTAMP + offset, keyOf(words), valueOf(words));
            ByteBuffer batch = MemoryRecords.withRecords(offset++, Compression.NONE, 0, record).buffer();
            while (batch.hasRemaining())
                file.write(batch);
        }
        if (file != null)
            file.close();
    }

    private static byte[] keyOf(String[] words) throws Exception {
        return switch (words[0]) {
            case "raw" -> bytesOf(words[1]);
            case "pair" -> {
                byte[] message = written(words[2], Short.parseShort(words[3]), words[4]);
                yield ByteBuffer.allocate(2 + message.length).putShort(Short.parseShort(words[1])).put(message).array();
            }
            default -> null;
        };
    }

    private static byte[] valueOf(String[] words) throws Exception {
        switch (words[0]) {
            case "raw":
                return bytesOf(words[2]);
            case "pair":
                if (words[5].equals("-"))
                    return null;
                byte[] value = written(words[5], Short.parseShort(words[6]), words[7]);
                return ByteBuffer.allocate(2 + value.length).putShort(Short.parseShort(words[6])).put(value).array();
            default:
                byte[] message = written(words[1], Short.parseShort(words[3]), words[4]);
                ByteBuffer framed = ByteBuffer.allocate(16 + message.length);
                ByteUtils.writeUnsignedVarint(1, framed);
                ByteUtils.writeUnsignedVarint(Integer.parseInt(words[2]), framed);
                ByteUtils.writeUnsignedVarint(Integer.parseInt(words[3]), framed);
                framed.put(message).flip();
                byte[] data = new byte[framed.remaining()];
                framed.get(data);
                return data;
        }
    }

    private static byte[] bytesOf(String word) {
        return word.equals("-") ? null : HexFormat.of().parseHex(word);
    }

    /** The bytes of a message that its JSON converter has read. */
    private static byte[] written(String name, short version, String json) throws Exception {
        Message message = (Message) Class.forName(name + "JsonConverter").getMethod("read", JsonNode.class, short.class)
            .invoke(null, JSON.readTree(json), version);
        ByteBuffer buffer = MessageUtil.toByteBufferAccessor(message, version).buffer();
        byte[] data = new byte[buffer.remaining()];
        buffer.get(data);
        return data;
    }
}
