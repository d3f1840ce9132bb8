package flusspy.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The options of reads and writes: those of the query, over those of its catalog, over those of the session.
 *
 * All keys are in lower case, as Spark passes those of queries. Options that begin with two underscores are for the Python
 * reader and not for users.
 */
public class QueryOptions {
    public static final String SESSION_PREFIX = "spark.sql.fluss.";
    /** The names of the options that were set for the session or the catalog and not for this query. */
    public static final String DEFAULTS = "__defaults";
    /** Set if no other query will use the Python reader, which accepts filters only then. */
    public static final String OWN_SCAN = "__own_scan";
    /** The value of OWN_SCAN for a stream, or for a scan with one more column, for stored messages (ColumnarReads). */
    public static final String STORED = "stored";
    /** The value of OWN_SCAN for a scan that returns numbers of rows instead of rows. */
    public static final String COUNT = "count";
    /** All columns of the DataFrame as JSON; a query may need only some of them, or none. */
    public static final String DECLARED = "__declared_schema";

    private QueryOptions() {
    }

    /** The options of a query over those of the session. */
    static CaseInsensitiveStringMap overSession(CaseInsensitiveStringMap query) {
        return new CaseInsensitiveStringMap(over(ofSession(), query));
    }

    /** The options of a query over the defaults, with DEFAULTS for those that the query did not set. */
    static Map<String, String> over(Map<String, String> defaults, Map<String, String> query) {
        Map<String, String> all = new HashMap<String, String>(defaults);
        all.keySet().removeAll(query.keySet());
        List<String> names = new ArrayList<String>(all.keySet());
        Object earlier = query.get(DEFAULTS);
        if (earlier != null) {
            names.add((String) earlier);
        }
        all.putAll(query);
        all.put(DEFAULTS, String.join(",", names));
        return all;
    }

    static CaseInsensitiveStringMap with(CaseInsensitiveStringMap options, String key, String value) {
        Map<String, String> all = new HashMap<String, String>(options);
        all.put(key, value);
        return new CaseInsensitiveStringMap(all);
    }

    /** The options of the active session as they are now. */
    static Map<String, String> ofSession() {
        Map<String, String> options = new HashMap<String, String>();
        scala.collection.Iterator<?> settings = SparkSession.active().conf().getAll().iterator();
        while (settings.hasNext()) {
            scala.Tuple2<?, ?> setting = (scala.Tuple2<?, ?>) settings.next();
            String option = optionOf((String) setting._1());
            if (option != null) {
                options.put(option, (String) setting._2());
            }
        }
        return options;
    }

    /** The option that a setting of the session is for; null if it is for none of ours. */
    static String optionOf(String setting) {
        return setting.startsWith(SESSION_PREFIX)
            ? setting.substring(SESSION_PREFIX.length()).toLowerCase(Locale.ROOT)
            : null;
    }
}
