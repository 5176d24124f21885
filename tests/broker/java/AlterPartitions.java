package org.apache.kafka.controller;

import kafka.server.KafkaRaftServer;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.message.AlterPartitionRequestData;
import org.apache.kafka.common.message.AlterPartitionResponseData;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.metadata.FeatureLevelRecord;
import org.apache.kafka.common.metadata.PartitionChangeRecord;
import org.apache.kafka.common.metadata.PartitionRecord;
import org.apache.kafka.common.metadata.RegisterBrokerRecord;
import org.apache.kafka.common.metadata.TopicRecord;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.LogContext;

import org.apache.kafka.metadata.PartitionRegistration;
import org.apache.kafka.metadata.placement.StripedReplicaPlacer;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.timeline.SnapshotRegistry;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Random;
import java.util.TreeMap;

/** Kafka's own ReplicationControlManager: takes brokers and partitions, answers AlterPartition requests, and prints what became of it. */
public final class AlterPartitions {
    private final SnapshotRegistry registry = new SnapshotRegistry(new LogContext());
    private final FeatureControlManager features = new FeatureControlManager.Builder().setSnapshotRegistry(registry).
        setQuorumFeatures(new QuorumFeatures(0, QuorumFeatures.defaultSupportedFeatureMap(true), List.of(0))).build();
    private final ClusterControlManager cluster;
    private final ConfigurationControlManager configuration;
    private final ReplicationControlManager replication;
    private final Map<String, int[]> partitions = new TreeMap<>();

    private AlterPartitions() {
        features.replay(new FeatureLevelRecord().setName(MetadataVersion.FEATURE_NAME).
            setFeatureLevel(MetadataVersion.latestProduction().featureLevel()));
        cluster = new ClusterControlManager.Builder().setSnapshotRegistry(registry).setFeatureControlManager(features).
            setReplicaPlacer(new StripedReplicaPlacer(new Random(0))).
            setBrokerShutdownHandler((broker, clean, records) -> { }).build();
        configuration = new ConfigurationControlManager.Builder().setSnapshotRegistry(registry).setFeatureControl(features).
            setKafkaConfigSchema(KafkaRaftServer.configSchema()).build();
        replication = new ReplicationControlManager.Builder().setSnapshotRegistry(registry).setConfigurationControl(configuration).
            setClusterControl(cluster).setFeatureControl(features).build();
        cluster.activate();
    }

    private static List<Integer> list(String text) {
        List<Integer> found = new ArrayList<>();
        for (String each : text.split(","))
            if (!each.isEmpty()) found.add(Integer.parseInt(each));
        return found;
    }

    private static Uuid topicId(int number) {
        return new Uuid(0x0101010101010101L * number, 0x0101010101010101L * number);
    }

    private void broker(String[] words) {
        int id = Integer.parseInt(words[1]);
        cluster.replay(new RegisterBrokerRecord().setBrokerId(id).setBrokerEpoch(Long.parseLong(words[2])).
            setIncarnationId(Uuid.randomUuid()).setFenced(words[3].equals("1")).setInControlledShutdown(words[4].equals("1")).
            setLogDirs(List.of(new Uuid(1000, id))), 0);
    }

    private void topic(String[] words) {
        int number = Integer.parseInt(words[1]);
        replication.replay(new TopicRecord().setName("topic" + number).setTopicId(topicId(number)));
    }

    private void partition(String[] words) {
        int topic = Integer.parseInt(words[1]);
        int number = Integer.parseInt(words[2]);
        PartitionRecord record = new PartitionRecord().setTopicId(topicId(topic)).setPartitionId(number).setReplicas(list(words[3])).
            setIsr(list(words[4])).setLeader(Integer.parseInt(words[5])).setLeaderEpoch(Integer.parseInt(words[6])).
            setPartitionEpoch(Integer.parseInt(words[7])).setLeaderRecoveryState(Byte.parseByte(words[8])).
            setAddingReplicas(list(words[9])).setRemovingReplicas(list(words[10]));
        List<Uuid> directories = new ArrayList<>();
        for (int replica : record.replicas()) directories.add(new Uuid(1000, replica));
        replication.replay(record.setDirectories(directories));
        partitions.put(topic + " " + number, new int[] {topic, number});
    }

    private String request(String[] words) {
        short version = Short.parseShort(words[1]);
        AlterPartitionRequestData request =
            new AlterPartitionRequestData(new ByteBufferAccessor(ByteBuffer.wrap(HexFormat.of().parseHex(words[2]))), version);
        ControllerRequestContext context = new ControllerRequestContext(
            new RequestHeaderData().setRequestApiVersion(version), KafkaPrincipal.ANONYMOUS, OptionalLong.empty());
        AlterPartitionResponseData response;
        try {
            ControllerResult<AlterPartitionResponseData> result = replication.alterPartition(context, request);
            for (ApiMessageAndVersion record : result.records())
                replication.replay((PartitionChangeRecord) record.message());
            response = result.response();
        } catch (ApiException error) {
            response = new AlterPartitionResponseData().setErrorCode(Errors.forException(error).code());
        }
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(response.size(cache, version));
        response.write(new ByteBufferAccessor(buffer), cache, version);
        StringBuilder output = new StringBuilder(HexFormat.of().formatHex(buffer.array()));
        for (int[] each : partitions.values()) {
            PartitionRegistration now = replication.getPartition(topicId(each[0]), each[1]);
            output.append(String.format(";%d %d %s %s %d %d %d %d %s %s", each[0], each[1], text(now.replicas), text(now.isr), now.leader,
                now.leaderEpoch, now.partitionEpoch, now.leaderRecoveryState.value(), text(now.addingReplicas), text(now.removingReplicas)));
        }
        return output.toString();
    }

    private static String text(int[] ids) {
        return Arrays.toString(ids).replaceAll("[\\[\\] ]", "");
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        AlterPartitions manager = null;
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ", -1);
            switch (words[0]) {
                case "new" -> manager = new AlterPartitions();
                case "broker" -> manager.broker(words);
                case "topic" -> manager.topic(words);
                case "partition" -> manager.partition(words);
                default -> System.out.println(manager.request(words));
            }
        }
    }
}
