import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.locks.LockSupport;

/**
 * Produces at a fixed rate for as long as it runs, and prints how long records took. Arguments: address, topic, records a second, bytes of a
 * record. For each line of its input, which is a count of records, it waits until that many more are acknowledged, and prints the
 * microseconds of their 50th, 90th, 99th and 99.9th percentile and of the slowest one. The time of a record begins when it was due, so that
 * one that had to wait for those before it is not reported as quick.
 */
public final class ProduceLatency {
    private static long[] micros = new long[0];
    private static int kept;

    private ProduceLatency() { }

    public static void main(String[] args) throws Exception {
        Map<String, Object> settings = Map.of("bootstrap.servers", args[0], "acks", "all", "linger.ms", "0");
        long period = 1_000_000_000L / Long.parseLong(args[2]);
        byte[] value = new byte[Integer.parseInt(args[3])];
        new Random(1).nextBytes(value);
        ByteArraySerializer plain = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, plain, plain)) {
            Thread sender = new Thread(() -> send(producer, args[1], value, period));
            sender.setDaemon(true);
            sender.start();
            BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
            for (String line = input.readLine(); line != null; line = input.readLine())
                tell(Integer.parseInt(line.trim()));
        }
    }

    private static void send(KafkaProducer<byte[], byte[]> producer, String topic, byte[] value, long period) {
        long due = System.nanoTime();
        while (true) {
            due += period;
            long wait = due - System.nanoTime();
            while (wait > 0) {
                LockSupport.parkNanos(wait);
                wait = due - System.nanoTime();
            }
            long began = due;
            producer.send(new ProducerRecord<>(topic, value), (metadata, error) -> {
                if (error != null) {
                    System.err.println(error);
                    Runtime.getRuntime().halt(1);
                }
                keep((System.nanoTime() - began) / 1000);
            });
        }
    }

    private static synchronized void keep(long took) {
        if (kept == micros.length)
            return;
        micros[kept++] = took;
        if (kept == micros.length)
            ProduceLatency.class.notifyAll();
    }

    private static synchronized void tell(int count) throws InterruptedException {
        kept = 0;
        micros = new long[count];
        while (kept < count)
            ProduceLatency.class.wait();
        long[] sorted = micros.clone();
        Arrays.sort(sorted);
        System.out.printf("%d %d %d %d %d%n", at(sorted, 0.5), at(sorted, 0.9), at(sorted, 0.99), at(sorted, 0.999), sorted[count - 1]);
        System.out.flush();
    }

    private static long at(long[] sorted, double share) {
        return sorted[(int) Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
    }
}
