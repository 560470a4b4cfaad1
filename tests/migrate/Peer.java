import io.debezium.engine.ChangeEvent;
import io.debezium.engine.DebeziumEngine;
import io.debezium.engine.format.Json;
import java.io.FileReader;
import java.util.Properties;

/** Runs a connector until the standard input ends, and prints the key and value of each record. */
public class Peer {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        try (FileReader file = new FileReader(arguments[0])) {
            properties.load(file);
        }
        DebeziumEngine<ChangeEvent<String, String>> engine = DebeziumEngine.create(Json.class)
            .using(properties)
            .notifying(record -> System.out.println(record.key() + " " + record.value()))
            .build();
        Thread thread = new Thread(engine);
        thread.start();
        while (System.in.read() >= 0) {
        }
        engine.close();
        thread.join();
    }
}
