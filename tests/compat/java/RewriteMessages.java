import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.Arrays;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;

/**
 * Reads messages with Kafka's own classes and writes them again.
 *
 * <p>One line in: NAME VERSION HEX. One line out: `same`, `unknown` for a message or version that
 * this Kafka does not have, or what went wrong.
 */
public class RewriteMessages {
    static final String[] NAMES = {
        "org.apache.kafka.common.message.%sData",
        "org.apache.kafka.common.message.%s",
        "org.apache.kafka.coordinator.group.generated.%s",
        "org.apache.kafka.coordinator.transaction.generated.%s",
        "org.apache.kafka.coordinator.share.generated.%s",
        "org.apache.kafka.common.metadata.%s",
    };

    public static void main(String[] args) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ", -1);
            System.out.println(rewrite(words[0], Short.parseShort(words[1]), HexFormat.of().parseHex(words[2])));
        }
    }

    static String rewrite(String name, short version, byte[] bytes) throws Exception {
        Message message = make(name);
        if (message == null || version < message.lowestSupportedVersion() || version > message.highestSupportedVersion()) {
            return "unknown";
        }
        try {
            ByteBufferAccessor in = new ByteBufferAccessor(ByteBuffer.wrap(bytes));
            message.read(in, version);
            ObjectSerializationCache cache = new ObjectSerializationCache();
            ByteBuffer out = ByteBuffer.allocate(message.size(cache, version));
            message.write(new ByteBufferAccessor(out), cache, version);
            return in.remaining() == 0 && Arrays.equals(out.array(), bytes)
                ? "same"
                : "read as " + message + " and written as " + HexFormat.of().formatHex(out.array());
        } catch (RuntimeException refused) {
            return "refused: " + refused;
        }
    }

    static Message make(String name) throws Exception {
        for (String pattern : NAMES) {
            try {
                return (Message) Class.forName(String.format(pattern, name)).getDeclaredConstructor().newInstance();
            } catch (ClassNotFoundException elsewhere) {
                continue;
            }
        }
        return null;
    }
}
