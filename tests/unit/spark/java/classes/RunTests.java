package flusspy.spark;

import java.io.PrintWriter;
import java.io.StringWriter;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.ObjectMapper;

import org.codehaus.janino.SimpleCompiler;

/**
 * Runs the methods of test classes whose names begin with "test", and prints what failed as JSON.
 *
 * Arguments: the file for the outcomes, test classes, and after "--janino" a folder for classes and the sources to compile
 * into it before. That folder is on the class path.
 */
public final class RunTests {
    private RunTests() {
    }

    public static void main(String[] arguments) throws Exception {
        List<String> given = List.of(arguments);
        int end = given.contains("--janino") ? given.indexOf("--janino") : given.size();
        if (end < given.size()) {
            compile(Path.of(given.get(end + 1)), given.subList(end + 2, given.size()));
        }
        Map<String, String> outcomes = new LinkedHashMap<>();
        for (String name : given.subList(1, end)) {
            for (Method method : Class.forName("flusspy.spark." + name).getDeclaredMethods()) {
                if (method.getName().startsWith("test")) {
                    outcomes.put(name + "." + method.getName(), outcome(method));
                }
            }
        }
        Files.writeString(Path.of(given.get(0)), new ObjectMapper().writeValueAsString(outcomes));
    }

    /** The stack trace of a failure; an empty string for success. */
    private static String outcome(Method method) throws ReflectiveOperationException {
        Object test = method.getDeclaringClass().getDeclaredConstructor().newInstance();
        try {
            method.invoke(test);
            return "";
        } catch (InvocationTargetException failed) {
            StringWriter trace = new StringWriter();
            failed.getCause().printStackTrace(new PrintWriter(trace));
            return trace.toString();
        }
    }

    /** Compile the sources as fluss.spark.java.java_classes does. */
    private static void compile(Path folder, List<String> sources) throws Exception {
        ClassLoader loader = RunTests.class.getClassLoader();
        for (String source : sources) {
            SimpleCompiler compiler = new SimpleCompiler();
            compiler.setParentClassLoader(loader);
            compiler.setTargetVersion(8);
            compiler.cook(Files.readString(Path.of(source)));
            for (Map.Entry<String, byte[]> entry : compiler.getBytecodes().entrySet()) {
                Path file = folder.resolve(entry.getKey().replace('.', '/') + ".class");
                Files.createDirectories(file.getParent());
                Files.write(file, entry.getValue());
            }
            loader = compiler.getClassLoader();
        }
    }
}
