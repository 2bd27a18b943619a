import java.util.ArrayList;
import java.util.HashSet;
import java.util.HexFormat;
import java.util.List;
import java.util.Optional;
import java.util.Scanner;
import java.util.Set;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.coordinator.transaction.TransactionLog;
import org.apache.kafka.coordinator.transaction.TransactionMetadata;
import org.apache.kafka.coordinator.transaction.TransactionState;
import org.apache.kafka.coordinator.transaction.TxnTransitMetadata;
import org.apache.kafka.server.common.TransactionVersion;

/**
 * Runs histories of transactional ids, read from stdin, with Kafka's own classes.
 *
 * <p>`new LEVEL ID PRODUCER-ID EPOCH TIMEOUT NOW` begins with another id, the feature at that level. Then
 * `increment TIMEOUT EXPECTED-EPOCH NOW` (-1 where none is expected), `rotate PRODUCER-ID TIMEOUT
 * LAST-EPOCH-IS-KEPT NOW`, `add VERSION NOW TOPIC:PARTITION…`, `end STATE VERSION NEXT-PRODUCER-ID NOW`,
 * `fence VERSION NEXT-PRODUCER-ID NOW` and `complete NOW`. Each of them prints the record that Kafka
 * writes, key and value in hex, and the last epoch of the producer, which is in no record.
 */
public class TransactionHistories {
    private static TransactionMetadata life;
    private static TransactionVersion level;

    public static void main(String[] arguments) {
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            List<String> words = List.of(lines.nextLine().split(" "));
            if (words.get(0).equals("new")) {
                begin(words);
            } else {
                TxnTransitMetadata next = next(words);
                life.completeTransitionTo(next);
                HexFormat hex = HexFormat.of();
                System.out.println(hex.formatHex(TransactionLog.keyToBytes(life.transactionalId()))
                    + " " + hex.formatHex(TransactionLog.valueToBytes(next, level))
                    + " " + life.lastProducerEpoch());
            }
        }
    }

    private static void begin(List<String> words) {
        level = version(words.get(1));
        life = new TransactionMetadata(words.get(2), Long.parseLong(words.get(3)), -1L, -1L,
            Short.parseShort(words.get(4)), (short) -1, Integer.parseInt(words.get(5)), TransactionState.EMPTY,
            Set.of(), -1L, Long.parseLong(words.get(6)), TransactionVersion.TV_0);
    }

    private static TxnTransitMetadata next(List<String> words) {
        switch (words.get(0)) {
            case "increment": {
                short expected = Short.parseShort(words.get(2));
                return life.prepareIncrementProducerEpoch(Integer.parseInt(words.get(1)),
                    expected < 0 ? Optional.empty() : Optional.of(expected), Long.parseLong(words.get(3)));
            }
            case "rotate":
                return life.prepareProducerIdRotation(Long.parseLong(words.get(1)), Integer.parseInt(words.get(2)),
                    Long.parseLong(words.get(4)), Boolean.parseBoolean(words.get(3)));
            case "add":
                return life.prepareAddPartitions(partitions(words.subList(3, words.size())),
                    Long.parseLong(words.get(2)), version(words.get(1)));
            case "end": {
                boolean nothingAdded = life.state() != TransactionState.ONGOING;
                return life.prepareAbortOrCommit(TransactionState.valueOf(words.get(1)), version(words.get(2)),
                    Long.parseLong(words.get(3)), Long.parseLong(words.get(4)), nothingAdded);
            }
            case "fence":
                return fence(version(words.get(1)), Long.parseLong(words.get(2)), Long.parseLong(words.get(3)));
            case "complete":
                return life.prepareComplete(Long.parseLong(words.get(1)));
            default:
                throw new IllegalArgumentException(String.join(" ", words));
        }
    }

    private static TxnTransitMetadata fence(TransactionVersion version, long nextProducerId, long now) {
        TxnTransitMetadata fenced = life.prepareFenceProducerEpoch();
        life.pendingState(Optional.empty());
        if (version.supportsEpochBump()) {
            return life.prepareAbortOrCommit(TransactionState.PREPARE_ABORT, version, nextProducerId, now, false);
        }
        life.setProducerEpoch(fenced.producerEpoch());
        life.setLastProducerEpoch((short) -1);
        return life.prepareAbortOrCommit(TransactionState.PREPARE_ABORT, TransactionVersion.TV_0, -1L, now, false);
    }

    private static Set<TopicPartition> partitions(List<String> words) {
        List<TopicPartition> partitions = new ArrayList<>();
        for (String word : words) {
            String[] parts = word.split(":");
            partitions.add(new TopicPartition(parts[0], Integer.parseInt(parts[1])));
        }
        return new HashSet<>(partitions);
    }

    private static TransactionVersion version(String level) {
        return TransactionVersion.fromFeatureLevel(Short.parseShort(level));
    }
}
