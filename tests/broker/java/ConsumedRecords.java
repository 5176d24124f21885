import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

import java.io.BufferedOutputStream;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.time.Duration;
import java.util.Base64;
import java.util.List;
import java.util.Map;

/**
 * Reads whole partitions by Kafka's own consumer: the address of a broker is the argument. A line on stdin is a topic, an isolation level and
 * a time or -1. The answer is a line for each record of partition 0 from its beginning, or from that time on, up to where the consumer ends:
 * offset, timestamp, type of the timestamp, key, value, and key and value of each header. An empty line follows the last one.
 */
public final class ConsumedRecords {
    private static final Duration WAIT = Duration.ofMillis(500);

    private ConsumedRecords() { }

    public static void main(String[] args) throws Exception {
        // System.out alone writes each line at once.
        PrintStream answers = new PrintStream(new BufferedOutputStream(System.out, 1 << 16));
        System.setOut(answers);
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            String[] words = line.split(" ");
            Map<String, Object> settings = Map.of(
                "bootstrap.servers", args[0], "isolation.level", words[1], "enable.auto.commit", "false", "auto.offset.reset", "none");
            ByteArrayDeserializer bytes = new ByteArrayDeserializer();
            try (KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(settings, bytes, bytes)) {
                read(consumer, new TopicPartition(words[0], 0), Long.parseLong(words[2]));
            }
            System.out.println();
        }
        answers.flush();
    }

    private static void read(KafkaConsumer<byte[], byte[]> consumer, TopicPartition partition, long time) {
        consumer.assign(List.of(partition));
        long end = consumer.endOffsets(List.of(partition)).get(partition);
        if (time < 0)
            consumer.seekToBeginning(List.of(partition));
        else
            consumer.seek(partition, consumer.offsetsForTimes(Map.of(partition, time)).get(partition).offset());
        while (consumer.position(partition) < end)
            for (ConsumerRecord<byte[], byte[]> each : consumer.poll(WAIT))
                print(each);
    }

    private static void print(ConsumerRecord<byte[], byte[]> each) {
        StringBuilder line = new StringBuilder();
        line.append(each.offset()).append(' ').append(each.timestamp()).append(' ').append(each.timestampType().id);
        line.append(' ').append(text(each.key())).append(' ').append(text(each.value()));
        for (Header header : each.headers())
            line.append(' ').append(text(header.key().getBytes(java.nio.charset.StandardCharsets.UTF_8))).append(' ').append(text(header.value()));
        System.out.println(line);
    }

    private static String text(byte[] bytes) {
        return bytes == null ? "null" : "=" + Base64.getEncoder().encodeToString(bytes);
    }
}
