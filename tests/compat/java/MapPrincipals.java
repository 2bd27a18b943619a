import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.security.cert.CertificateFactory;
import java.security.cert.X509Certificate;
import java.util.Base64;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

/**
 * Names of certificates as Kafka sees them. Each line has fields in base64 between blanks:
 *
 * <pre>
 * SUBJECT certificate   prints the distinguished name, in base64
 * MAP rules name        prints the mapped name, in base64, or "ERROR"
 * </pre>
 */
public class MapPrincipals {
    public static void main(String[] arguments) throws Exception {
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        CertificateFactory certificates = CertificateFactory.getInstance("X.509");
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ", -1);
            if (words[0].equals("SUBJECT")) {
                X509Certificate certificate = (X509Certificate) certificates.generateCertificate(
                    new ByteArrayInputStream(Base64.getDecoder().decode(words[1])));
                print(certificate.getSubjectX500Principal().getName());
                continue;
            }
            try {
                print(SslPrincipalMapper.fromRules(text(words[1])).getName(text(words[2])));
            } catch (Exception error) {
                System.out.println("ERROR");
            }
        }
    }

    private static String text(String word) {
        return new String(Base64.getDecoder().decode(word), StandardCharsets.UTF_8);
    }

    private static void print(String text) {
        byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
        System.out.println(":" + Base64.getEncoder().encodeToString(bytes));
    }
}
