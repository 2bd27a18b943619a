import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.net.URL;
import java.net.URLClassLoader;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.common.utils.Exit;

import static java.nio.charset.StandardCharsets.UTF_8;

/**
 * Runs Kafka's command-line tools one after the other in this JVM, because starting a JVM is expensive.
 *
 * <p>Usage: java RunTools.java LOG4J2_PROPERTIES. Each line on stdin is a job: {"main": class,
 * "args": [...], "stdin": text, "timeout_ms": n}. Each response on stdout is a line: {"exit":
 * status, or null after a timeout, "out": text, "err": text}.
 *
 * <p>A tool runs as in a process of its own: its classes are loaded for it, it has its own streams,
 * and when it exits, its shutdown hooks run and later output is ignored.
 */
public class RunTools {
    static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] args) throws Exception {
        System.setProperty("log4j2.configurationFile", args[0]);
        BufferedReader jobs = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        PrintStream responses = System.out;
        for (String line = jobs.readLine(); line != null; line = jobs.readLine()) {
            responses.println(JSON.writeValueAsString(new Job(JSON.readTree(line)).run()));
            responses.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    /**
     * Stores the output of all threads of one tool. A tool that ends before it closes its client
     * leaves threads behind, which log errors for long; their output is ignored.
     */
    static class OwnOutput extends ByteArrayOutputStream {
        final ThreadGroup threads;

        OwnOutput(ThreadGroup threads) {
            this.threads = threads;
        }

        boolean isOwnThread() {
            return threads.parentOf(Thread.currentThread().getThreadGroup());
        }

        @Override
        public void write(int octet) {
            if (isOwnThread()) {
                super.write(octet);
            }
        }

        @Override
        public void write(byte[] bytes, int from, int length) {
            if (isOwnThread()) {
                super.write(bytes, from, length);
            }
        }
    }

    /** Thrown when a tool exits, so that its resources are closed while the stack unwinds. */
    static class Exited extends Error {
        Exited() {
            super(null, null, false, false);
        }
    }

    static class Job {
        final JsonNode request;
        final ThreadGroup threads = new ThreadGroup("tool");
        final OwnOutput out = new OwnOutput(threads);
        final OwnOutput err = new OwnOutput(threads);
        final List<Runnable> hooks = new ArrayList<>();
        Integer status;
        String printed;
        String complaints;

        Job(JsonNode request) {
            this.request = request;
        }

        Map<String, Object> run() throws Exception {
            PrintStream stdout = System.out;
            PrintStream stderr = System.err;
            System.setIn(new ByteArrayInputStream(request.path("stdin").asText().getBytes(UTF_8)));
            System.setOut(new PrintStream(out, true, UTF_8));
            System.setErr(new PrintStream(err, true, UTF_8));
            Exit.setExitProcedure((code, message) -> leave(code));
            Exit.setHaltProcedure((code, message) -> leave(code));
            Exit.setShutdownHookAdder((name, hook) -> hooks.add(hook));
            FutureTask<Void> work = new FutureTask<>(this::work, null);
            Thread thread = new Thread(threads, work, "main");
            thread.setDaemon(true);
            thread.start();
            Map<String, Object> response = new HashMap<>();
            try {
                work.get(request.path("timeout_ms").asLong(), TimeUnit.MILLISECONDS);
                response.put("exit", status);
            } catch (TimeoutException late) {
                response.put("exit", null);
            } finally {
                System.setOut(stdout);
                System.setErr(stderr);
            }
            response.put("out", printed == null ? out.toString(UTF_8) : printed);
            response.put("err", complaints == null ? err.toString(UTF_8) : complaints);
            return response;
        }

        void work() {
            try (URLClassLoader tools = new ToolLoader()) {
                Thread.currentThread().setContextClassLoader(tools);
                call(tools.loadClass(request.path("main").asText()));
                hooks.forEach(Runnable::run);
            } catch (Exception wrong) {
                wrong.printStackTrace();
                end(1);
            }
            end(0);
        }

        void call(Class<?> tool) throws ReflectiveOperationException {
            List<String> args = new ArrayList<>();
            request.path("args").forEach(arg -> args.add(arg.asText()));
            Object array = args.toArray(new String[0]);
            try {
                tool.getMethod("main", String[].class).invoke(null, array);
            } catch (InvocationTargetException thrown) {
                if (!(thrown.getCause() instanceof Exited)) {
                    thrown.getCause().printStackTrace();
                    status = status == null ? 1 : status;
                }
            }
        }

        /**
         * The first status counts: a tool that catches its own exit may exit once more, and print the
         * exception. The output of shutdown hooks is part of the result, though.
         */
        void leave(int code) {
            if (status == null) {
                status = code;
                if (hooks.isEmpty()) {
                    end(code);
                }
            }
            throw new Exited();
        }

        void end(int code) {
            if (status == null) {
                status = code;
            }
            if (printed == null) {
                printed = out.toString(UTF_8);
                complaints = err.toString(UTF_8);
            }
        }
    }

    /** Loads the tools' own classes for every job, because they have static state; shares the rest. */
    static class ToolLoader extends URLClassLoader {
        static final String PACKAGE = "org.apache.kafka.tools.";

        ToolLoader() throws Exception {
            super(new URL[] {jarOf(PACKAGE + "TopicCommand")}, RunTools.class.getClassLoader());
        }

        static URL jarOf(String name) throws ClassNotFoundException {
            return Class.forName(name).getProtectionDomain().getCodeSource().getLocation();
        }

        boolean hasClass(String name) {
            return findResource(name.replace('.', '/') + ".class") != null;
        }

        @Override
        protected Class<?> loadClass(String name, boolean resolve) throws ClassNotFoundException {
            synchronized (getClassLoadingLock(name)) {
                Class<?> loaded = findLoadedClass(name);
                if (loaded == null && name.startsWith(PACKAGE) && hasClass(name)) {
                    loaded = findClass(name);
                }
                return loaded == null ? super.loadClass(name, resolve) : loaded;
            }
        }
    }
}
