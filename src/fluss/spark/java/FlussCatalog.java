package flusspy.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.spark.sql.SparkSession;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.NamespaceAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.NonEmptyNamespaceException;
import org.apache.spark.sql.catalyst.analysis.PartitionsAlreadyExistException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.SupportsPartitionManagement;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.SupportsWrite;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.expressions.Expressions;
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
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Tables of a cluster by three-part names, and format("fluss") itself, around Spark's own classes for Python sources.
 *
 * Compiled when it is first used, by the Janino compiler that Spark brings along: no lambdas, no diamonds. What it knows
 * about tables and databases it asks the Python program of the driver (fluss.spark.catalog): a text of JSON goes over,
 * another comes back.
 */
public class FlussCatalog implements StagingTableCatalog, SupportsNamespaces {
    static final String FORMAT = "fluss";
    static final String SESSION_PREFIX = "spark.sql.fluss.";
    static final String DEFAULT_DATABASE = "fluss";
    /** Where the driver's Python program is found: sessions of streaming queries load this class anew. */
    static final String PYTHON = "flusspy.spark.catalog.python";
    /** Tells the Python reader that no other query will use it: only then does it take filters. */
    static final String OWN_SCAN = "__own_scan";
    /** The value of OWN_SCAN for a scan with a column for messages behind the others (ColumnarReads), or a stream. */
    static final String STORED = "stored";
    /** The value of OWN_SCAN for a scan that gives numbers of rows instead of rows. */
    static final String COUNT = "count";
    /** Tells the Python reader all columns of the DataFrame, of which a query may need some or none. */
    static final String DECLARED = "__declared_schema";
    /** Tells the Python source which options are not of this query but of the session or the catalog. */
    static final String DEFAULTS = "__defaults";
    /** Of the environment of Python processes; Spark gives them their values wherever it starts one. */
    static final String[] STREAM_VARIABLES = {
        "SPARK_LOCAL_DIRS", "SPARK_AUTH_SOCKET_TIMEOUT", "SPARK_BUFFER_SIZE", "SPARK_PYTHON_RUNTIME"
    };
    static final int DATABASE_NOT_EXIST = 4;
    static final int DATABASE_NOT_EMPTY = 5;
    static final int DATABASE_ALREADY_EXIST = 6;
    static final int TABLE_NOT_EXIST = 7;
    static final int TABLE_ALREADY_EXIST = 8;
    static final int PARTITION_NOT_EXISTS = 36;
    static final int PARTITION_ALREADY_EXISTS = 42;

    private String name;
    private Map options;

    public void initialize(String name, CaseInsensitiveStringMap options) {
        this.name = name;
        this.options = new HashMap(options); // keys in lower case
    }

    public String name() {
        return name;
    }

    public String[] defaultNamespace() {
        return new String[] {DEFAULT_DATABASE};
    }

    /** Keep the function that answers for Python, for all sessions of this process. */
    public void answerWith(java.util.function.Function python) {
        System.getProperties().put(PYTHON, python);
    }

    // ---- tables ----

    public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
        Map answer = ask("list_tables", request("database", database(namespace)));
        if (code(answer) == DATABASE_NOT_EXIST) {
            throw new NoSuchNamespaceException(namespace);
        }
        List names = (List) result(answer);
        Identifier[] found = new Identifier[names.size()];
        for (int i = 0; i < found.length; i++) {
            found[i] = Identifier.of(namespace, (String) names.get(i));
        }
        return found;
    }

    public Table loadTable(Identifier identifier) throws NoSuchTableException {
        Map answer = ask("load_table", request("table", path(identifier)));
        if (code(answer) == TABLE_NOT_EXIST || code(answer) == DATABASE_NOT_EXIST) {
            throw new NoSuchTableException(identifier);
        }
        Map table = (Map) result(answer);
        StructType schema = (StructType) DataType.fromJson((String) table.get("schema"));
        Map properties = (Map) table.get("properties");
        List partitionColumns = (List) table.get("partitioned_by");
        if (((Boolean) table.get("has_partitions")).booleanValue()) {
            return new PartitionedTable(this, path(identifier), schema, properties, partitionColumns);
        }
        return new FlussTable(this, path(identifier), schema, properties, partitionColumns);
    }

    public Table createTable(Identifier identifier, Column[] columns, Transform[] partitions, Map properties)
            throws TableAlreadyExistsException, NoSuchNamespaceException {
        Map request = request("table", path(identifier));
        request.put("schema", CatalogV2Util.v2ColumnsToStructType(columns).json());
        request.put("partitioned_by", identityColumns(partitions));
        request.put("properties", properties);
        Map answer = ask("create_table", request);
        if (code(answer) == TABLE_ALREADY_EXIST) {
            throw new TableAlreadyExistsException(identifier);
        }
        if (code(answer) == DATABASE_NOT_EXIST) {
            throw new NoSuchNamespaceException(identifier.namespace());
        }
        result(answer);
        try {
            return loadTable(identifier);
        } catch (NoSuchTableException gone) {
            throw new IllegalStateException("table " + path(identifier) + " was dropped while it was created");
        }
    }

    /** CREATE TABLE AS SELECT: the table is there at once, and is dropped if its rows cannot be written. */
    public StagedTable stageCreate(Identifier identifier, Column[] columns, Transform[] partitions, Map properties)
            throws TableAlreadyExistsException, NoSuchNamespaceException {
        return new NewTable(identifier, (FlussTable) createTable(identifier, columns, partitions, properties));
    }

    /** Left to itself, Spark drops the old table first: its rows would be gone if the rest failed. */
    public StagedTable stageReplace(Identifier identifier, Column[] columns, Transform[] partitions, Map properties) {
        throw replaced(identifier);
    }

    public StagedTable stageCreateOrReplace(Identifier identifier, Column[] columns, Transform[] partitions, Map properties)
            throws NoSuchNamespaceException {
        try {
            return stageCreate(identifier, columns, partitions, properties);
        } catch (TableAlreadyExistsException there) {
            throw replaced(identifier);
        }
    }

    private static UnsupportedOperationException replaced(Identifier identifier) {
        return new UnsupportedOperationException("table " + path(identifier)
            + " is there, and tables are not replaced or overwritten: write with mode('append'), or drop it first");
    }

    public Table alterTable(Identifier identifier, TableChange[] changes) throws NoSuchTableException {
        StructType added = new StructType();
        Map set = new HashMap();
        List unset = new ArrayList();
        for (int i = 0; i < changes.length; i++) {
            if (changes[i] instanceof TableChange.AddColumn) {
                TableChange.AddColumn change = (TableChange.AddColumn) changes[i];
                if (change.fieldNames().length != 1 || change.position() != null) {
                    throw new UnsupportedOperationException("columns are added at the end of the table, not inside it");
                }
                added = added.add(field(change));
            } else if (changes[i] instanceof TableChange.SetProperty) {
                set.put(((TableChange.SetProperty) changes[i]).property(), ((TableChange.SetProperty) changes[i]).value());
            } else if (changes[i] instanceof TableChange.RemoveProperty) {
                unset.add(((TableChange.RemoveProperty) changes[i]).property());
            } else {
                throw new UnsupportedOperationException(
                    "tables can get new columns and properties, not " + changes[i].getClass().getSimpleName());
            }
        }
        Map request = request("table", path(identifier));
        request.put("add_columns", added.length() == 0 ? null : added.json());
        request.put("set_properties", set);
        request.put("unset_properties", unset);
        Map answer = ask("alter_table", request);
        if (code(answer) == TABLE_NOT_EXIST) {
            throw new NoSuchTableException(identifier);
        }
        result(answer);
        return loadTable(identifier);
    }

    private static StructField field(TableChange.AddColumn change) {
        StructField field = new StructField(
            change.fieldNames()[0], change.dataType(), change.isNullable(), org.apache.spark.sql.types.Metadata.empty());
        return change.comment() == null ? field : field.withComment(change.comment());
    }

    public boolean dropTable(Identifier identifier) {
        Map answer = ask("drop_table", request("table", path(identifier)));
        if (code(answer) == TABLE_NOT_EXIST || code(answer) == DATABASE_NOT_EXIST) {
            return false;
        }
        result(answer);
        return true;
    }

    public void renameTable(Identifier from, Identifier to) {
        throw new UnsupportedOperationException("tables cannot be renamed");
    }

    // ---- databases ----

    public String[][] listNamespaces() {
        List names = (List) result(ask("list_databases", new HashMap()));
        String[][] found = new String[names.size()][];
        for (int i = 0; i < found.length; i++) {
            found[i] = new String[] {(String) names.get(i)};
        }
        return found;
    }

    public String[][] listNamespaces(String[] namespace) throws NoSuchNamespaceException {
        if (namespace.length == 0) {
            return listNamespaces();
        }
        loadNamespaceMetadata(namespace);
        return new String[0][];
    }

    public Map loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
        if (namespace.length != 1) {
            throw new NoSuchNamespaceException(namespace);
        }
        Map answer = ask("load_database", request("database", namespace[0]));
        if (code(answer) == DATABASE_NOT_EXIST) {
            throw new NoSuchNamespaceException(namespace);
        }
        return (Map) result(answer);
    }

    public void createNamespace(String[] namespace, Map metadata) throws NamespaceAlreadyExistsException {
        Map request = request("database", database(namespace));
        request.put("properties", metadata);
        Map answer = ask("create_database", request);
        if (code(answer) == DATABASE_ALREADY_EXIST) {
            throw new NamespaceAlreadyExistsException(namespace);
        }
        result(answer);
    }

    public void alterNamespace(String[] namespace, NamespaceChange[] changes) throws NoSuchNamespaceException {
        Map set = new HashMap();
        List unset = new ArrayList();
        for (int i = 0; i < changes.length; i++) {
            if (changes[i] instanceof NamespaceChange.SetProperty) {
                NamespaceChange.SetProperty change = (NamespaceChange.SetProperty) changes[i];
                set.put(change.property(), change.value());
            } else {
                unset.add(((NamespaceChange.RemoveProperty) changes[i]).property());
            }
        }
        Map request = request("database", database(namespace));
        request.put("set_properties", set);
        request.put("unset_properties", unset);
        Map answer = ask("alter_database", request);
        if (code(answer) == DATABASE_NOT_EXIST) {
            throw new NoSuchNamespaceException(namespace);
        }
        result(answer);
    }

    public boolean dropNamespace(String[] namespace, boolean cascade)
            throws NoSuchNamespaceException, NonEmptyNamespaceException {
        Map request = request("database", database(namespace));
        request.put("cascade", Boolean.valueOf(cascade));
        Map answer = ask("drop_database", request);
        if (code(answer) == DATABASE_NOT_EXIST) {
            throw new NoSuchNamespaceException(namespace);
        }
        if (code(answer) == DATABASE_NOT_EMPTY) {
            throw new NonEmptyNamespaceException(namespace);
        }
        result(answer);
        return true;
    }

    // ---- inside ----

    /** What is said closer to the query wins: the session, then the catalog, then the query. */
    CaseInsensitiveStringMap options(Map ofQuery, String table) {
        Map all = over(merged(), ofQuery);
        all.put("table", table);
        return new CaseInsensitiveStringMap(all);
    }

    private Map merged() {
        Map result = new HashMap(ofSession());
        result.putAll(options);
        return result;
    }

    /** Options of a read or write over those of the session. */
    static CaseInsensitiveStringMap withSession(CaseInsensitiveStringMap given) {
        return new CaseInsensitiveStringMap(over(ofSession(), given));
    }

    /** What is said of one query over what is said for all, with a note which is which; keys in lower case. */
    private static Map over(Map defaults, Map said) {
        Map all = new HashMap(defaults);
        all.keySet().removeAll(said.keySet());
        List names = new ArrayList(all.keySet());
        if (said.get(DEFAULTS) != null) {
            names.add(said.get(DEFAULTS));
        }
        all.putAll(said);
        all.put(DEFAULTS, String.join(",", names));
        return all;
    }

    /** What the session says for all tables, as it is now; keys in lower case, as Spark gives those of queries. */
    private static Map ofSession() {
        Map result = new HashMap();
        scala.collection.Iterator settings = SparkSession.active().conf().getAll().iterator();
        while (settings.hasNext()) {
            scala.Tuple2 setting = (scala.Tuple2) settings.next();
            String key = (String) setting._1();
            if (key.startsWith(SESSION_PREFIX)) {
                result.put(key.substring(SESSION_PREFIX.length()).toLowerCase(), setting._2());
            }
        }
        return result;
    }

    /**
     * The Python source for one scan or write.
     *
     * Spark keeps the environment of the source's processes once for all queries, in a map for one thread, and streams put
     * these variables into it when they start. If two did that at the same moment for the first time, the map would be
     * spoiled, and every later query would end with "Task not serializable". So they are there before.
     */
    static PythonDataSourceV2 newSource() {
        PythonDataSourceV2 source = new PythonDataSourceV2();
        source.setShortName(FORMAT);
        Map environment = source.source().dataSourceCls().envVars();
        synchronized (environment) {
            for (int i = 0; i < STREAM_VARIABLES.length; i++) {
                environment.putIfAbsent(STREAM_VARIABLES[i], "");
            }
        }
        return source;
    }

    private static String database(String[] namespace) {
        if (namespace.length > 1) {
            throw new UnsupportedOperationException("databases are not nested: " + String.join(".", namespace));
        }
        return namespace.length == 0 ? DEFAULT_DATABASE : namespace[0];
    }

    private static String path(Identifier identifier) {
        return database(identifier.namespace()) + "." + identifier.name();
    }

    private static List identityColumns(Transform[] partitions) {
        List columns = new ArrayList();
        for (int i = 0; i < partitions.length; i++) {
            if (!partitions[i].name().equals("identity")) {
                throw new UnsupportedOperationException("tables are partitioned by columns, not by " + partitions[i]);
            }
            columns.add(String.join(".", partitions[i].references()[0].fieldNames()));
        }
        return columns;
    }

    private static Map request(String key, Object value) {
        Map request = new HashMap();
        request.put(key, value);
        return request;
    }

    private Map ask(String call, Map request) {
        java.util.function.Function python = (java.util.function.Function) System.getProperties().get(PYTHON);
        if (python == null) {
            throw new IllegalStateException("the catalog is not registered: call fluss.spark.catalog.register(spark, ...)");
        }
        request.put("call", call);
        request.put("options", merged());
        try {
            ObjectMapper mapper = new ObjectMapper();
            return (Map) mapper.readValue((String) python.apply(mapper.writeValueAsString(request)), Map.class);
        } catch (java.io.IOException unreadable) {
            throw new IllegalStateException("the catalog's Python program gave no answer to " + call, unreadable);
        }
    }

    private static int code(Map answer) {
        return answer.get("error") == null ? 0 : ((Number) answer.get("code")).intValue();
    }

    private static Object result(Map answer) {
        if (answer.get("error") != null) {
            throw new UnsupportedOperationException((String) answer.get("error"));
        }
        return answer.get("result");
    }

    /** One table; reads and writes are those of the Python source. */
    public static class FlussTable implements Table, SupportsRead, SupportsWrite {
        final FlussCatalog catalog;
        final String path;
        final StructType schema;
        final Map properties;
        final List partitionColumns;

        FlussTable(FlussCatalog catalog, String path, StructType schema, Map properties, List partitionColumns) {
            this.catalog = catalog;
            this.path = path;
            this.schema = schema;
            this.properties = properties;
            this.partitionColumns = partitionColumns;
        }

        public String name() {
            return catalog.name() + "." + path;
        }

        public StructType schema() {
            return schema;
        }

        public Map properties() {
            return properties;
        }

        public Transform[] partitioning() {
            Transform[] transforms = new Transform[partitionColumns.size()];
            for (int i = 0; i < transforms.length; i++) {
                transforms[i] = Expressions.identity((String) partitionColumns.get(i));
            }
            return transforms;
        }

        public Set capabilities() {
            return new PythonTable(newSource(), FORMAT, schema).capabilities();
        }

        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
            String mode = options.get("mode");
            if (mode != null && !mode.equalsIgnoreCase("state")) {
                throw new UnsupportedOperationException("option mode=" + mode + " would change the columns of " + name()
                    + ", which are fixed by then: read `" + path + "$" + mode + "`, or use format('fluss')");
            }
            if (options.containsKey("columns")) {
                throw new UnsupportedOperationException("option columns does not go with " + name() + ": select the columns");
            }
            return new PruningScanBuilder(schema, catalog.options(options, path));
        }

        public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
            CaseInsensitiveStringMap options = catalog.options(info.options(), path);
            return new ArrowWrites.Builder(newSource(), FORMAT, new WriteInfo(info, options));
        }
    }

    /**
     * A table whose partitions can be listed, added and dropped; for other tables Spark says that they cannot.
     *
     * Servers make and drop one partition at a time. So this is not Spark's interface for several of them, which promises
     * all or nothing, and Spark refuses statements with several.
     */
    public static class PartitionedTable extends FlussTable implements SupportsPartitionManagement {
        PartitionedTable(FlussCatalog catalog, String path, StructType schema, Map properties, List partitionColumns) {
            super(catalog, path, schema, properties, partitionColumns);
        }

        public StructType partitionSchema() {
            StructType columns = new StructType();
            for (int i = 0; i < partitionColumns.size(); i++) {
                columns = columns.add(schema.fields()[schema.fieldIndex((String) partitionColumns.get(i))]);
            }
            return columns;
        }

        public InternalRow[] listPartitionIdentifiers(String[] names, InternalRow values) {
            StructType columns = partitionSchema();
            List found = (List) result(catalog.ask("list_partitions", partitionRequest(names, values)));
            InternalRow[] rows = new InternalRow[found.size()];
            for (int i = 0; i < rows.length; i++) {
                rows[i] = PartitionValues.fromJson(columns, (List) found.get(i));
            }
            return rows;
        }

        public void createPartition(InternalRow values, Map properties) throws PartitionsAlreadyExistException {
            if (!properties.isEmpty()) {
                throw new UnsupportedOperationException("partitions are where their servers keep them, and have no properties: "
                    + "leave out " + String.join(", ", properties.keySet()));
            }
            StructType columns = partitionSchema();
            Map answer = catalog.ask("create_partition", partitionRequest(columns.fieldNames(), values));
            if (code(answer) == PARTITION_ALREADY_EXISTS) {
                throw new PartitionsAlreadyExistException(name(), values, columns);
            }
            result(answer);
        }

        /** Whether there was one: Spark looks before, and says it to the user. */
        public boolean dropPartition(InternalRow values) {
            Map answer = catalog.ask("drop_partition", partitionRequest(partitionSchema().fieldNames(), values));
            if (code(answer) == PARTITION_NOT_EXISTS) {
                return false;
            }
            result(answer);
            return true;
        }

        private Map partitionRequest(String[] names, InternalRow values) {
            Map request = request("table", path);
            request.put("values", PartitionValues.toJson(partitionSchema(), names, values));
            return request;
        }

        public boolean purgePartition(InternalRow values) {
            throw new UnsupportedOperationException("dropped partitions are gone at once, into no trash: leave PURGE out");
        }

        public boolean truncatePartition(InternalRow values) {
            throw new UnsupportedOperationException("partitions are not truncated: drop the partition and add it again");
        }

        public boolean renamePartition(InternalRow from, InternalRow to) {
            throw new UnsupportedOperationException(
                "partitions cannot be renamed: their values are those of their rows, which are not rewritten");
        }

        public void replacePartitionMetadata(InternalRow values, Map properties) {
            throw new UnsupportedOperationException("partitions have no properties");
        }

        /** None, for statements that describe a partition. */
        public Map loadPartitionMetadata(InternalRow values) {
            return new HashMap();
        }
    }

    /** A table that the same statement writes its first rows to. */
    public static class NewTable extends FlussTable implements StagedTable {
        private final Identifier identifier;

        NewTable(Identifier identifier, FlussTable created) {
            super(created.catalog, created.path, created.schema, created.properties, created.partitionColumns);
            this.identifier = identifier;
        }

        /** Spark asks for a replacement of what is there, which is nothing. */
        public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
            CaseInsensitiveStringMap options = catalog.options(info.options(), path);
            return new ArrowWrites.Builder(newSource(), FORMAT, new WriteInfo(info, options)) {
                public WriteBuilder truncate() {
                    return this;
                }
            };
        }

        public void commitStagedChanges() {
        }

        public void abortStagedChanges() {
            catalog.dropTable(identifier);
        }
    }

    /**
     * format("fluss") where this class is loaded: what Spark does for Python sources, with a scan of its own per query.
     *
     * Spark keeps the planned reader of a Python source with the DataFrame, filters included, and gives it to the next
     * query of the same DataFrame or view, which may have other filters or none.
     */
    public static class Source extends PythonDataSourceV2 implements DataSourceRegister {
        public String shortName() {
            return FORMAT;
        }

        public StructType inferSchema(CaseInsensitiveStringMap options) {
            return super.inferSchema(withSession(options));
        }

        public Table getTable(StructType schema, Transform[] partitioning, Map properties) {
            return new SourceTable(this, schema);
        }
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
            return new PruningScanBuilder(columns, PruningScanBuilder.with(withSession(options), DECLARED, columns.json()));
        }

        public WriteBuilder newWriteBuilder(LogicalWriteInfo info) {
            return new ArrowWrites.Builder(source, FORMAT, new WriteInfo(info, withSession(info.options())));
        }
    }

    /**
     * Gives the Python reader only the columns that a query needs.
     *
     * Spark offers the filters first and the columns afterwards, but a Python reader is planned with its columns. So the
     * filters are tried on a reader of all columns, and given again to the one of the needed columns. A filter that the
     * source applies by itself needs its columns there too, even if the query has no further use for them.
     *
     * A query for nothing but COUNT(*) of all rows gets a reader of numbers of rows (fluss.spark.read.count_reader).
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
        private boolean counts = false;

        PruningScanBuilder(StructType schema, CaseInsensitiveStringMap options) {
            this.schema = schema;
            this.options = with(options, OWN_SCAN, STORED);
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

        /** Spark adds the numbers up; there may be one for all rows or one for each task. */
        public boolean supportCompletePushDown(Aggregation aggregation) {
            return false;
        }

        /** Spark offers none when it has filters to apply itself; with filters that the source took, it is declined. */
        public boolean pushAggregation(Aggregation aggregation) {
            counts = offered.length == 0
                && aggregation.groupByExpressions().length == 0
                && aggregation.aggregateExpressions().length == 1
                && aggregation.aggregateExpressions()[0] instanceof CountStar;
            return counts;
        }

        public void pruneColumns(StructType required) {
            this.required = required;
        }

        public Scan build() {
            if (counts) {
                StructType numbers = new StructType().add("count(*)", DataTypes.LongType, false);
                return new PythonScanBuilder(newSource(), FORMAT, numbers, with(options, OWN_SCAN, COUNT)).build();
            }
            StructType pruned = pruned();
            if (pruned.length() == schema.length()) {
                return new ColumnarReads.ColumnarScan(source, FORMAT, schema, options, builder.pushedFilters());
            }
            PythonDataSourceV2 narrowSource = newSource();
            PythonScanBuilder narrow = new PythonScanBuilder(narrowSource, FORMAT, ColumnarReads.withMessages(pruned), options);
            if (offered.length > 0) {
                Filter[] leftNow = narrow.pushFilters(offered);
                for (int i = 0; i < leftNow.length; i++) {
                    if (!contains(left, leftNow[i])) {
                        throw new IllegalStateException("a filter was taken for all columns but not for some: " + leftNow[i]);
                    }
                }
            }
            return new ColumnarReads.ColumnarScan(narrowSource, FORMAT, pruned, options, narrow.pushedFilters());
        }

        /** Whole columns of the table, in its order; at least one, since rows without columns cannot be counted. */
        private StructType pruned() {
            if (required == null) {
                return schema;
            }
            Set names = new LinkedHashSet();
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

        static CaseInsensitiveStringMap with(CaseInsensitiveStringMap options, String key, String value) {
            Map all = new HashMap(options);
            all.put(key, value);
            return new CaseInsensitiveStringMap(all);
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

    /** What Spark says about a write, with the options of the catalog among those of the write. */
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
