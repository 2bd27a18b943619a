import java.io.FileReader;
import java.io.Reader;
import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Named;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts the words of a topic's lines with Kafka Streams.
 *
 * <p>Usage: java WordCount PROPERTIES INPUT OUTPUT. PROPERTIES is a file with the settings of Kafka
 * Streams. Each state that it comes to is a line on stdout. SIGTERM stops it in order; where a
 * thread fails it ends at once, with the status 1.
 */
public final class WordCount {
    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        try (Reader file = new FileReader(args[0])) {
            settings.load(file);
        }
        KafkaStreams streams = new KafkaStreams(topology(args[1], args[2]), settings);
        streams.setStateListener((state, before) -> System.out.println(state));
        streams.setUncaughtExceptionHandler(failure -> {
            failure.printStackTrace();
            Runtime.getRuntime().halt(1);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(20))));
        streams.start();
    }

    /** Words are counted in a store with a changelog, behind a repartition topic. */
    private static Topology topology(String input, String output) {
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(input, Consumed.with(Serdes.ByteArray(), Serdes.String()))
                .flatMapValues(line -> Arrays.asList(line.split(" ")))
                .groupBy((key, word) -> word, Grouped.with("words", Serdes.String(), Serdes.String()))
                .count(Named.as("count"), Materialized.as("counts"))
                .toStream()
                .to(output, Produced.with(Serdes.String(), Serdes.Long()));
        return builder.build();
    }
}
