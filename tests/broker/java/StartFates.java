import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.utils.Time;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

import scala.jdk.javaapi.CollectionConverters;

import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.File;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.AccessibleObject;
import java.lang.reflect.Constructor;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;

/**
 * What a broker of a release makes of its log directories when it starts: its own KafkaRaftServer reads meta.properties (in KRaft), its own
 * LogManager loads them, with what the broker's other parts do next (strays, abandoned moves, directories that have failed, high watermarks).
 *
 * Each line of stdin is a start, as JSON: "dirs" (log.dirs), "kraft", "settings" (of the broker), "topics" (of the metadata image: name,
 * id, and partitions with replicas and directories). Each line of stdout is its answer. Everything that differs by release is looked up
 * by name: the package of a class, the arguments of a method.
 */
public final class StartFates {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final int BROKER_ID = 1;
    /** Producers of the bundled logs have not expired then. */
    private static final long NOW_MS = 1_795_600_000_000L;
    private static Object scheduler;

    private StartFates() { }

    /** What Kafka calls instead of ending the process. */
    private static final class Halted extends RuntimeException {
        private Halted(Object status) {
            super("halt " + status);
        }
    }

    public static void main(String[] args) throws Exception {
        PrintStream answers = System.out;
        PrintStream errors = System.err;
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> error.printStackTrace(errors));
        System.setOut(System.err);
        catchHalts();
        scheduler = newScheduler();
        BufferedReader starts = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = starts.readLine(); line != null; line = starts.readLine()) {
            ByteArrayOutputStream log = new ByteArrayOutputStream();
            System.setErr(new PrintStream(log, true));
            JsonNode request = JSON.readTree(line);
            Start first = new Start(request);
            Map<String, Object> answer = first.run();
            answer.put("log", lines(log));
            if (answer.get("broker").equals("exits")) {
                first.unlock();
                answer.put("second", new Start(request).run());
            }
            answers.write((JSON.writeValueAsString(answer) + "\n").getBytes(StandardCharsets.UTF_8));
            answers.flush();
        }
        Runtime.getRuntime().halt(0); // logs stay open, as those of a broker that was killed
    }

    private static List<String> lines(ByteArrayOutputStream log) {
        System.err.flush();
        return log.toString(StandardCharsets.UTF_8).lines().toList();
    }

    /** One start. */
    private static final class Start {
        private final JsonNode request;
        private final List<String> dirs = new ArrayList<>();
        private final boolean kraft;
        private final Map<String, Object> answer = new LinkedHashMap<>();
        private final Object failures = create(found("org.apache.kafka.storage.internals.log.LogDirFailureChannel",
            "kafka.server.LogDirFailureChannel"), 10);
        /** Directories whose meta.properties could not be read: KafkaRaftServer hands them to the LogManager. */
        private List<?> offlineAtFirst = List.of();
        private Object manager;

        private Start(JsonNode request) {
            this.request = request;
            request.required("dirs").forEach(dir -> dirs.add(dir.asText()));
            this.kraft = request.required("kraft").asBoolean();
        }

        private Map<String, Object> run() {
            try {
                if (kraft)
                    initializeLogDirs();
                manager = newManager();
                load();
                if (kraft)
                    compareWithImage();
                failDirectories();
                answer.put("broker", "starts");
            } catch (Throwable error) { // an Error of Kafka's is an answer, too
                answer.put("broker", error instanceof Halted ? "halts" : "exits");
                if (!(error instanceof Halted))
                    answer.put("exception", describe(error));
            }
            answer.put("offline", dirs.stream().filter(dir -> isOffline(dir)).toList());
            answer.put("partitions", partitions());
            answer.put("files", files());
            answer.put("high_watermarks", offsets("replication-offset-checkpoint"));
            answer.put("cleaner_offsets", offsets("cleaner-offset-checkpoint"));
            return answer;
        }

        /** What KafkaRaftServer does before it makes a LogManager: meta.properties of all directories, and the place of the metadata log. */
        private void initializeLogDirs() throws Throwable {
            Object config = newConfig();
            Method initialize = method(found("kafka.server.KafkaRaftServer"), "initializeLogDirs");
            Object[] values = Arrays.stream(initialize.getParameterTypes()).map(type -> {
                if (type == String.class)
                    return "";
                return type == Logger.class ? LoggerFactory.getLogger("kafka.server.KafkaRaftServer") : config;
            }).toArray();
            offlineAtFirst = offlineDirs((scala.Product) invoke(initialize, null, values));
        }

        /** A member of the result until 3.6, and MetaPropertiesEnsemble.errorLogDirs from 3.7 on. */
        private static List<?> offlineDirs(scala.Product result) {
            for (int at = 0; at < result.productArity(); at++) {
                Object member = result.productElement(at);
                if (member instanceof scala.collection.Seq<?>)
                    return List.copyOf(list(member));
                if (optional(member.getClass(), "errorLogDirs") != null)
                    return List.copyOf(list(call(member, "errorLogDirs")));
            }
            throw new IllegalStateException("no directories in the result of initializeLogDirs");
        }

        /** As the end of a process does. */
        private void unlock() {
            if (manager == null)
                return;
            for (Object lock : list(field(manager, "dirLocks")))
                call(lock, "destroy");
        }

        private Object newManager() throws Throwable {
            Object config = newConfig();
            boolean keepsIds = kraft || request.required("keeps_topic_ids").asBoolean();
            Method apply = method(found("kafka.log.LogManager"), "apply");
            Object[] values = Arrays.stream(apply.getParameterTypes()).map(type -> {
                if (type == found("kafka.server.KafkaConfig"))
                    return config;
                if (type.getName().equals("scala.collection.Seq"))
                    return CollectionConverters.asScala(offlineAtFirst).toSeq();
                if (type == java.util.Set.class)
                    return new java.util.HashSet<>(offlineAtFirst);
                if (type.getName().endsWith("ConfigRepository"))
                    return proxy(type, this::configuration);
                if (type.getName().endsWith("Scheduler"))
                    return scheduler;
                if (type == Time.class)
                    return fixedTime();
                if (type.getName().endsWith("BrokerTopicStats"))
                    return newStatistics(type);
                if (type.getName().endsWith("LogDirFailureChannel"))
                    return failures;
                if (type == boolean.class)
                    return keepsIds;
                throw new IllegalStateException("an argument of LogManager that is not known: " + type);
            }).toArray();
            return invoke(apply, null, values);
        }

        private Properties configuration(Object self, Method called, Object[] arguments) {
            Properties settings = new Properties();
            request.required("topic_settings").fields()
                .forEachRemaining(each -> settings.put(each.getKey(), each.getValue().asText()));
            return settings;
        }

        private Object newConfig() throws Throwable {
            Properties settings = new Properties();
            if (kraft) {
                settings.put("process.roles", "broker");
                settings.put("node.id", String.valueOf(BROKER_ID));
                settings.put("controller.quorum.voters", "2@127.0.0.1:9093");
                settings.put("controller.listener.names", "CONTROLLER");
            } else {
                settings.put("broker.id", String.valueOf(BROKER_ID));
                settings.put("zookeeper.connect", "127.0.0.1:2181");
            }
            settings.put("listeners", "PLAINTEXT://127.0.0.1:9092");
            settings.put("log.dirs", String.join(",", dirs));
            settings.put("num.recovery.threads.per.data.dir", "1");
            settings.put("log.retention.ms", "-1");
            settings.put("log.index.size.max.bytes", "4096");
            request.required("settings").fields().forEachRemaining(each -> settings.put(each.getKey(), each.getValue().asText()));
            return invoke(found("kafka.server.KafkaConfig").getMethod("fromProps", Properties.class), null, settings);
        }

        private void load() throws Throwable {
            Method load = method(manager.getClass(), "loadLogs");
            Map<?, ?> overrides = topicOverrides();
            Object[] values = Arrays.stream(load.getParameterTypes()).map(type -> {
                if (type.getName().endsWith("LogConfig"))
                    return call(manager, "currentDefaultConfig");
                if (type == Map.class)
                    return overrides;
                if (type.getName().equals("scala.collection.Map"))
                    return CollectionConverters.asScala(overrides);
                return proxy(type, (self, called, arguments) -> kraft && isStray(arguments[0])); // Function, Function1
            }).toArray();
            invoke(load, manager, values);
        }

        /** The settings of each topic, made by the release itself. */
        private Map<?, ?> topicOverrides() throws Throwable {
            if (request.required("topic_settings").isEmpty())
                return Map.of();
            Method fetch = method(manager.getClass(), "fetchTopicConfigOverrides");
            java.util.Set<String> names = new java.util.HashSet<>();
            request.required("topics").forEach(topic -> names.add(topic.required("name").asText()));
            Object argument = fetch.getParameterTypes()[1] == java.util.Set.class ? names : CollectionConverters.asScala(names);
            Object overrides = invoke(fetch, manager, call(manager, "currentDefaultConfig"), argument);
            return overrides instanceof Map<?, ?> map ? map : CollectionConverters.asJava((scala.collection.Map<?, ?>) overrides);
        }

        /** From 3.7.1 on it is asked of each log while it is loaded; as BrokerMetadataPublisher does. */
        private boolean isStray(Object log) {
            Method whole = optional(found("kafka.log.LogManager"), "isStrayKraftReplica");
            try {
                if (whole != null)
                    return (boolean) invoke(whole, null, BROKER_ID, image(), log);
                if (topicId(log) == null)
                    return true;
                Method replicas = method(found("org.apache.kafka.image.TopicsImage"), "partitionReplicas");
                Object assigned = invoke(replicas, image(), topicId(log), ((TopicPartition) call(log, "topicPartition")).partition());
                Method rest = method(found("org.apache.kafka.storage.internals.log.LogManager"), "isStrayReplica");
                return (boolean) invoke(rest, null, assigned, BROKER_ID, log);
            } catch (Throwable error) {
                throw new IllegalStateException(error);
            }
        }

        /** What BrokerMetadataPublisher does when the logs are loaded: releases before 3.7.1 look for strays, later ones for moves. */
        private void compareWithImage() throws Throwable {
            Class<?> publisher = optionalClass("kafka.server.metadata.BrokerMetadataPublisher");
            Method strays = publisher == null ? null : optional(publisher, "findStrayPartitions");
            if (strays != null) // 3.3 to 3.6: it deletes them
                answer.put("strays_to_delete", straysToDelete(strays));
            Method deletion = optional(manager.getClass(), "deleteStrayKRaftReplicas"); // 3.7.0: it sets them aside
            if (deletion != null)
                invoke(deletion, manager, BROKER_ID, image());
            Method moves = optional(manager.getClass(), "recoverAbandonedFutureLogs");
            if (moves != null)
                invoke(moves, manager, Arrays.stream(moves.getParameterTypes()).map(this::argumentOfMoves).toArray());
        }

        /**
         * First each replica of the image gets its log, and a log without an id that of the image (Partition, UnifiedLog.assignTopicId).
         * None if it throws: the publisher logs "Error deleting stray partitions during startup", and goes on.
         */
        private List<String> straysToDelete(Method strays) throws Throwable {
            for (JsonNode topic : request.required("topics"))
                for (Object log : logsIn("currentLogs"))
                    if (topicId(log) == null && call(log, "name").equals(topic.required("name").asText() + "-0"))
                        assignTopicId(log, Uuid.fromString(topic.required("id").asText()));
            try {
                Object found = invoke(strays, null, BROKER_ID, image(), call(manager, "allLogs"));
                return list(found).stream().map(Object::toString).sorted().toList();
            } catch (Throwable error) {
                System.err.println("[main] ERROR kafka.server.metadata.BrokerMetadataPublisher - " + describe(error));
                return List.of();
            }
        }

        /** Its one thread writes partition.metadata a moment later: waited for, so that no answer depends on that moment. */
        private static void assignTopicId(Object log, Uuid id) throws Throwable {
            invoke(method(log.getClass(), "assignTopicId"), log, id);
            CountDownLatch isWritten = new CountDownLatch(1);
            invoke(method(scheduler.getClass(), "scheduleOnce"), scheduler, "wait", (Runnable) isWritten::countDown, 0L);
            isWritten.await();
        }

        private Object argumentOfMoves(Class<?> type) {
            if (type == int.class)
                return BROKER_ID;
            if (type.getName().endsWith("TopicsImage"))
                return image();
            return proxy(type, (self, called, arguments) -> { // 4.4: topic id, partition, broker id
                Object registration = invoke(method(found("org.apache.kafka.image.TopicsImage"), "getPartition"), image(),
                    arguments[0], arguments[1]);
                return invoke(method(registration.getClass(), "directory"), registration, arguments[2]);
            });
        }

        /** As the thread of ReplicaManager that waits for directories that fail. */
        private void failDirectories() throws Throwable {
            for (String dir : dirs)
                if (isOffline(dir))
                    invoke(method(manager.getClass(), "handleLogDirFailure"), manager, dir);
        }

        private boolean isOffline(String dir) {
            return ((Map<?, ?>) field(failures, "offlineLogDirs")).containsKey(dir);
        }

        private Object image() {
            Class<?> kind = found("org.apache.kafka.image.TopicsImage");
            try {
                Object empty = kind.getField("EMPTY").get(null);
                Method including = method(kind, "including");
                Object image = empty;
                for (JsonNode topic : request.required("topics"))
                    image = invoke(including, image, topicImage(topic));
                return image;
            } catch (Throwable error) {
                throw new IllegalStateException(error);
            }
        }

        private static Object topicImage(JsonNode topic) throws Throwable {
            Map<Integer, Object> partitions = new HashMap<>();
            for (JsonNode each : topic.required("partitions"))
                partitions.put(each.required("partition").asInt(), registration(each));
            Uuid id = Uuid.fromString(topic.required("id").asText());
            return create(found("org.apache.kafka.image.TopicImage"), topic.required("name").asText(), id, partitions);
        }

        private static Object registration(JsonNode partition) throws Throwable {
            int[] replicas = new int[partition.required("replicas").size()];
            Uuid[] directories = new Uuid[replicas.length];
            for (int at = 0; at < replicas.length; at++) {
                replicas[at] = partition.required("replicas").get(at).asInt();
                directories[at] = Uuid.fromString(partition.required("directories").get(at).asText());
            }
            Class<?> recovered = found("org.apache.kafka.metadata.LeaderRecoveryState");
            Object builder = create(found("org.apache.kafka.metadata.PartitionRegistration$Builder"));
            callWith(builder, "setReplicas", (Object) replicas);
            callWith(builder, "setIsr", (Object) replicas);
            callWith(builder, "setLeader", replicas[0]);
            callWith(builder, "setLeaderEpoch", 5);
            callWith(builder, "setPartitionEpoch", 5);
            callWith(builder, "setLeaderRecoveryState", recovered.getField("RECOVERED").get(null));
            if (optional(builder.getClass(), "setDirectories") != null)
                callWith(builder, "setDirectories", (Object) directories);
            return call(builder, "build");
        }

        // ---- what is there afterwards ----

        private Map<String, Object> partitions() {
            Map<String, Object> found = new TreeMap<>();
            if (manager == null)
                return found;
            for (String pool : List.of("currentLogs", "futureLogs", "strayLogs", "logsToBeDeleted"))
                for (Object log : logsIn(pool))
                    found.put(call(log, "dir").toString(), partition(log, pool));
            return found;
        }

        private Collection<?> logsIn(String name) {
            Field field = Arrays.stream(manager.getClass().getDeclaredFields()).filter(each -> each.getName().equals(name))
                .findFirst().orElse(null);
            if (field == null)
                return List.of();
            Object pool = value(field, manager);
            if (pool instanceof Map<?, ?> map)
                return map.values();
            if (pool instanceof Collection<?> queue)
                return queue.stream().map(each -> each instanceof Map.Entry<?, ?> pair ? pair.getKey() : call(each, "_1")).toList();
            return list(call(pool, "values"));
        }

        private static Map<String, Object> partition(Object log, String pool) {
            Map<String, Object> row = new TreeMap<>();
            row.put("pool", pool);
            row.put("start", call(log, "logStartOffset"));
            row.put("end", call(log, "logEndOffset"));
            row.put("topic_id", topicId(log) == null ? null : topicId(log).toString());
            row.put("segments", list(call(log, "logSegments")).stream().map(each -> call(each, "baseOffset")).toList());
            row.put("epochs", epochs(log));
            return row;
        }

        private static Object epochs(Object log) {
            Object cache = orNull(call(log, "leaderEpochCache"));
            if (cache == null)
                return List.of();
            return list(call(cache, "epochEntries")).stream()
                .map(each -> List.of(field(each, "epoch"), field(each, "startOffset"))).toList();
        }

        private Map<String, Object> files() {
            Map<String, Object> found = new TreeMap<>();
            for (String dir : dirs) {
                File[] inside = new File(dir).listFiles(File::isDirectory);
                for (File each : inside == null ? new File[0] : inside) {
                    String[] names = each.list();
                    found.put(each.toString(), names == null ? List.of() : Arrays.stream(names).sorted().toList());
                }
            }
            return found;
        }

        /**
         * ReplicaManager reads high watermarks when it gets its first partition, the log cleaner its offsets at its first round
         * (LogCleanerManager.allCleanerCheckpoints). A directory whose file cannot be read is offline then.
         */
        private Map<String, Object> offsets(String name) {
            Map<String, Object> found = new TreeMap<>();
            Class<?> kind = found("org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile",
                "kafka.server.checkpoints.OffsetCheckpointFile");
            for (String dir : dirs) {
                File file = new File(dir, name);
                if (isOffline(dir) || !file.exists())
                    continue;
                try {
                    Object read = invoke(method(kind, "read"), create(kind, file, failures));
                    Map<?, ?> offsets = read instanceof Map<?, ?> map ? map
                        : CollectionConverters.asJava((scala.collection.Map<?, ?>) read);
                    Map<String, Object> named = new TreeMap<>();
                    offsets.forEach((partition, offset) -> named.put(partition.toString(), offset));
                    found.put(dir, named);
                } catch (Throwable error) {
                    found.put(dir, describe(error));
                }
            }
            return found;
        }
    }

    private static Uuid topicId(Object log) {
        return (Uuid) orNull(call(log, "topicId"));
    }

    // ---- by name ----

    private static String describe(Throwable error) {
        return error.getClass().getName() + ": " + error.getMessage();
    }

    private static Object orNull(Object value) {
        if (value instanceof Optional<?> optional)
            return optional.orElse(null);
        if (value instanceof scala.Option<?> option)
            return option.isEmpty() ? null : option.get();
        return value;
    }

    private static Collection<?> list(Object value) {
        return value instanceof Collection<?> collection ? collection
            : CollectionConverters.asJavaCollection((scala.collection.Iterable<?>) value);
    }

    private static Class<?> found(String... names) {
        for (String name : names)
            if (optionalClass(name) != null)
                return optionalClass(name);
        throw new IllegalStateException("not in this release: " + String.join(", ", names));
    }

    private static Class<?> optionalClass(String name) {
        try {
            return Class.forName(name);
        } catch (ClassNotFoundException absent) {
            return null;
        }
    }

    private static Method method(Class<?> owner, String name) {
        Method found = optional(owner, name);
        if (found == null)
            throw new IllegalStateException(owner + " has no " + name);
        return found;
    }

    /** The method with most arguments of that name, but for those that a compiler made. */
    private static Method optional(Class<?> owner, String name) {
        Method found = null;
        for (Method each : owner.getMethods())
            if (each.getName().equals(name) && !each.isBridge() && (found == null || each.getParameterCount() > found.getParameterCount()))
                found = each;
        return opened(found);
    }

    private static Object call(Object target, String name) {
        try {
            return invoke(opened(target.getClass().getMethod(name)), target);
        } catch (Throwable error) {
            throw new IllegalStateException(error);
        }
    }

    private static Object callWith(Object target, String name, Object... values) {
        try {
            return invoke(method(target.getClass(), name), target, values);
        } catch (Throwable error) {
            throw new IllegalStateException(error);
        }
    }

    private static Object field(Object target, String name) {
        if (optional(target.getClass(), name) != null)
            return call(target, name);
        try {
            return value(target.getClass().getDeclaredField(name), target);
        } catch (NoSuchFieldException error) {
            throw new IllegalStateException(error);
        }
    }

    private static Object value(Field field, Object target) {
        try {
            return opened(field).get(target);
        } catch (IllegalAccessException error) {
            throw new IllegalStateException(error);
        }
    }

    private static <T extends AccessibleObject> T opened(T member) {
        if (member != null)
            member.setAccessible(true);
        return member;
    }

    private static Object invoke(Method method, Object target, Object... values) throws Throwable {
        try {
            return method.invoke(target, values);
        } catch (InvocationTargetException error) {
            throw error.getCause();
        }
    }

    private static Object create(Class<?> kind, Object... values) {
        try {
            for (Constructor<?> each : kind.getConstructors())
                if (each.getParameterCount() == values.length)
                    return each.newInstance(values);
            throw new IllegalStateException(kind + " is not made of " + values.length + " values");
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    private static Object proxy(Class<?> type, InvocationHandler handler) {
        return Proxy.newProxyInstance(StartFates.class.getClassLoader(), new Class<?>[] {type}, handler);
    }

    private static Object fixedTime() {
        return proxy(Time.class, (self, called, values) ->
            called.getName().equals("milliseconds") ? NOW_MS : invoke(called, Time.SYSTEM, values == null ? new Object[0] : values));
    }

    private static Object newStatistics(Class<?> kind) {
        try {
            Constructor<?> first = kind.getConstructors()[0];
            Object[] values = Arrays.stream(first.getParameterTypes())
                .map(type -> type == boolean.class ? (Object) false : Optional.empty()).toArray();
            return first.newInstance(values);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException(error);
        }
    }

    private static Object newScheduler() {
        Class<?> kind = found("org.apache.kafka.server.util.KafkaScheduler", "kafka.utils.KafkaScheduler");
        Object[] values = kind.getName().startsWith("kafka.") ? new Object[] {1, "start-", true} : new Object[] {1};
        Object made = create(kind, values);
        call(made, "startup");
        return made;
    }

    private static void catchHalts() throws Exception {
        Class<?> exit = found("org.apache.kafka.common.utils.internals.Exit", "org.apache.kafka.common.utils.Exit");
        Class<?> procedure = Class.forName(exit.getName() + "$Procedure");
        InvocationHandler handler = (self, called, values) -> {
            throw new Halted(values[0]);
        };
        for (String name : List.of("setHaltProcedure", "setExitProcedure"))
            exit.getMethod(name, procedure).invoke(null, proxy(procedure, handler));
    }
}
