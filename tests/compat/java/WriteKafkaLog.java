import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Fills a real broker with topics that between them use every part of Kafka's files, and prints one
 * JSON line for each record that the broker accepted.
 *
 * <p>Usage: java WriteKafkaLog.java BOOTSTRAP PHASE. Phase 1 creates the topics; phase 2 writes on,
 * and is meant to run after a restart of the broker, so that a second leader epoch begins; it ends
 * with a transaction that stays open.
 */
public class WriteKafkaLog {
    static final int SEGMENT_BYTES = 16 * 1024;
    static final long FIRST_TIMESTAMP = 1_700_000_000_000L;
    static final List<String> CODECS = List.of("none", "gzip", "snappy", "lz4", "zstd");
    static final ObjectMapper JSON = new ObjectMapper();

    final String bootstrap;
    final int phase;
    final Random random;
    long clock;

    WriteKafkaLog(String bootstrap, int phase) {
        this.bootstrap = bootstrap;
        this.phase = phase;
        this.random = new Random(phase);
        this.clock = FIRST_TIMESTAMP + phase * 1_000_000_000L;
    }

    public static void main(String[] args) throws Exception {
        WriteKafkaLog writer = new WriteKafkaLog(args[0], Integer.parseInt(args[1]));
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", args[0]))) {
            if (writer.phase == 1) {
                createTopics(admin);
            }
            writer.writeAll(admin);
        }
        System.out.flush();
        // Without closing producers: a close would end the transaction that is to stay open.
        Runtime.getRuntime().halt(0);
    }

    static void createTopics(Admin admin) throws Exception {
        List<NewTopic> topics = new ArrayList<>();
        for (String codec : CODECS) {
            topics.add(topic("codec-" + codec, 2, Map.of()));
        }
        topics.add(topic("append-time", 1, Map.of("message.timestamp.type", "LogAppendTime")));
        topics.add(topic("big", 1, Map.of("max.message.bytes", "4000000", "internal.segment.bytes", "2000000")));
        topics.add(topic("not-idempotent", 1, Map.of()));
        topics.add(topic("transactions", 2, Map.of()));
        topics.add(topic("transaction-open", 1, Map.of()));
        topics.add(topic("records-deleted", 1, Map.of()));
        topics.add(topic("compacted", 1, compaction("86400000")));
        topics.add(topic("compacted-lz4", 1, compaction("86400000")));
        topics.add(topic("compacted-transactions", 1, compaction("86400000")));
        topics.add(topic("compacted-no-tombstones", 1, compaction("0")));
        admin.createTopics(topics).all().get();
    }

    static Map<String, String> compaction(String deleteRetentionMs) {
        return Map.of(
            "cleanup.policy", "compact",
            "min.cleanable.dirty.ratio", "0.0001",
            "delete.retention.ms", deleteRetentionMs);
    }

    static NewTopic topic(String name, int partitions, Map<String, String> more) {
        Map<String, String> configs = new HashMap<>();
        // segment.bytes has a floor of 1 MiB; the internal twin is there for tests like these.
        configs.put("internal.segment.bytes", Integer.toString(SEGMENT_BYTES));
        configs.put("index.interval.bytes", "512");
        configs.put("retention.ms", "-1"); // the timestamps are old on purpose
        configs.putAll(more);
        return new NewTopic(name, partitions, (short) 1).configs(configs);
    }

    void writeAll(Admin admin) throws Exception {
        for (String codec : CODECS) {
            writePlain("codec-" + codec, 2, producer(Map.of("compression.type", codec)));
        }
        writePlain("append-time", 1, producer(Map.of()));
        writePlain("not-idempotent", 1, producer(Map.of("enable.idempotence", "false")));
        writeBig();
        writeTransactions("transactions", 2);
        writePlain("records-deleted", 1, producer(Map.of()));
        admin.deleteRecords(Map.of(
            new TopicPartition("records-deleted", 0), RecordsToDelete.beforeOffset(130L * phase))).all().get();
        writeKeyed("compacted", producer(Map.of()));
        writeKeyed("compacted-lz4", producer(Map.of("compression.type", "lz4")));
        writeKeyed("compacted-no-tombstones", producer(Map.of("compression.type", "zstd")));
        writeTransactions("compacted-transactions", 1);
        admin.alterConsumerGroupOffsets("readers", Map.of(
            new TopicPartition("codec-none", 0), new OffsetAndMetadata(7L * phase, "by hand"),
            new TopicPartition("codec-none", 1), new OffsetAndMetadata(11L * phase))).all().get();
        if (phase == 2) {
            leaveTransactionOpen();
        }
    }

    /** Records of many shapes, in batches of several sizes; timestamps mostly rise, but not always. */
    void writePlain(String topic, int partitions, KafkaProducer<byte[], byte[]> producer) throws Exception {
        List<Sent> sent = new ArrayList<>();
        for (int i = 0; i < 300; i++) {
            byte[] key = i % 7 == 0 ? null : i % 11 == 0 ? new byte[0] : utf8("key-" + i % 40);
            byte[] value = i % 13 == 0 ? null : i % 17 == 0 ? new byte[0] : filler(20 + random.nextInt(300));
            ProducerRecord<byte[], byte[]> record =
                new ProducerRecord<>(topic, i % partitions, nextTimestamp(), key, value);
            if (i % 5 == 0) {
                record.headers().add("header-" + i, utf8("value " + i)).add("schlüssel", null).add("", new byte[0]);
            }
            sent.add(send(producer, record, "plain"));
            if (i % 25 == 24) {
                producer.flush();
            }
        }
        print(sent);
        producer.close();
    }

    void writeBig() throws Exception {
        List<Sent> sent = new ArrayList<>();
        KafkaProducer<byte[], byte[]> producer = producer(Map.of("max.request.size", "4000000"));
        for (int size : new int[] {1, 127, 128, 16_383, 16_384, 300_000, 1_500_000}) {
            byte[] value = new byte[size];
            random.nextBytes(value);
            sent.add(send(producer, new ProducerRecord<>("big", 0, nextTimestamp(), utf8("size-" + size), value), "plain"));
        }
        print(sent);
        producer.close();
    }

    /** Keys that come again and again, and five that phase 1 deletes and that never come back. */
    void writeKeyed(String topic, KafkaProducer<byte[], byte[]> producer) throws Exception {
        List<Sent> sent = new ArrayList<>();
        for (int i = 0; i < 400; i++) {
            boolean isDeletedKey = phase == 1 && i < 10;
            byte[] value = i % 9 == 8 || isDeletedKey && i >= 5 ? null : filler(50 + random.nextInt(150));
            byte[] key = utf8(isDeletedKey ? "gone-" + i % 5 : "key-" + random.nextInt(30));
            sent.add(send(producer, new ProducerRecord<>(topic, 0, nextTimestamp(), key, value), "plain"));
            if (i % 20 == 19) {
                producer.flush();
            }
        }
        print(sent);
        producer.close();
    }

    /** Two producers whose transactions overlap; every third one is aborted. */
    void writeTransactions(String topic, int partitions) throws Exception {
        List<KafkaProducer<byte[], byte[]>> producers = new ArrayList<>();
        for (int i = 0; i < 2; i++) {
            producers.add(producer(Map.of("transactional.id", topic + "-" + i)));
            producers.get(i).initTransactions();
        }
        for (int round = 0; round < 6; round++) {
            List<Sent> sent = new ArrayList<>();
            boolean[] abort = {round % 3 == 1, round % 3 == 2};
            for (KafkaProducer<byte[], byte[]> producer : producers) {
                producer.beginTransaction();
            }
            for (int i = 0; i < 40; i++) {
                int which = i / 5 % 2;
                byte[] key = utf8("key-" + random.nextInt(20));
                byte[] value = i % 9 == 8 ? null : filler(40 + random.nextInt(120));
                sent.add(send(
                    producers.get(which),
                    new ProducerRecord<>(topic, i % partitions, nextTimestamp(), key, value),
                    abort[which] ? "aborted" : "committed"));
                if (i % 5 == 4) {
                    producers.get(which).flush();
                }
            }
            for (int which = 0; which < 2; which++) {
                if (abort[which]) {
                    producers.get(which).abortTransaction();
                } else {
                    producers.get(which).commitTransaction();
                }
            }
            print(sent);
        }
        for (KafkaProducer<byte[], byte[]> producer : producers) {
            producer.close();
        }
    }

    void leaveTransactionOpen() throws Exception {
        KafkaProducer<byte[], byte[]> plain = producer(Map.of());
        KafkaProducer<byte[], byte[]> open = producer(Map.of("transactional.id", "left-open"));
        open.initTransactions();
        open.beginTransaction();
        List<Sent> sent = new ArrayList<>();
        for (int i = 0; i < 30; i++) {
            boolean transactional = i >= 10 && i < 20;
            sent.add(send(
                transactional ? open : plain,
                new ProducerRecord<>("transaction-open", 0, nextTimestamp(), utf8("key-" + i), filler(60)),
                transactional ? "open" : "plain"));
            if (i % 10 == 9) {
                (transactional ? open : plain).flush();
            }
        }
        print(sent);
    }

    KafkaProducer<byte[], byte[]> producer(Map<String, Object> more) {
        Map<String, Object> configs = new HashMap<>();
        configs.put("bootstrap.servers", bootstrap);
        configs.put("linger.ms", "50"); // batches end at a flush, so that they hold several records
        configs.put("transaction.timeout.ms", "600000");
        configs.putAll(more);
        return new KafkaProducer<>(configs, new ByteArraySerializer(), new ByteArraySerializer());
    }

    Sent send(KafkaProducer<byte[], byte[]> producer, ProducerRecord<byte[], byte[]> record, String outcome) {
        return new Sent(record, producer.send(record), outcome);
    }

    void print(List<Sent> sent) throws Exception {
        for (Sent item : sent) {
            RecordMetadata metadata = item.metadata.get();
            Map<String, Object> line = new LinkedHashMap<>();
            line.put("topic", metadata.topic());
            line.put("partition", metadata.partition());
            line.put("offset", metadata.offset());
            line.put("timestamp", metadata.timestamp());
            line.put("key", item.record.key());
            line.put("value", item.record.value());
            List<Object> headers = new ArrayList<>();
            for (Header header : item.record.headers()) {
                headers.add(Arrays.asList(header.key(), header.value()));
            }
            line.put("headers", headers);
            line.put("outcome", item.outcome);
            System.out.println(JSON.writeValueAsString(line)); // byte arrays become base64
        }
    }

    long nextTimestamp() {
        clock += 1_000;
        return random.nextInt(10) == 0 ? clock - 5_500 : clock;
    }

    /** Text that compresses, but not to nothing. */
    byte[] filler(int size) {
        byte[] bytes = new byte[size];
        for (int i = 0; i < size; i++) {
            bytes[i] = (byte) ('a' + random.nextInt(6));
        }
        return bytes;
    }

    static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    record Sent(ProducerRecord<byte[], byte[]> record, Future<RecordMetadata> metadata, String outcome) {}
}
