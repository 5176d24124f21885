import kafka.server.KafkaConfig;

import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.config.AbstractConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.metadata.KafkaConfigSchema;
import org.apache.kafka.raft.MetadataLogConfig;
import org.apache.kafka.storage.internals.log.LogConfig;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.TreeMap;

/**
 * The names of configurations that Kafka knows, and which of their values it never shows: each on a line with the number of its type of
 * resource, and "secret" or "plain". Then, for each line of input, a type and a name: whether the Admin API of a broker masks the value; or a
 * setting of a metadata log and its value: what Kafka makes of it. With an argument also the names of the numbers in ACLs and credentials.
 */
public final class KnownConfigs {
    private KnownConfigs() { }

    /** Releases differ in whether it is a field or a method. */
    private static ConfigDef of(String name) throws Exception {
        Class<?> type = Class.forName(name);
        try {
            return (ConfigDef) type.getMethod("configDef").invoke(null);
        } catch (NoSuchMethodException none) {
            return (ConfigDef) type.getField("CONFIG_DEF").get(null);
        }
    }

    private static Object setting(String[] words) {
        try {
            return new AbstractConfig(MetadataLogConfig.CONFIG_DEF, Map.of(words[0], words[1]), false).getLong(words[0]);
        } catch (ConfigException refused) {
            return "refused";
        }
    }

    public static void main(String[] args) throws Exception {
        Map<ConfigResource.Type, ConfigDef> all = new TreeMap<>(Map.of(
            ConfigResource.Type.TOPIC, LogConfig.configDefCopy(),
            ConfigResource.Type.BROKER, KafkaConfig.configDef()));
        for (ConfigResource.Type type : ConfigResource.Type.values())
            if (type.name().equals("CLIENT_METRICS"))
                all.put(type, of("org.apache.kafka.server.metrics.ClientMetricsConfigs"));
            else if (type.name().equals("GROUP"))
                all.put(type, of("org.apache.kafka.coordinator.group.GroupConfig"));
        all.forEach((type, known) -> known.configKeys().forEach((name, key) ->
            System.out.println("= " + type.id() + " " + name + " " + (key.type.isSensitive() ? "secret" : "plain"))));
        for (byte number = 0; args.length > 0 && number < 20; number++)
            System.out.println("# " + ResourceType.fromCode(number) + " " + PatternType.fromCode(number) + " " + AclOperation.fromCode(number) + " "
                + AclPermissionType.fromCode(number) + " " + ScramMechanism.fromType(number).mechanismName());
        KafkaConfigSchema schema = new KafkaConfigSchema(all, Map.of());
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            if (line.startsWith("metadata.")) {
                System.out.println("= " + setting(line.split(" ", 2)));
                continue;
            }
            String[] words = line.split(" ");
            ConfigResource.Type type = ConfigResource.Type.forId(Byte.parseByte(words[0]));
            boolean isMasked = type == ConfigResource.Type.BROKER
                ? KafkaConfig.maybeSensitive(KafkaConfig.configType(words[1]))
                : schema.isSensitive(type, words[1]);
            System.out.println("= " + (isMasked ? "masked" : "shown"));
        }
    }
}
