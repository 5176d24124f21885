import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;

/**
 * Runs kafka-dump-log of whichever release is on the class path, once for each line on stdin: its arguments with tabs between them. Where the
 * tool fails it prints a line that begins with "!! ", and goes on.
 */
public final class DumpedSegments {
    private DumpedSegments() { }

    public static void main(String[] arguments) throws Exception {
        Method dump = method();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                dump.invoke(null, (Object) line.split("\t"));
            } catch (InvocationTargetException failure) {
                System.out.println("\n!! " + failure.getCause());
            }
        }
        System.out.flush();
    }

    /** Of releases before 4.3 the class is in the core. Its main does not end the process. */
    private static Method method() throws Exception {
        Class<?> tool;
        try {
            tool = Class.forName("org.apache.kafka.tools.DumpLogSegments");
        } catch (ClassNotFoundException absent) {
            tool = Class.forName("kafka.tools.DumpLogSegments");
        }
        return tool.getMethod("main", String[].class);
    }
}
