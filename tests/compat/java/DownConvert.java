import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.Base64;
import org.apache.kafka.common.errors.UnsupportedCompressionTypeException;
import org.apache.kafka.common.record.MemoryRecords;
import org.apache.kafka.common.utils.Time;

/**
 * Converts batches to older message formats with the code of Kafka 3.9, the last that has it. Reads
 * lines "MAGIC FIRST_OFFSET BASE64" and prints the base64 of each message set, or "unsupported".
 *
 * <p>Usage: java DownConvert.java
 */
public class DownConvert {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            ByteBuffer batches = ByteBuffer.wrap(Base64.getDecoder().decode(words[2]));
            try {
                ByteBuffer converted = MemoryRecords.readableRecords(batches)
                    .downConvert(Byte.parseByte(words[0]), Long.parseLong(words[1]), Time.SYSTEM)
                    .records()
                    .buffer();
                byte[] bytes = new byte[converted.remaining()];
                converted.get(bytes);
                System.out.println(Base64.getEncoder().encodeToString(bytes));
            } catch (UnsupportedCompressionTypeException refused) {
                System.out.println("unsupported");
            }
        }
    }
}
