package flusspy.spark;

import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.ObjectMapper;

final class PythonCallsTest {
    private static final String MISSING = "{\"error\": \"no table db.t\", \"code\": 7}";

    private static PythonCalls.Answer answered(String json) {
        PythonCalls.answerWith(request -> json);
        return PythonCalls.send("load_table", PythonCalls.request("table", "db.t"));
    }

    void testARequestIsJson() throws Exception {
        String[] seen = new String[1];
        PythonCalls.answerWith(request -> {
            seen[0] = request;
            return "{\"result\": null}";
        });
        Map<String, Object> request = PythonCalls.request("table", "db.t");
        request.put("unset_properties", List.of("ä"));
        Checks.equal(null, PythonCalls.send("load_table", request).result());
        Checks.equal(Map.of("table", "db.t", "unset_properties", List.of("ä")), new ObjectMapper().readValue(seen[0], Map.class));
    }

    void testResults() {
        Checks.equal(0, answered("{\"result\": 1}").code());
        Checks.equal(new String[] {"b", "a"}, answered("{\"result\": [\"b\", \"a\"]}").strings());
        Object properties = answered("{\"result\": {\"k\": \"v\", \"none\": null}}").result();
        Map<String, String> found = PythonCalls.asStringMap(properties);
        Checks.equal("v", found.get("k"));
        Checks.isTrue(found.containsKey("none") && found.get("none") == null, found.toString());
    }

    void testErrors() {
        PythonCalls.Answer answer = answered(MISSING);
        Checks.equal(PythonCalls.TABLE_NOT_EXIST, answer.code());
        Checks.equal("no table db.t", Checks.refused(UnsupportedOperationException.class, answer::result));
    }

    void testAnAnswerThatIsNoJson() {
        String message = Checks.refused(IllegalStateException.class, () -> answered("Traceback"));
        Checks.equal("the catalog's Python program returned no JSON for load_table", message);
    }

    void testAnUnregisteredCatalog() {
        System.getProperties().remove(PythonCalls.PYTHON);
        String message = Checks.refused(
            IllegalStateException.class, () -> PythonCalls.send("load_table", PythonCalls.request("table", "db.t")));
        Checks.isTrue(message.contains("fluss.spark.catalog.register(spark, ...)"), message);
    }
}
