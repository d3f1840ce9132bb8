package flusspy.spark;

import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Set;

import org.apache.spark.sql.util.CaseInsensitiveStringMap;

final class QueryOptionsTest {
    void testTheQueryIsOverTheDefaults() {
        Map<String, String> all = QueryOptions.over(Map.of("a", "1", "b", "2", "c", "3"), Map.of("b", "9", "d", "4"));
        Checks.equal(Set.of("a", "c"), Set.of(all.remove(QueryOptions.DEFAULTS).split(",")));
        Checks.equal(Map.of("a", "1", "b", "9", "c", "3", "d", "4"), all);
    }

    void testDefaultsOfDefaults() {
        Map<String, String> catalog = QueryOptions.over(Map.of("a", "1"), Map.of("b", "2"));
        Map<String, String> all = QueryOptions.over(Map.of("c", "3"), catalog);
        Checks.equal(Set.of("a", "c"), Set.of(all.get(QueryOptions.DEFAULTS).split(",")));
        Checks.equal("", QueryOptions.over(Map.of(), Map.of("a", "1")).get(QueryOptions.DEFAULTS));
    }

    void testKeysOfQueriesHaveNoCase() {
        CaseInsensitiveStringMap query = new CaseInsensitiveStringMap(Map.of("startAt", "earliest"));
        Map<String, String> all = QueryOptions.over(new HashMap<>(Map.of("startat", "latest", "x", "y")), query);
        Checks.equal(Map.of("startat", "earliest", "x", "y", QueryOptions.DEFAULTS, "x"), all);
    }

    void testOneMoreOption() {
        CaseInsensitiveStringMap before = new CaseInsensitiveStringMap(Map.of("A", "1"));
        CaseInsensitiveStringMap after = QueryOptions.with(before, QueryOptions.OWN_SCAN, QueryOptions.COUNT);
        Checks.equal(Map.of("a", "1", "__own_scan", "count"), after.asCaseSensitiveMap());
        Checks.equal(1, before.size());
    }

    void testSettingsOfTheSession() {
        Checks.equal("bootstrap.servers", QueryOptions.optionOf("spark.sql.fluss.bootstrap.servers"));
        Checks.equal("startat", QueryOptions.optionOf("spark.sql.fluss.startAt"));
        Checks.equal(null, QueryOptions.optionOf("spark.sql.flussy"));
    }

    void testSettingsOfTheSessionInTurkish() {
        Locale before = Locale.getDefault();
        Locale.setDefault(new Locale("tr", "TR"));
        try {
            Checks.equal("maxbatchinterval", QueryOptions.optionOf("spark.sql.fluss.maxBatchInterval"));
            Checks.equal("timeinmillis", QueryOptions.optionOf("spark.sql.fluss.timeInMillis"));
        } finally {
            Locale.setDefault(before);
        }
    }
}
