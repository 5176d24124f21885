import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * What the release of Kafka on the class path knows, one fact on a line, with tabs between its words:
 * <ul>
 * <li>{@code setting}, type of resource, name, type, "required" or "default", the default;
 * <li>{@code feature}, name, "stable" or "unstable", lowest and highest level that a controller registers;
 * <li>{@code level}, feature, number, Kafka's name of that level;
 * <li>{@code file}, kind of file, version that is written.
 * </ul>
 * A null is written as {@code \0}; backslash, tab and line feed are escaped. Classes and members moved over the releases: each is looked up by
 * all of its names, so that this program is compiled without Kafka. A fact that no name leads to is left out.
 */
public final class KafkaCatalogue {
    private static final String STORAGE = "org.apache.kafka.storage.internals.";

    /** Type of resource, class, and the end of the name of a field or the name of a method. */
    private static final String[][] SETTINGS = {
        {"topic", "kafka.log.LogConfig$", "configDef"},
        {"topic", STORAGE + "log.LogConfig", "configDefCopy"},
        {"broker", "kafka.server.KafkaConfig$", "configDef"},
        {"broker", "org.apache.kafka.server.config.AbstractKafkaConfig", "CONFIG_DEF"},
        {"broker", "kafka.server.DynamicConfig$Broker$", "brokerConfigDef"},
        {"broker", "kafka.server.DynamicConfig$Broker$", "brokerConfigs"},
        {"broker", "org.apache.kafka.server.config.DynamicConfig$Broker", "BROKER_CONFIGS"},
        {"client-metrics", "kafka.metrics.ClientMetricsConfig$ClientMetrics$", "configDef"},
        {"client-metrics", "org.apache.kafka.server.metrics.ClientMetricsConfigs", "configDef"},
        {"group", "org.apache.kafka.coordinator.group.GroupConfig", "CONFIG_DEF"},
        {"group", "org.apache.kafka.coordinator.group.GroupConfig", "configDef"},
    };

    /** Kind of file, class, and the end of the name of the field with its version. Since 4.4 some are generated from schemas. */
    private static final String[][] FILES = {
        {"record-batch", "org.apache.kafka.common.record.RecordBatch", "CURRENT_MAGIC_VALUE"},
        {"record-batch", "org.apache.kafka.common.record.internal.RecordBatch", "CURRENT_MAGIC_VALUE"},
        {"transaction-marker", "org.apache.kafka.common.record.EndTransactionMarker", "CURRENT_END_TXN_MARKER_VERSION"},
        {"transaction-marker", "org.apache.kafka.common.record.internal.EndTransactionMarker", "CURRENT_END_TXN_MARKER_VERSION"},
        {"transaction-marker", "org.apache.kafka.common.message.EndTxnMarker", "HIGHEST_SUPPORTED_VERSION"},
        {"producer-snapshot", "kafka.log.ProducerStateManager$", "ProducerSnapshotVersion"},
        {"producer-snapshot", STORAGE + "log.ProducerStateManager", "PRODUCER_SNAPSHOT_VERSION"},
        {"producer-snapshot", "org.apache.kafka.server.log.remote.metadata.storage.generated.ProducerSnapshot", "HIGHEST_SUPPORTED_VERSION"},
        {"transaction-index", "kafka.log.AbortedTxn$", "CurrentVersion"},
        {"transaction-index", STORAGE + "log.AbortedTxn", "CURRENT_VERSION"},
        {"transaction-index", "org.apache.kafka.common.message.AbortedTxn", "HIGHEST_SUPPORTED_VERSION"},
        {"leader-epoch-checkpoint", "kafka.server.checkpoints.LeaderEpochCheckpointFile$", "CurrentVersion"},
        {"leader-epoch-checkpoint", STORAGE + "checkpoint.LeaderEpochCheckpointFile", "CURRENT_VERSION"},
        {"offset-checkpoint", "kafka.server.checkpoints.OffsetCheckpointFile$", "CurrentVersion"},
        {"offset-checkpoint", STORAGE + "checkpoint.OffsetCheckpointFile", "CURRENT_VERSION"},
        {"partition.metadata", "kafka.server.PartitionMetadataFile$", "CurrentVersion"},
        {"partition.metadata", STORAGE + "checkpoint.PartitionMetadataFile", "CURRENT_VERSION"},
        {"clean-shutdown", STORAGE + "checkpoint.CleanShutdownFileHandler", "CURRENT_VERSION"},
        {"remote-log-metadata-offsets", "org.apache.kafka.server.log.remote.metadata.storage.CommittedOffsetsFile", "CURRENT_VERSION"},
    };

    private static final String[] FEATURE_ENUMS = {"org.apache.kafka.server.common.Features", "org.apache.kafka.server.common.Feature"};
    private static final String[] FEATURE_MAPS = {"defaultFeatureMap", "defaultSupportedFeatureMap"};

    private KafkaCatalogue() { }

    private static Class<?> classOf(String name) {
        try {
            return Class.forName(name);
        } catch (ClassNotFoundException absent) {
            return null;
        }
    }

    /** The value of a member of a class, or of the object of that name in Scala; null if there is none. */
    private static Object member(String className, String name) throws ReflectiveOperationException {
        Class<?> type = classOf(className);
        if (type == null)
            return null;
        Object owner = className.endsWith("$") ? type.getField("MODULE$").get(null) : null;
        for (Field field : type.getDeclaredFields()) {
            boolean isNamed = field.getName().equals(name) || field.getName().endsWith("$$" + name);
            if (isNamed) {
                field.setAccessible(true);
                return field.get(owner);
            }
        }
        for (Method method : type.getDeclaredMethods()) {
            boolean isNamed = method.getName().equals(name) || method.getName().endsWith("$$" + name);
            if (isNamed && method.getParameterCount() == 0) {
                method.setAccessible(true);
                return method.invoke(owner);
            }
        }
        return null;
    }

    private static Object call(Object owner, String method) throws ReflectiveOperationException {
        Method found = owner.getClass().getMethod(method);
        found.setAccessible(true);
        return found.invoke(owner);
    }

    private static String escaped(Object value) {
        if (value == null)
            return "\\0";
        return value.toString().replace("\\", "\\\\").replace("\t", "\\t").replace("\n", "\\n");
    }

    private static void print(Object... words) {
        List<String> line = new ArrayList<>();
        for (Object word : words)
            line.add(escaped(word));
        System.out.println(String.join("\t", line));
    }

    private static void printSettings() throws ReflectiveOperationException {
        Class<?> definition = Class.forName("org.apache.kafka.common.config.ConfigDef");
        Object noDefault = definition.getField("NO_DEFAULT_VALUE").get(null);
        Method toText = definition.getMethod("convertToString", Object.class, Class.forName("org.apache.kafka.common.config.ConfigDef$Type"));
        Map<String, Object[]> lines = new TreeMap<>();
        for (String[] place : SETTINGS) {
            Object settings = member(place[1], place[2]);
            if (settings == null)
                continue;
            Map<?, ?> keys = (Map<?, ?>) definition.getMethod("configKeys").invoke(settings);
            for (Map.Entry<?, ?> each : keys.entrySet()) {
                Object key = each.getValue();
                Object type = key.getClass().getField("type").get(key);
                Object value = key.getClass().getField("defaultValue").get(key);
                boolean isRequired = value == noDefault;
                Object text = isRequired ? null : toText.invoke(null, value, type);
                Object[] line = {"setting", place[0], each.getKey(), type, isRequired ? "required" : "default", text};
                lines.putIfAbsent(place[0] + " " + each.getKey(), line);
            }
        }
        for (Object[] line : lines.values())
            print(line);
    }

    /** As a controller registers them: with stable levels only, and with those that are under development. */
    private static void printFeatures() throws ReflectiveOperationException {
        Class<?> features = classOf("org.apache.kafka.controller.QuorumFeatures");
        if (features == null)
            return;
        for (boolean unstable : new boolean[] {false, true})
            for (String name : FEATURE_MAPS)
                for (Method method : features.getDeclaredMethods())
                    if (method.getName().equals(name)) {
                        Object[] arguments = method.getParameterCount() == 0 ? new Object[0] : new Object[] {unstable};
                        Map<?, ?> ranges = new TreeMap<>((Map<?, ?>) method.invoke(null, arguments));
                        for (Map.Entry<?, ?> each : ranges.entrySet()) {
                            Object range = each.getValue();
                            print("feature", each.getKey(), unstable ? "unstable" : "stable", call(range, "min"), call(range, "max"));
                        }
                    }
    }

    private static void printLevels() throws ReflectiveOperationException {
        Class<?> versions = classOf("org.apache.kafka.server.common.MetadataVersion");
        if (versions == null)
            return;
        for (Object version : versions.getEnumConstants())
            print("level", "metadata.version", call(version, "featureLevel"), version);
        for (String name : FEATURE_ENUMS) {
            Object all = member(name, "PRODUCTION_FEATURES");
            if (all == null)
                continue;
            for (Object feature : (List<?>) all)
                for (Object version : (Object[]) call(feature, "featureVersions"))
                    print("level", call(feature, "featureName"), call(version, "featureLevel"), version);
        }
    }

    private static void printFiles() throws ReflectiveOperationException {
        for (String[] place : FILES) {
            Object version = member(place[1], place[2]);
            if (version != null)
                print("file", place[0], version);
        }
        Class<?> versions = classOf("org.apache.kafka.metadata.properties.MetaPropertiesVersion");
        if (versions == null)
            return;
        Object[] all = versions.getEnumConstants();
        print("file", "meta.properties", call(all[all.length - 1], "number"));
    }

    public static void main(String[] arguments) throws ReflectiveOperationException {
        printSettings();
        printFeatures();
        printLevels();
        printFiles();
    }
}
