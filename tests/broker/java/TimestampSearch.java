import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.Optional;

/**
 * What a log without remote storage answers to a timestamp: "offset timestamp epoch", -1 each for none. Reads lines: "log directory, log
 * start offset, recovery point, whether the stop was clean" opens a log, a number asks it.
 */
public final class TimestampSearch {
    private TimestampSearch() { }

    public static void main(String[] args) throws Exception {
        KafkaScheduler scheduler = new KafkaScheduler(1);
        scheduler.startup();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        UnifiedLog log = null;
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t");
            if (words.length > 1) {
                if (log != null)
                    log.close();
                log = UnifiedLog.create(new File(words[0]), new LogConfig(Map.of()), Long.parseLong(words[1]), Long.parseLong(words[2]),
                        scheduler, new BrokerTopicStats(), Time.SYSTEM, 900_000, new ProducerStateManagerConfig(86_400_000, false), 600_000,
                        new LogDirFailureChannel(1), Boolean.parseBoolean(words[3]), Optional.empty());
                continue;
            }
            var found = log.fetchOffsetByTimestamp(Long.parseLong(line), Optional.empty()).timestampAndOffsetOpt();
            System.out.println(found.map(each -> each.offset + " " + each.timestamp + " " + each.leaderEpoch.orElse(-1)).orElse("-1 -1 -1"));
        }
        if (log != null)
            log.close();
        scheduler.shutdown();
    }
}
