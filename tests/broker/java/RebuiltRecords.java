package org.apache.kafka.server.log.remote.metadata.storage;

import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HexFormat;
import java.util.Optional;

/**
 * Takes the values of records, in hexadecimal after `M`, as a broker does, and answers questions about one partition: `L epoch offset` for the
 * copy that is read, `H epoch` for the last offset that counts as uploaded.
 */
public final class RebuiltRecords {
    public static void main(String[] arguments) throws Exception {
        FoldedMetadata folded = new FoldedMetadata();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("M")) {
                folded.take(HexFormat.of().parseHex(words[1]));
            } else if (words[0].equals("L")) {
                Optional<RemoteLogSegmentMetadata> found =
                    folded.remoteLogSegmentMetadata(null, Integer.parseInt(words[1]), Long.parseLong(words[2]));
                System.out.println(found.map(each -> each.remoteLogSegmentId().id() + " " + each.state()).orElse("none"));
            } else {
                System.out.println(folded.highestOffsetForEpoch(null, Integer.parseInt(words[1])).orElse(-1L));
            }
        }
    }
}
