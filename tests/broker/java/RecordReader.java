import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.util.HexFormat;
import java.util.Random;

/**
 * Records as Kafka's MemoryRecords writes and reads them. Arguments: a directory, and how many segments to write there. Then each line of
 * standard input is the path of a segment to read: a line for each record of the batches whose checksum is right, up to an error.
 */
public final class RecordReader {
    private static final int[] SIZES = {0, 1, 5, 40, 63, 64, 127, 128, 150, 8191, 8192, 70_000};

    private RecordReader() { }

    public static void main(String[] args) throws Exception {
        for (int number = 0; number < Integer.parseInt(args[1]); number++) {
            Files.write(Path.of(args[0], String.format("written-%d.log", number)), segment(new Random(number)));
        }
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String path = in.readLine(); path != null; path = in.readLine()) {
            out.println("file " + path);
            try {
                read(Files.readAllBytes(Path.of(path)), out);
            } catch (RuntimeException | Error error) { // that of snappy-java is an Error
                out.println("error");
            }
        }
        out.flush();
    }

    private static void read(byte[] data, PrintStream out) throws Exception {
        for (MutableRecordBatch batch : MemoryRecords.readableRecords(ByteBuffer.wrap(data)).batches()) {
            if (!batch.isValid()) {
                out.println("bad checksum");
                continue;
            }
            for (Record record : batch) {
                record.ensureValid();
                int type = batch.timestampType().id;
                out.println(record.offset() + " " + record.timestamp() + " " + type + " " + record.sequence() + " "
                    + text(record.key()) + " " + text(record.value()) + headers(record.headers()));
            }
        }
    }

    private static String headers(Header[] headers) throws Exception {
        StringBuilder text = new StringBuilder();
        for (Header each : headers) {
            ByteBuffer value = each.value() == null ? null : ByteBuffer.wrap(each.value());
            text.append(' ').append(text(ByteBuffer.wrap(each.key().getBytes(StandardCharsets.UTF_8)))).append('=').append(text(value));
        }
        return text.toString();
    }

    private static String text(ByteBuffer buffer) throws Exception {
        if (buffer == null) {
            return "null";
        }
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        if (bytes.length <= 48) {
            return "x" + HexFormat.of().formatHex(bytes);
        }
        return bytes.length + ":" + HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(bytes));
    }

    private static byte[] segment(Random random) throws Exception {
        ByteArrayOutputStream written = new ByteArrayOutputStream();
        long offset = random.nextInt(4) == 0 ? Long.MAX_VALUE / 2 : random.nextInt(1000);
        byte least = (byte) random.nextInt(3);
        for (int number = 1 + random.nextInt(40); number > 0; number--) {
            byte magic = (byte) (least + random.nextInt(3 - least));
            MemoryRecords records = magic == 2 && random.nextInt(6) == 0 ? marker(random, offset) : batch(random, magic, offset);
            ByteBuffer buffer = records.buffer();
            byte[] bytes = new byte[buffer.remaining()];
            buffer.get(bytes);
            written.write(bytes);
            for (MutableRecordBatch each : MemoryRecords.readableRecords(ByteBuffer.wrap(bytes)).batches()) {
                offset = each.lastOffset() + 1;
            }
            offset += random.nextInt(3);
        }
        return written.toByteArray();
    }

    private static MemoryRecords marker(Random random, long offset) {
        ControlRecordType type = random.nextBoolean() ? ControlRecordType.COMMIT : ControlRecordType.ABORT;
        return MemoryRecords.withEndTransactionMarker(offset, random.nextInt(Integer.MAX_VALUE), random.nextInt(9), 7, (short) 3,
            new EndTransactionMarker(type, random.nextInt(100)));
    }

    private static MemoryRecords batch(Random random, byte magic, long offset) {
        CompressionType[] types = CompressionType.values();
        CompressionType type = random.nextBoolean() ? CompressionType.NONE : types[random.nextInt(magic == 2 ? types.length : 4)];
        boolean isAppendTime = magic > 0 && random.nextInt(3) == 0;
        TimestampType timestamps = magic == 0 ? TimestampType.NO_TIMESTAMP_TYPE : isAppendTime ? TimestampType.LOG_APPEND_TIME
            : TimestampType.CREATE_TIME;
        boolean hasProducer = magic == 2 && random.nextInt(3) == 0;
        int baseSequence = hasProducer ? (random.nextBoolean() ? Integer.MAX_VALUE - 2 : 5) : -1;
        MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1024), magic, Compression.of(type).build(), timestamps,
            offset, isAppendTime ? 1_700_000_000_000L + random.nextInt() : -1, hasProducer ? 12 : -1, (short) (hasProducer ? 4 : -1),
            baseSequence, hasProducer && random.nextBoolean(), 6);
        int count = random.nextInt(8) == 0 ? 300 : 1 + random.nextInt(12);
        long base = offset;
        for (int number = 0; number < count; number++) {
            long timestamp = magic == 0 || random.nextInt(20) == 0 ? -1 : timestamp(random);
            if (magic == 2) {
                builder.appendWithOffset(offset, timestamp, bytes(random), bytes(random), headers(random));
            } else {
                builder.appendWithOffset(offset, timestamp, bytes(random), bytes(random));
            }
            boolean isFar = magic == 2 && number == count - 2 && random.nextInt(10) == 0;
            offset = isFar ? base + Integer.MAX_VALUE : offset + 1 + (random.nextInt(4) == 0 ? random.nextInt(300) : 0);
        }
        return builder.build();
    }

    private static long timestamp(Random random) {
        return random.nextInt(10) == 0 ? random.nextLong() >>> 1 : 1_700_000_000_000L + random.nextInt(100_000);
    }

    private static byte[] bytes(Random random) {
        if (random.nextInt(8) == 0) {
            return null;
        }
        byte[] bytes = new byte[SIZES[random.nextInt(random.nextInt(30) == 0 ? SIZES.length : SIZES.length - 3)]];
        random.nextBytes(bytes);
        return bytes;
    }

    private static Header[] headers(Random random) {
        Header[] headers = new Header[random.nextInt(3) > 0 ? 0 : random.nextInt(40) == 0 ? 70 : random.nextInt(4)];
        for (int at = 0; at < headers.length; at++) {
            headers[at] = new RecordHeader(random.nextBoolean() ? "trace" : "schlüssel-" + at, bytes(random));
        }
        return headers;
    }
}
