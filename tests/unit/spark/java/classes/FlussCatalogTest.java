package flusspy.spark;

import java.io.UncheckedIOException;
import java.util.ArrayDeque;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.analysis.NamespaceAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.NonEmptyNamespaceException;
import org.apache.spark.sql.catalyst.analysis.PartitionsAlreadyExistException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.SupportsPartitionManagement;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.catalog.TableInfo;
import org.apache.spark.sql.connector.expressions.Expressions;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/** The catalog without a session: a function of Java answers instead of Python. */
final class FlussCatalogTest {
    private static final Identifier TABLE = Identifier.of(new String[] {"db"}, "t");
    private static final String[] DB = {"db"};
    private static final Transform[] NO_PARTITIONS = {};
    private static final String LOADED = """
        {"result": {"schema": %s, "properties": {"k": "v"}, "partitioned_by": ["day"], "has_partitions": %s}}""";
    private static final StructType SCHEMA = new StructType().add("id", DataTypes.LongType).add("day", DataTypes.StringType);

    private final Deque<Map<?, ?>> requests = new ArrayDeque<>();
    private final Deque<String> answers = new ArrayDeque<>();
    private final FlussCatalog catalog = new FlussCatalog(new PythonCalls() {
        @Override
        Map<String, String> options() {
            return new HashMap<>(Map.of("bootstrap.servers", "host:1"));
        }
    });

    FlussCatalogTest() {
        catalog.initialize("fl", new CaseInsensitiveStringMap(Map.of()));
        catalog.answerWith(request -> {
            try {
                requests.add(new ObjectMapper().readValue(request, Map.class));
            } catch (java.io.IOException error) {
                throw new UncheckedIOException(error);
            }
            return answers.remove();
        });
    }

    private void answer(String... json) {
        answers.addAll(List.of(json));
    }

    private static String error(int code) {
        return "{\"error\": \"no\", \"code\": " + code + "}";
    }

    private static String loaded(boolean hasPartitions) throws Exception {
        return LOADED.formatted(new ObjectMapper().writeValueAsString(SCHEMA.json()), hasPartitions);
    }

    /** The next request, without the options that all have. */
    private Map<?, ?> request() {
        Map<?, ?> request = new HashMap<>(requests.remove());
        Checks.equal(Map.of("bootstrap.servers", "host:1"), request.remove("options"));
        return request;
    }

    void testListTables() throws Exception {
        answer("{\"result\": [\"a\", \"b\"]}", error(4));
        Identifier[] expected = {Identifier.of(DB, "a"), Identifier.of(DB, "b")};
        Checks.equal(expected, catalog.listTables(DB));
        Checks.equal(Map.of("call", "list_tables", "database", "db"), request());
        Checks.refused(NoSuchNamespaceException.class, () -> catalog.listTables(DB));
    }

    void testLoadTable() throws Exception {
        answer(loaded(false), loaded(true), error(7), error(4), error(1));
        Table table = catalog.loadTable(TABLE);
        Checks.equal(Map.of("call", "load_table", "table", "db.t"), request());
        Checks.equal("fl.db.t", table.name());
        Checks.equal(Map.of("k", "v"), table.properties());
        Checks.equal(SCHEMA, CatalogV2Util.v2ColumnsToStructType(table.columns()));
        Checks.equal(new Transform[] {Expressions.identity("day")}, table.partitioning());
        Checks.isTrue(!(table instanceof SupportsPartitionManagement), "no partitions");
        Checks.isTrue(catalog.loadTable(TABLE) instanceof SupportsPartitionManagement, "partitions");
        Checks.refused(NoSuchTableException.class, () -> catalog.loadTable(TABLE));
        Checks.refused(NoSuchTableException.class, () -> catalog.loadTable(TABLE));
        Checks.equal("no", Checks.refused(UnsupportedOperationException.class, () -> catalog.loadTable(TABLE)));
    }

    private Table create() throws Exception {
        Column[] columns = CatalogV2Util.structTypeToV2Columns(SCHEMA, true);
        TableInfo info = new TableInfo.Builder().withColumns(columns)
            .withPartitions(new Transform[] {Expressions.identity("day")}).withProperties(Map.of("p", "1")).build();
        return catalog.createTable(TABLE, info);
    }

    void testCreateTable() throws Exception {
        answer("{\"result\": null}", loaded(false), error(8), error(4));
        Checks.equal("fl.db.t", create().name());
        Map<?, ?> request = request();
        Checks.equal(SCHEMA, DataType.fromJson((String) request.remove("schema")));
        Map<String, Object> rest = Map.of(
            "call", "create_table", "table", "db.t", "partitioned_by", List.of("day"), "properties", Map.of("p", "1"));
        Checks.equal(rest, request);
        Checks.refused(TableAlreadyExistsException.class, this::create);
        Checks.refused(NoSuchNamespaceException.class, this::create);
    }

    void testATableIsCreatedForItsRowsAndDroppedWithoutThem() throws Exception {
        answer("{\"result\": null}", loaded(false), "{\"result\": null}", error(8));
        TableInfo info = new TableInfo.Builder().withColumns(CatalogV2Util.structTypeToV2Columns(SCHEMA, true))
            .withPartitions(NO_PARTITIONS).withProperties(Map.of()).build();
        StagedTable staged = catalog.stageCreateOrReplace(TABLE, info);
        requests.clear();
        staged.commitStagedChanges();
        Checks.equal(0, requests.size());
        staged.abortStagedChanges();
        Checks.equal(Map.of("call", "drop_table", "table", "db.t"), request());
        String said = Checks.refused(
            UnsupportedOperationException.class, () -> catalog.stageCreateOrReplace(TABLE, info));
        Checks.isTrue(said.startsWith("table db.t exists, and tables are not replaced"), said);
        Checks.refused(UnsupportedOperationException.class, () -> catalog.stageReplace(TABLE, info));
    }

    void testAlterTable() throws Exception {
        answer("{\"result\": null}", loaded(false), error(7));
        TableChange[] changes = {
            TableChange.addColumn(new String[] {"n"}, DataTypes.LongType, true, "a number"),
            TableChange.setProperty("a", "1"),
            TableChange.removeProperty("b"),
        };
        catalog.alterTable(TABLE, changes);
        Map<?, ?> request = request();
        StructType added = (StructType) DataType.fromJson((String) request.remove("add_columns"));
        Checks.equal("a number", added.apply("n").getComment().get());
        Map<String, Object> rest = Map.of("call", "alter_table", "table", "db.t", "set_properties", Map.of("a", "1"),
            "unset_properties", List.of("b"));
        Checks.equal(rest, request);
        Checks.refused(NoSuchTableException.class, () -> catalog.alterTable(TABLE, TableChange.removeProperty("b")));
    }

    void testDropTable() {
        answer("{\"result\": null}", error(7), error(4), error(1));
        Checks.equal(true, catalog.dropTable(TABLE));
        Checks.equal(false, catalog.dropTable(TABLE));
        Checks.equal(false, catalog.dropTable(TABLE));
        Checks.refused(UnsupportedOperationException.class, () -> catalog.dropTable(TABLE));
    }

    void testDatabases() throws Exception {
        answer("{\"result\": [\"db\", \"e\"]}", "{\"result\": {\"k\": \"v\"}}", error(4));
        Checks.equal(new String[][] {{"db"}, {"e"}}, catalog.listNamespaces(new String[0]));
        Checks.equal(Map.of("call", "list_databases"), request());
        Checks.equal(Map.of("k", "v"), catalog.loadNamespaceMetadata(DB));
        Checks.refused(NoSuchNamespaceException.class, () -> catalog.listNamespaces(DB));
        Checks.refused(NoSuchNamespaceException.class, () -> catalog.loadNamespaceMetadata(new String[] {"a", "b"}));
    }

    void testChangesOfDatabases() throws Exception {
        answer("{\"result\": null}", error(6), "{\"result\": null}", error(4), "{\"result\": null}", error(4), error(5));
        catalog.createNamespace(DB, Map.of("k", "v"));
        Checks.equal(Map.of("call", "create_database", "database", "db", "properties", Map.of("k", "v")), request());
        Checks.refused(NamespaceAlreadyExistsException.class, () -> catalog.createNamespace(DB, Map.of()));
        requests.clear();
        catalog.alterNamespace(DB, NamespaceChange.setProperty("a", "1"), NamespaceChange.removeProperty("b"));
        Map<String, Object> altered = Map.of("call", "alter_database", "database", "db", "set_properties",
            Map.of("a", "1"), "unset_properties", List.of("b"));
        Checks.equal(altered, request());
        Checks.refused(NoSuchNamespaceException.class, () -> catalog.alterNamespace(DB));
        requests.clear();
        Checks.equal(true, catalog.dropNamespace(DB, true));
        Checks.equal(Map.of("call", "drop_database", "database", "db", "cascade", true), request());
        Checks.refused(NoSuchNamespaceException.class, () -> catalog.dropNamespace(DB, false));
        Checks.refused(NonEmptyNamespaceException.class, () -> catalog.dropNamespace(DB, false));
    }

    void testPartitions() throws Exception {
        answer(loaded(true), "{\"result\": [[\"x\"], [\"y\"]]}", "{\"result\": null}", error(42),
            "{\"result\": null}", error(36), error(1));
        SupportsPartitionManagement table = (SupportsPartitionManagement) catalog.loadTable(TABLE);
        requests.clear();
        Checks.equal(new StructType().add("day", DataTypes.StringType), table.partitionSchema());
        InternalRow none = new GenericInternalRow(new Object[0]);
        InternalRow[] found = table.listPartitionIdentifiers(new String[0], none);
        Checks.equal(Map.of("call", "list_partitions", "table", "db.t", "values", Map.of()), request());
        Checks.equal(2, found.length);
        Checks.equal("y", found[1].getUTF8String(0).toString());
        table.createPartition(found[0], Map.of());
        Checks.equal(Map.of("call", "create_partition", "table", "db.t", "values", Map.of("day", "x")), request());
        Checks.refused(PartitionsAlreadyExistException.class, () -> table.createPartition(found[0], Map.of()));
        String said = Checks.refused(
            UnsupportedOperationException.class, () -> table.createPartition(found[0], Map.of("location", "/tmp")));
        Checks.isTrue(said.endsWith("leave out location"), said);
        requests.clear();
        Checks.equal(true, table.dropPartition(found[1]));
        Checks.equal(Map.of("call", "drop_partition", "table", "db.t", "values", Map.of("day", "y")), request());
        Checks.equal(false, table.dropPartition(found[1]));
        Checks.refused(UnsupportedOperationException.class, () -> table.dropPartition(found[1]));
    }

    void testPaths() {
        Checks.equal("db.t", FlussCatalog.path(Identifier.of(new String[] {"db"}, "t")));
        Checks.equal("fluss.t$changelog", FlussCatalog.path(Identifier.of(new String[0], "t$changelog")));
        String said = Checks.refused(
            UnsupportedOperationException.class, () -> FlussCatalog.path(Identifier.of(new String[] {"a", "b"}, "t")));
        Checks.equal("databases are not nested, got a.b", said);
    }

    void testPartitionColumns() {
        Transform[] plain = {Expressions.identity("day"), Expressions.identity("hour")};
        Checks.equal(List.of("day", "hour"), FlussCatalog.identityColumns(plain));
        Transform[] days = {Expressions.days("at")};
        String said = Checks.refused(UnsupportedOperationException.class, () -> FlussCatalog.identityColumns(days));
        Checks.equal("tables are partitioned by columns, not by days(at)", said);
    }

    void testChangesThatTablesDoNotHave() {
        TableChange[] changes = {
            TableChange.deleteColumn(new String[] {"id"}, false),
            TableChange.addColumn(new String[] {"row", "id"}, DataTypes.LongType),
            TableChange.addColumn(
                new String[] {"id"}, DataTypes.LongType, true, "comment", TableChange.ColumnPosition.first(), null),
        };
        String[] expected = {"DeleteColumn", "column row.id cannot be added there", "column id cannot be added there"};
        for (int i = 0; i < changes.length; i++) {
            TableChange change = changes[i];
            String said = Checks.refused(UnsupportedOperationException.class, () -> catalog.alterTable(TABLE, change));
            Checks.isTrue(said.contains(expected[i]), said);
        }
    }
}
