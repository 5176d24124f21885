import org.apache.kafka.common.Endpoint;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.image.MetadataImage;
import org.apache.kafka.image.TopicImage;
import org.apache.kafka.image.loader.MetadataBatchLoader;
import org.apache.kafka.metadata.BrokerRegistration;
import org.apache.kafka.metadata.ControllerRegistration;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.metadata.SupportedConfigChecker;
import org.apache.kafka.metadata.VersionRange;
import org.apache.kafka.raft.Batch;
import org.apache.kafka.raft.LeaderAndEpoch;
import org.apache.kafka.server.common.ApiMessageAndVersion;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;

/**
 * The images that Kafka's own loader makes of batches of the metadata log. Lines on stdin: "new" begins another log, "batch OFFSET EPOCH HEX ..."
 * hands over the values of its records, "image" asks for a line with the image, and with how many records the loader threw on.
 */
public final class MetadataImages {
    private static MetadataImage image;
    private static int faults;
    private static MetadataBatchLoader loader;

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "new" -> begin();
                case "batch" -> load(words);
                case "image" -> {
                    System.out.println(Json.of(described()));
                    System.out.flush();
                }
                default -> throw new IllegalArgumentException(line);
            }
        }
    }

    private static void begin() {
        image = MetadataImage.EMPTY;
        faults = 0;
        loader = new MetadataBatchLoader(new LogContext(), Time.SYSTEM, (message, cause) -> {
            if (message.startsWith("Error loading metadata log record"))  // a record may make the image fail, too
                faults++;
            return new RuntimeException(message, cause);
        }, (delta, made, manifest) -> image = made, SupportedConfigChecker.TRUE);
        loader.resetToImage(image);
    }

    private static void load(String[] words) {
        List<ApiMessageAndVersion> records = new ArrayList<>();
        int size = 0;
        for (String word : Arrays.asList(words).subList(3, words.length)) {
            byte[] value = HexFormat.of().parseHex(word);
            size += value.length;
            records.add(MetadataRecordSerde.INSTANCE.read(new ByteBufferAccessor(ByteBuffer.wrap(value)), value.length));
        }
        LeaderAndEpoch leader = LeaderAndEpoch.UNKNOWN;
        loader.loadBatch(Batch.data(Long.parseLong(words[1]), Integer.parseInt(words[2]), 0L, size, records), leader);
        loader.maybeFlushBatches(leader, true);
    }

    private static Map<String, Object> described() {
        Map<String, Object> all = new TreeMap<>();
        all.put("faults", faults);
        Map<String, Object> features = new TreeMap<>(image.features().finalizedVersions());
        image.features().metadataVersion().ifPresent(version -> features.put("metadata.version", version.featureLevel()));
        all.put("features", features);
        all.put("next_producer_id", image.producerIds().nextProducerId());
        all.put("brokers", byName(image.cluster().brokers(), MetadataImages::broker));
        all.put("controllers", byName(image.cluster().controllers(), MetadataImages::controller));
        Map<String, Object> topics = new TreeMap<>();
        image.topics().topicsById().forEach((id, topic) -> topics.put(id.toString(), topic(topic)));
        all.put("topics", topics);
        all.put("topic_ids", byName(image.topics().topicNameToIdView(), Uuid::toString));
        Map<String, Object> configs = new TreeMap<>();
        image.configs().resourceData().forEach((resource, of) -> configs.put(resource.type().id() + ":" + resource.name(), of.data()));
        all.put("configs", configs);
        Map<String, Object> quotas = new TreeMap<>();
        image.clientQuotas().entities().forEach((entity, of) -> quotas.put(Json.of(new TreeMap<>(entity.entries())), of.quotas()));
        all.put("client_quotas", quotas);
        all.put("acls", byName(image.acls().acls(), acl -> acl.resourceName() + " " + acl.principal() + " " + acl.host()));
        Map<String, Object> scram = new TreeMap<>();
        image.scram().mechanisms().forEach((mechanism, users) -> users.forEach(
            (user, credential) -> scram.put(mechanism.type() + ":" + user, credential.iterations())));
        all.put("scram", scram);
        all.put("tokens", byName(image.delegationTokens().tokens(), token -> token.tokenInformation().expiryTimestamp()));
        return all;
    }

    private interface Description<T> {
        Object of(T value);
    }

    private static <K, V> Map<String, Object> byName(Map<K, V> map, Description<V> description) {
        Map<String, Object> named = new TreeMap<>();
        map.forEach((key, value) -> named.put(key.toString(), description.of(value)));
        return named;
    }

    private static Object broker(BrokerRegistration broker) {
        Map<String, Object> fields = new TreeMap<>();
        fields.put("epoch", broker.epoch());
        fields.put("incarnation_id", broker.incarnationId().toString());
        fields.put("fenced", broker.fenced());
        fields.put("in_controlled_shutdown", broker.inControlledShutdown());
        fields.put("directories", texts(broker.directories()));
        fields.put("cordoned_directories", broker.cordonedDirectories() == null ? null : texts(broker.cordonedDirectories()));
        fields.put("rack", broker.rack().orElse(null));
        fields.put("listeners", listeners(broker.listeners()));
        fields.put("features", features(broker.supportedFeatures()));
        return fields;
    }

    private static Object controller(ControllerRegistration controller) {
        Map<String, Object> fields = new TreeMap<>();
        fields.put("incarnation_id", controller.incarnationId().toString());
        fields.put("listeners", listeners(controller.listeners()));
        fields.put("features", features(controller.supportedFeatures()));
        return fields;
    }

    private static Object listeners(Map<String, Endpoint> listeners) {
        return byName(listeners, each -> List.of(each.host(), each.port(), (int) each.securityProtocol().id));
    }

    private static Object features(Map<String, VersionRange> features) {
        return byName(features, each -> List.of((int) each.min(), (int) each.max()));
    }

    private static Object topic(TopicImage topic) {
        Map<String, Object> fields = new TreeMap<>();
        fields.put("name", topic.name());
        fields.put("partitions", byName(topic.partitions(), MetadataImages::partition));
        return fields;
    }

    private static Object partition(PartitionRegistration partition) {
        Map<String, Object> fields = new TreeMap<>();
        fields.put("replicas", numbers(partition.replicas));
        fields.put("directories", texts(Arrays.asList(partition.directories)));
        fields.put("isr", numbers(partition.isr));
        fields.put("removing", numbers(partition.removingReplicas));
        fields.put("adding", numbers(partition.addingReplicas));
        fields.put("elr", numbers(partition.elr));
        fields.put("last_known_elr", numbers(partition.lastKnownElr));
        fields.put("leader", partition.leader);
        fields.put("leader_recovery_state", partition.leaderRecoveryState.name());
        fields.put("leader_epoch", partition.leaderEpoch);
        fields.put("partition_epoch", partition.partitionEpoch);
        return fields;
    }

    private static List<Object> numbers(int[] values) {
        return Arrays.stream(values).boxed().collect(Collectors.toList());
    }

    private static List<Object> texts(List<Uuid> ids) {
        return ids.stream().map(Uuid::toString).collect(Collectors.toList());
    }
}
