package flusspy.spark;

import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The calls of a catalog to the Python program of the driver (fluss.spark.sql.catalog), and the options that go with them.
 *
 * Request and answer are JSON. A request has the name of the call, the options of catalog and session, and the arguments;
 * an answer has a result, or an error and its code.
 */
public class PythonCalls {
    /** The system property with Python's function; not a static field, because streaming queries load our classes again. */
    public static final String PYTHON = "flusspy.spark.catalog.python";
    public static final int DATABASE_NOT_EXIST = 4;
    public static final int DATABASE_NOT_EMPTY = 5;
    public static final int DATABASE_ALREADY_EXIST = 6;
    public static final int TABLE_NOT_EXIST = 7;
    public static final int TABLE_ALREADY_EXIST = 8;
    public static final int PARTITION_NOT_EXISTS = 36;
    public static final int PARTITION_ALREADY_EXISTS = 42;

    private String catalogName;
    private Map<String, String> catalogOptions;

    /** Set the catalog's name and options; called again when a catalog is registered again. */
    void initialize(String name, CaseInsensitiveStringMap options) {
        catalogName = name;
        catalogOptions = new HashMap<String, String>(options); // keys in lower case
    }

    String catalogName() {
        return catalogName;
    }

    /** The options of the catalog over those of the session. */
    Map<String, String> options() {
        Map<String, String> result = new HashMap<String, String>(QueryOptions.ofSession());
        result.putAll(catalogOptions);
        return result;
    }

    /** The options of a query of a table over those of the catalog and the session. */
    CaseInsensitiveStringMap options(Map<String, String> query, String table) {
        Map<String, String> all = QueryOptions.over(options(), query);
        all.put("table", table);
        return new CaseInsensitiveStringMap(all);
    }

    /** Set the Python function that answers, for all sessions of this process. */
    static void answerWith(Function<String, String> python) {
        System.getProperties().put(PYTHON, python);
    }

    static Map<String, Object> request(String key, Object value) {
        Map<String, Object> request = new HashMap<String, Object>();
        request.put(key, value);
        return request;
    }

    Answer ask(String call, Map<String, Object> request) {
        request.put("call", call);
        request.put("options", options());
        return send(call, request);
    }

    /** Send a complete request. */
    static Answer send(String call, Map<String, Object> request) {
        Function<String, ?> python = python();
        if (python == null) {
            throw new IllegalStateException("the catalog is not registered: call fluss.spark.catalog.register(spark, ...)");
        }
        try {
            ObjectMapper mapper = new ObjectMapper();
            String answer = (String) python.apply(mapper.writeValueAsString(request));
            return new Answer((Map<?, ?>) mapper.readValue(answer, Object.class));
        } catch (java.io.IOException unreadable) {
            throw new IllegalStateException("the catalog's Python program returned no JSON for " + call, unreadable);
        }
    }

    /** Drop a table; false if it does not exist. */
    boolean dropTable(String path) {
        Answer answer = ask("drop_table", request("table", path));
        if (answer.code() == TABLE_NOT_EXIST || answer.code() == DATABASE_NOT_EXIST) {
            return false;
        }
        answer.result();
        return true;
    }

    @SuppressWarnings("unchecked") // put there by answerWith
    private static Function<String, ?> python() {
        return (Function<String, ?>) System.getProperties().get(PYTHON);
    }

    /** The answer of Python to one call. */
    public static class Answer {
        private final Map<?, ?> fields;

        Answer(Map<?, ?> fields) {
            this.fields = fields;
        }

        /** The code of the error; 0 without an error. */
        int code() {
            return fields.get("error") == null ? 0 : ((Number) fields.get("code")).intValue();
        }

        /** The result; an exception for an error that the caller has not handled. */
        Object result() {
            if (fields.get("error") != null) {
                throw new UnsupportedOperationException((String) fields.get("error"));
            }
            return fields.get("result");
        }

        /** The result that is a list of strings. */
        String[] strings() {
            return asStrings(result());
        }
    }

    static String[] asStrings(Object list) {
        List<?> items = (List<?>) list;
        String[] strings = new String[items.size()];
        for (int i = 0; i < strings.length; i++) {
            strings[i] = (String) items.get(i);
        }
        return strings;
    }

    static Map<String, String> asStringMap(Object object) {
        Map<String, String> strings = new LinkedHashMap<String, String>();
        java.util.Iterator<?> entries = ((Map<?, ?>) object).entrySet().iterator();
        while (entries.hasNext()) {
            Map.Entry<?, ?> entry = (Map.Entry<?, ?>) entries.next();
            strings.put((String) entry.getKey(), (String) entry.getValue());
        }
        return strings;
    }
}
