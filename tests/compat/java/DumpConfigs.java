import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Scanner;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigsOptions;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.QuotaConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.server.metrics.ClientMetricsConfigs;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Prints Kafka's own tables of settings, or the settings that a broker describes; tabs between the columns.
 *
 * <p>Without arguments: `TABLE NAME TYPE DEFAULT IMPORTANCE INTERNAL VALIDATOR MAY-BE-EMPTY` for the
 * settings of a table (the default is `\N` for null and `\-` where a value must be given),
 * `dynamic NAME MODE`, `security NAME` for what can change per listener only,
 * `synonyms TOPIC-SETTING BROKER-SETTING…` and `same NAME BROKER-SETTING…`.
 *
 * <p>With the address of a broker, lines of stdin are carried out. `create TOPIC`; `alter TYPE RESOURCE
 * NAME VALUE` and `try …` (which changes nothing) print the name of the error; `describe TYPE RESOURCE`
 * prints `entry NAME VALUE SOURCE SENSITIVE READ-ONLY TYPE` with name, value and source of each synonym
 * behind, and then `end`; `start NAME VALUE NAME VALUE…` prints whether a broker could have such a file.
 */
public class DumpConfigs {
    public static void main(String[] args) throws Exception {
        if (args.length > 0) {
            describe(args[0]);
            return;
        }
        table("broker", kafka.server.KafkaConfig.configDef());
        table("quota", QuotaConfig.brokerQuotaConfigs());
        table("topic", LogConfig.configDefCopy());
        table("group", GroupConfig.CONFIG_DEF);
        table("client-metrics", ClientMetricsConfigs.configDef());
        new TreeMap<>(DynamicBrokerConfig.dynamicConfigUpdateModes())
            .forEach((name, mode) -> print("dynamic", name, mode));
        new TreeSet<>(DynamicBrokerConfig.DYNAMIC_SECURITY_CONFIGS).forEach(name -> print("security", name));
        new TreeMap<>(ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS).forEach((name, synonyms) -> {
            List<String> line = new ArrayList<>(List.of("synonyms", name));
            synonyms.forEach(synonym -> line.add(synonym.name()));
            print(line.toArray(String[]::new));
        });
        new TreeMap<>(GroupConfig.ALL_GROUP_CONFIG_SYNONYMS)
            .forEach((name, synonym) -> synonym.ifPresent(broker -> print("synonyms", name, broker)));
        for (String name : kafka.server.KafkaConfig.configDef().names()) {
            List<String> line = new ArrayList<>(List.of("same", name));
            line.addAll(DynamicBrokerConfig.brokerConfigSynonyms(name, true));
            print(line.toArray(String[]::new));
        }
    }

    static void table(String table, ConfigDef settings) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(settings.configKeys()).values()) {
            String value = key.hasDefault() ? orNull(ConfigDef.convertToString(key.defaultValue, key.type)) : "\\-";
            print(table, key.name, key.type.name(), value, key.importance.name(),
                String.valueOf(key.internalConfig), String.valueOf(key.validator), mayBeEmpty(key));
        }
    }

    static String mayBeEmpty(ConfigDef.ConfigKey key) {
        if (key.type == ConfigDef.Type.LIST && key.validator != null) {
            try {
                key.validator.ensureValid(key.name, List.of());
            } catch (ConfigException refused) {
                return "false";
            }
        }
        return "true";
    }

    static void describe(String bootstrap) throws Exception {
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", bootstrap));
                Scanner lines = new Scanner(System.in)) {
            while (lines.hasNextLine()) {
                String[] words = lines.nextLine().split("\t", -1);
                switch (words[0]) {
                    case "create" -> admin.createTopics(List.of(new NewTopic(words[1], 1, (short) 1))).all().get();
                    case "start" -> System.out.println(start(words));
                    case "describe" -> describe(admin, resource(words));
                    default -> System.out.println(alter(admin, resource(words), words));
                }
            }
        }
    }

    static boolean start(String[] words) {
        Properties file = new Properties();
        for (int at = 1; at < words.length; at += 2) {
            file.put(words[at], words[at + 1]);
        }
        try {
            kafka.server.KafkaConfig.fromProps(file, false);
            return true;
        } catch (ConfigException | IllegalArgumentException refused) {
            return false;
        }
    }

    static ConfigResource resource(String[] words) {
        return new ConfigResource(ConfigResource.Type.valueOf(words[1]), words[2]);
    }

    static String alter(Admin admin, ConfigResource resource, String[] words) throws Exception {
        Collection<AlterConfigOp> change = List.of(
            new AlterConfigOp(new ConfigEntry(words[3], words[4]), AlterConfigOp.OpType.SET));
        AlterConfigsOptions options = new AlterConfigsOptions().validateOnly(words[0].equals("try"));
        try {
            admin.incrementalAlterConfigs(Map.of(resource, change), options).all().get();
            return "NONE";
        } catch (ExecutionException refused) {
            return Errors.forException(refused.getCause()).name();
        }
    }

    static void describe(Admin admin, ConfigResource resource) throws Exception {
        DescribeConfigsOptions options = new DescribeConfigsOptions().includeSynonyms(true);
        for (ConfigEntry entry : admin.describeConfigs(List.of(resource), options).all().get().get(resource).entries()) {
            List<String> line = new ArrayList<>(List.of("entry", entry.name(), orNull(entry.value()),
                entry.source().name(), String.valueOf(entry.isSensitive()), String.valueOf(entry.isReadOnly()),
                entry.type().name()));
            for (ConfigEntry.ConfigSynonym synonym : entry.synonyms()) {
                line.addAll(List.of(synonym.name(), orNull(synonym.value()), synonym.source().name()));
            }
            print(line.toArray(String[]::new));
        }
        print("end");
    }

    static String orNull(String text) {
        return text == null ? "\\N" : text;
    }

    static void print(String... words) {
        System.out.println(String.join("\t", words).replace("\n", " "));
    }
}
