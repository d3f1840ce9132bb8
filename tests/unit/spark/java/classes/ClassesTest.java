package flusspy.spark;

import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/** What compilers leave to the moment when a method is called. */
final class ClassesTest {
    /** Janino makes no bridge methods for parameters: what implements a generic interface for javac may not for Java. */
    void testNoClassLacksAMethodOfItsInterfaces() throws Exception {
        TreeSet<String> missing = new TreeSet<>();
        for (Class<?> each : classes()) {
            if (!Modifier.isAbstract(each.getModifiers())) {
                for (Method method : each.getMethods()) {
                    if (Modifier.isAbstract(method.getModifiers())) {
                        missing.add(each.getName() + ": " + method);
                    }
                }
            }
        }
        Checks.equal(new TreeSet<String>(), missing);
    }

    void testAllClassesAreLookedAt() throws Exception {
        List<String> names = classes().stream().map(Class::getSimpleName).collect(Collectors.toList());
        Checks.isTrue(names.containsAll(List.of("FlussCatalog", "DirectWriter", "ColumnarReader")), names.toString());
    }

    private static List<Class<?>> classes() throws Exception {
        Path folder = Path.of(FlussCatalog.class.getProtectionDomain().getCodeSource().getLocation().toURI());
        List<Class<?>> found = new java.util.ArrayList<>();
        try (Stream<Path> files = Files.list(folder.resolve("flusspy/spark"))) {
            for (Path file : (Iterable<Path>) files::iterator) {
                String name = file.getFileName().toString().replace(".class", "");
                found.add(Class.forName("flusspy.spark." + name, false, ClassesTest.class.getClassLoader()));
            }
        }
        return found;
    }
}
