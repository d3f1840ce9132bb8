package flusspy.spark;

import java.util.HashSet;
import java.util.Map;
import java.util.Set;

import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation;
import org.apache.spark.sql.connector.expressions.aggregate.CountStar;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownAggregates;
import org.apache.spark.sql.connector.read.SupportsPushDownFilters;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.write.LogicalWriteInfo;
import org.apache.spark.sql.connector.write.WriteBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder;
import org.apache.spark.sql.execution.datasources.v2.python.PythonTable;
import org.apache.spark.sql.sources.DataSourceRegister;
import org.apache.spark.sql.sources.Filter;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * format("fluss") in sessions that have loaded this class: Spark's class for Python sources, with a scan for every query.
 *
 * Spark keeps the planned reader of a Python source with the DataFrame, filters included, and gives it to the next query of
 * the same DataFrame or view, which may have other filters or none.
 */
public class FlussSource extends PythonDataSourceV2 implements DataSourceRegister {
    public static final String FORMAT = "fluss";
    /** Variables that streams add to the environment of Python processes; Spark sets them whenever it starts one. */
    static final String[] STREAM_VARIABLES = {
        "SPARK_LOCAL_DIRS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_PYTHON_RUNTIME"
    };

    public String shortName() {
        return FORMAT;
    }

    public StructType inferSchema(CaseInsensitiveStringMap options) {
        return super.inferSchema(QueryOptions.overSession(options));
    }

    public Table getTable(StructType schema, Transform[] partitioning, Map<String, String> properties) {
        return new SourceTable(this, schema);
    }

    /**
     * A Python source for one scan or write.
     *
     * Spark keeps the environment of the source's processes once for all queries, in a map that is not thread-safe, and
     * streams add STREAM_VARIABLES to it when they start. Two streams that did so at the same time would corrupt the map,
     * and every later query would fail with "Task not serializable". So the variables are added here, before any stream
     * starts.
     */
    static PythonDataSourceV2 newSource() {
        PythonDataSourceV2 source = new PythonDataSourceV2();
        source.setShortName(FORMAT);
        Map<String, String> environment = source.source().dataSourceCls().envVars();
        synchronized (environment) {
            for (int i = 0; i < STREAM_VARIABLES.length; i++) {
                environment.putIfAbsent(STREAM_VARIABLES[i], "");
            }
        }
        return source;
    }

    /** The table of one DataFrame or view. */
    public static class SourceTable extends PythonTable {
        private final PythonDataSourceV2 source;
        private final StructType columns;

        SourceTable(PythonDataSourceV2 source, StructType columns) {
            super(source, FORMAT, columns);
            this.source = source;
            this.columns = columns;
        }

        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
            CaseInsensitiveStringMap all = QueryOptions.overSession(options);
            return new PruningScanBuilder(columns, QueryOptions.with(all, QueryOptions.DECLARED, columns.json()));
        }

        public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
            return new ArrowWrites.Builder(source, FORMAT, new WriteInfo(info, QueryOptions.overSession(info.options())));
        }
    }

    /**
     * Gives the Python reader only the columns that a query needs.
     *
     * Spark offers the filters first and the columns afterwards, but a Python reader is planned with its columns. So the
     * filters are tried on a reader of all columns, and given again to the reader of the needed columns. A filter that the
     * source applies needs its columns there too, even if the query does not.
     *
     * A query for nothing but COUNT(*) of all rows gets a reader of row counts (fluss.spark.read.count_reader).
     */
    public static class PruningScanBuilder
            implements SupportsPushDownFilters, SupportsPushDownAggregates, SupportsPushDownRequiredColumns {
        private final StructType schema;
        private final CaseInsensitiveStringMap options;
        private final PythonDataSourceV2 source = newSource();
        private final PythonScanBuilder builder;
        private Filter[] offered = new Filter[0];
        private Filter[] left = new Filter[0];
        private StructType required;
        private boolean countsRows = false;

        PruningScanBuilder(StructType schema, CaseInsensitiveStringMap options) {
            this.schema = schema;
            this.options = QueryOptions.with(options, QueryOptions.OWN_SCAN, QueryOptions.STORED);
            this.builder = new PythonScanBuilder(source, FORMAT, ColumnarReads.withMessages(schema), this.options);
        }

        public Filter[] pushFilters(Filter[] filters) {
            offered = filters;
            left = builder.pushFilters(filters);
            return left;
        }

        public Filter[] pushedFilters() {
            return builder.pushedFilters();
        }

        /** False, so that Spark adds the counts up: there may be one for all rows or one for each task. */
        public boolean supportCompletePushDown(Aggregation aggregation) {
            return false;
        }

        /** Accept a single COUNT(*) without filters; Spark does not call this if it applies filters itself. */
        public boolean pushAggregation(Aggregation aggregation) {
            countsRows = offered.length == 0
                && aggregation.groupByExpressions().length == 0
                && aggregation.aggregateExpressions().length == 1
                && aggregation.aggregateExpressions()[0] instanceof CountStar;
            return countsRows;
        }

        public void pruneColumns(StructType required) {
            this.required = required;
        }

        public Scan build() {
            if (countsRows) {
                StructType counts = new StructType().add("count(*)", DataTypes.LongType, false);
                CaseInsensitiveStringMap counting = QueryOptions.with(options, QueryOptions.OWN_SCAN, QueryOptions.COUNT);
                return new PythonScanBuilder(newSource(), FORMAT, counts, counting).build();
            }
            StructType pruned = pruned();
            if (pruned.length() == schema.length()) {
                return new ColumnarReads.ColumnarScan(source, FORMAT, schema, options, builder.pushedFilters());
            }
            PythonDataSourceV2 narrowSource = newSource();
            StructType read = ColumnarReads.withMessages(pruned);
            PythonScanBuilder narrow = new PythonScanBuilder(narrowSource, FORMAT, read, options);
            if (offered.length > 0) {
                Filter[] leftNow = narrow.pushFilters(offered);
                for (int i = 0; i < leftNow.length; i++) {
                    if (!contains(left, leftNow[i])) {
                        throw new IllegalStateException(
                            "filter " + leftNow[i] + " was accepted with all columns, but not with some");
                    }
                }
            }
            return new ColumnarReads.ColumnarScan(narrowSource, FORMAT, pruned, options, narrow.pushedFilters());
        }

        /** The columns to read, in the order of the table; at least one, since rows without columns cannot be counted. */
        private StructType pruned() {
            if (required == null) {
                return schema;
            }
            Set<String> names = new HashSet<String>();
            for (int i = 0; i < required.length(); i++) {
                names.add(required.fields()[i].name());
            }
            for (int i = 0; i < offered.length; i++) {
                if (!contains(left, offered[i])) {
                    String[][] references = offered[i].v2references();
                    for (int j = 0; j < references.length; j++) {
                        names.add(references[j][0]);
                    }
                }
            }
            StructType result = new StructType();
            StructField[] fields = schema.fields();
            StructField smallest = fields[0];
            for (int i = 0; i < fields.length; i++) {
                if (names.contains(fields[i].name())) {
                    result = result.add(fields[i]);
                }
                if (fields[i].dataType().defaultSize() < smallest.dataType().defaultSize()) {
                    smallest = fields[i];
                }
            }
            return result.length() == 0 ? result.add(smallest) : result;
        }

        private static boolean contains(Filter[] filters, Filter wanted) {
            for (int i = 0; i < filters.length; i++) {
                if (filters[i].equals(wanted)) {
                    return true;
                }
            }
            return false;
        }
    }

    /** Spark's description of a write, with the options of catalog and session added. */
    public static class WriteInfo implements LogicalWriteInfo {
        private final LogicalWriteInfo info;
        private final CaseInsensitiveStringMap options;

        WriteInfo(LogicalWriteInfo info, CaseInsensitiveStringMap options) {
            this.info = info;
            this.options = options;
        }

        public CaseInsensitiveStringMap options() {
            return options;
        }

        public String queryId() {
            return info.queryId();
        }

        public StructType schema() {
            return info.schema();
        }
    }
}
