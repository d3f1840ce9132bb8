package flusspy.spark;

import java.util.Objects;

/** Assertions. */
final class Checks {
    private Checks() {
    }

    /** Code that may throw. */
    interface Code {
        void run() throws Exception;
    }

    static void equal(Object expected, Object found) {
        if (!Objects.deepEquals(expected, found)) {
            throw new AssertionError("expected " + expected + ", found " + found);
        }
    }

    static void isTrue(boolean holds, String otherwise) {
        if (!holds) {
            throw new AssertionError(otherwise);
        }
    }

    /** The message of the exception of that type that the code throws. */
    static String refused(Class<? extends Exception> type, Code code) {
        try {
            code.run();
        } catch (Exception error) {
            if (type.isInstance(error)) {
                return String.valueOf(error.getMessage());
            }
            throw new AssertionError("expected " + type.getName(), error);
        }
        throw new AssertionError("expected " + type.getName() + ", nothing was thrown");
    }
}
