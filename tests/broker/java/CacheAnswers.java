package org.apache.kafka.server.log.remote.metadata.storage;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HexFormat;
import java.util.Iterator;
import java.util.Optional;
import java.util.TreeMap;
import java.util.TreeSet;

/**
 * Kafka's own cache of remote log metadata. A line on stdin is the value of the next record, in hexadecimal, or a question: a last epoch and a
 * last offset. The answer is a line of words; then a new cache begins. Words: ID=STATE of each copy, with * if {@code floorEntry} leads to it in
 * an epoch; EPOCH:OFFSET=ID of each lookup that finds a copy.
 */
public final class CacheAnswers {
    private CacheAnswers() { }

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        RemoteLogMetadataCache cache = new RemoteLogMetadataCache();
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            int space = line.indexOf(' ');
            if (space < 0) {
                take(cache, new RemoteLogMetadataSerde().deserialize(HexFormat.of().parseHex(line)));
                continue;
            }
            answer(cache, Integer.parseInt(line.substring(0, space)), Long.parseLong(line.substring(space + 1)));
            cache = new RemoteLogMetadataCache();
        }
    }

    private static void take(RemoteLogMetadataCache cache, Object record) throws Exception {
        if (record instanceof RemoteLogSegmentMetadata segment)
            cache.addCopyInProgressSegment(segment);
        else
            cache.updateRemoteLogSegmentMetadata((RemoteLogSegmentMetadataUpdate) record);
    }

    private static void answer(RemoteLogMetadataCache cache, int lastEpoch, long lastOffset) {
        TreeSet<Uuid> referenced = new TreeSet<>();
        StringBuilder lookups = new StringBuilder();
        for (int epoch = 0; epoch <= lastEpoch; epoch++) {
            RemoteLogLeaderEpochState state = cache.leaderEpochEntries.get(epoch);
            for (long offset = 0; state != null && offset <= lastOffset; offset++) {
                RemoteLogSegmentId id = state.floorEntry(offset);
                if (id == null)
                    continue;
                referenced.add(id.id());
                Optional<RemoteLogSegmentMetadata> found = cache.remoteLogSegmentMetadata(epoch, offset);
                if (found.isPresent())
                    lookups.append(' ').append(epoch).append(':').append(offset).append('=').append(found.get().remoteLogSegmentId().id());
            }
        }
        TreeMap<String, String> states = new TreeMap<>();
        Iterator<RemoteLogSegmentMetadata> all = cache.listAllRemoteLogSegments();
        while (all.hasNext()) {
            RemoteLogSegmentMetadata each = all.next();
            Uuid id = each.remoteLogSegmentId().id();
            states.put(id.toString(), each.state().id() + (referenced.contains(id) ? "*" : ""));
        }
        StringBuilder answer = new StringBuilder();
        states.forEach((id, state) -> answer.append(answer.isEmpty() ? "" : " ").append(id).append('=').append(state));
        System.out.println(answer.append(lookups));
    }
}
