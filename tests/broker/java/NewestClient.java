import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;

import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutionException;

/**
 * What only Kafka's own newest clients can do. The first argument is the address of a broker; each line of the input is a request:
 * <pre>
 * transactions TOPIC ID COUNT      COUNT transactions of one record each; every third one is aborted
 * share TOPIC GROUP COUNT          a share group takes and acknowledges COUNT records
 * feature NAME LEVEL               the cluster's level of a feature
 * unregister-controller ID
 * unregister-broker ID
 * </pre>
 * It prints one line for each: {@code ok}, or the class and the message of what the broker answers.
 */
public final class NewestClient {
    private NewestClient() { }

    private static String address;

    public static void main(String[] arguments) throws Exception {
        address = arguments[0];
        for (String line : new String(System.in.readAllBytes()).split("\n")) {
            String[] words = line.split(" ");
            try {
                run(words);
                System.out.println("ok");
            } catch (ExecutionException error) {
                System.out.println(error.getCause().getClass().getSimpleName() + ": " + error.getCause().getMessage().replace('\n', ' '));
            }
        }
    }

    private static void run(String[] words) throws Exception {
        switch (words[0]) {
            case "transactions" -> transactions(words[1], words[2], Integer.parseInt(words[3]));
            case "share" -> share(words[1], words[2], Integer.parseInt(words[3]));
            case "feature" -> feature(words[1], Short.parseShort(words[2]));
            case "unregister-controller" -> {
                try (Admin admin = Admin.create(Map.of("bootstrap.servers", address))) {
                    admin.unregisterController(Integer.parseInt(words[1])).all().get();
                }
            }
            case "unregister-broker" -> {
                try (Admin admin = Admin.create(Map.of("bootstrap.servers", address))) {
                    admin.unregisterBroker(Integer.parseInt(words[1])).all().get();
                }
            }
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private static void feature(String name, short level) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", address))) {
            FeatureUpdate update = new FeatureUpdate(level, FeatureUpdate.UpgradeType.UPGRADE);
            admin.updateFeatures(Map.of(name, update), new UpdateFeaturesOptions()).all().get();
        }
    }

    private static void transactions(String topic, String id, int count) {
        Map<String, Object> settings = Map.of("bootstrap.servers", address, "transactional.id", id, "linger.ms", 0);
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            for (int number = 0; number < count; number++) {
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, 0, null, new byte[100]));
                producer.flush();
                if (number % 3 == 2)
                    producer.abortTransaction();
                else
                    producer.commitTransaction();
            }
        }
    }

    private static void share(String topic, String group, int count) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        AlterConfigOp earliest = new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", address))) {
            admin.incrementalAlterConfigs(Map.of(resource, List.of(earliest))).all().get();
        }
        Map<String, Object> settings = new HashMap<>(Map.of("bootstrap.servers", address, "group.id", group));
        int left = count;
        try (KafkaShareConsumer<byte[], byte[]> consumer =
                 new KafkaShareConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(Set.of(topic));
            while (left > 0) {
                for (ConsumerRecord<byte[], byte[]> ignored : consumer.poll(Duration.ofMillis(500)))
                    left--;
                consumer.commitSync();
            }
        }
    }
}
