import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.RecordBatch;

/**
 * Writes segments of the message formats v0 and v1 with Kafka's own code, since no broker that is
 * still published for KRaft writes them: DIRECTORY/v{0,1}-{codec}-0/00000000000000000000.log, and one
 * JSON line for each record in them.
 *
 * <p>Usage: java WriteOldFormats.java FOLDER
 */
public class WriteOldFormats {
    static final ObjectMapper JSON = new ObjectMapper();
    static final long FIRST_TIMESTAMP = 1_400_000_000_000L;
    static final List<CompressionType> CODECS =
        List.of(CompressionType.NONE, CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4);

    public static void main(String[] args) throws Exception {
        for (byte magic : new byte[] {RecordBatch.MAGIC_VALUE_V0, RecordBatch.MAGIC_VALUE_V1}) {
            for (CompressionType codec : CODECS) {
                write(Path.of(args[0]), "v" + magic + "-" + codec.name, magic, codec, TimestampType.CREATE_TIME);
            }
        }
        byte v1 = RecordBatch.MAGIC_VALUE_V1;
        write(Path.of(args[0]), "v1-append-time", v1, CompressionType.GZIP, TimestampType.LOG_APPEND_TIME);
    }

    static void write(Path root, String topic, byte magic, CompressionType codec, TimestampType type)
            throws Exception {
        Path directory = Files.createDirectories(root.resolve(topic + "-0"));
        Path file = directory.resolve("00000000000000000000.log");
        try (FileChannel channel =
                FileChannel.open(file, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
            long offset = 0;
            for (int size : new int[] {1, 10, 100}) {
                long appended = FIRST_TIMESTAMP + offset;
                MemoryRecordsBuilder builder = MemoryRecords.builder(
                    ByteBuffer.allocate(64 * 1024), magic, Compression.of(codec).build(), type, offset, appended);
                for (int i = 0; i < size; i++, offset++) {
                    byte[] key = offset % 3 == 0 ? null : utf8("key-" + offset);
                    byte[] value = offset % 10 == 9 ? null : utf8("value of the record " + offset);
                    long created = FIRST_TIMESTAMP + 1_000 * offset;
                    boolean stamped = type == TimestampType.LOG_APPEND_TIME;
                    long timestamp = magic == 0 ? RecordBatch.NO_TIMESTAMP : stamped ? appended : created;
                    builder.append(magic == 0 ? RecordBatch.NO_TIMESTAMP : created, key, value);
                    print(topic, offset, timestamp, key, value);
                }
                ByteBuffer bytes = builder.build().buffer();
                while (bytes.hasRemaining()) {
                    channel.write(bytes);
                }
            }
        }
    }

    static void print(String topic, long offset, long timestamp, byte[] key, byte[] value) throws Exception {
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("topic", topic);
        line.put("partition", 0);
        line.put("offset", offset);
        line.put("timestamp", timestamp);
        line.put("key", key);
        line.put("value", value);
        line.put("headers", List.of());
        line.put("outcome", "plain");
        System.out.println(JSON.writeValueAsString(line));
    }

    static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
