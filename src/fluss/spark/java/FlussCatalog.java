package flusspy.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

import org.apache.spark.sql.catalyst.analysis.NamespaceAlreadyExistsException;
import org.apache.spark.sql.catalyst.analysis.NoSuchNamespaceException;
import org.apache.spark.sql.catalyst.analysis.NoSuchTableException;
import org.apache.spark.sql.catalyst.analysis.NonEmptyNamespaceException;
import org.apache.spark.sql.catalyst.analysis.TableAlreadyExistsException;
import org.apache.spark.sql.connector.catalog.CatalogV2Util;
import org.apache.spark.sql.connector.catalog.Column;
import org.apache.spark.sql.connector.catalog.Identifier;
import org.apache.spark.sql.connector.catalog.NamespaceChange;
import org.apache.spark.sql.connector.catalog.StagedTable;
import org.apache.spark.sql.connector.catalog.StagingTableCatalog;
import org.apache.spark.sql.connector.catalog.SupportsNamespaces;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableChange;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Metadata;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * The databases and tables of a cluster by three-part names.
 *
 * The catalog asks the Python program of the driver about them (PythonCalls). Errors that Spark has exceptions for are
 * recognised by their codes; all others keep their messages.
 */
public class FlussCatalog implements StagingTableCatalog, SupportsNamespaces {
    static final String DEFAULT_DATABASE = "fluss";

    private final PythonCalls python;

    public FlussCatalog() {
        this(new PythonCalls());
    }

    FlussCatalog(PythonCalls python) {
        this.python = python;
    }

    public void initialize(String name, CaseInsensitiveStringMap options) {
        python.initialize(name, options);
    }

    public String name() {
        return python.catalogName();
    }

    public String[] defaultNamespace() {
        return new String[] {DEFAULT_DATABASE};
    }

    /** Set the Python function that answers, for all sessions of this process; Python calls this. */
    public void answerWith(Function<String, String> answers) {
        PythonCalls.answerWith(answers);
    }

    // ---- tables ----

    public Identifier[] listTables(String[] namespace) throws NoSuchNamespaceException {
        PythonCalls.Answer answer = python.ask("list_tables", PythonCalls.request("database", database(namespace)));
        if (answer.code() == PythonCalls.DATABASE_NOT_EXIST) {
            throw new NoSuchNamespaceException(namespace);
        }
        String[] names = answer.strings();
        Identifier[] found = new Identifier[names.length];
        for (int i = 0; i < found.length; i++) {
            found[i] = Identifier.of(namespace, names[i]);
        }
        return found;
    }

    public Table loadTable(Identifier identifier) throws NoSuchTableException {
        PythonCalls.Answer answer = python.ask("load_table", PythonCalls.request("table", path(identifier)));
        if (answer.code() == PythonCalls.TABLE_NOT_EXIST || answer.code() == PythonCalls.DATABASE_NOT_EXIST) {
            throw new NoSuchTableException(identifier);
        }
        Map<?, ?> table = (Map<?, ?>) answer.result();
        StructType schema = (StructType) DataType.fromJson((String) table.get("schema"));
        Map<String, String> properties = PythonCalls.asStringMap(table.get("properties"));
        String[] partitionColumns = PythonCalls.asStrings(table.get("partitioned_by"));
        if (((Boolean) table.get("has_partitions")).booleanValue()) {
            return new FlussTables.PartitionedTable(python, path(identifier), schema, properties, partitionColumns);
        }
        return new FlussTables.FlussTable(python, path(identifier), schema, properties, partitionColumns);
    }

    @SuppressWarnings("deprecation") // Spark calls the newer method with a TableInfo, whose default is to call this one
    public Table createTable(
            Identifier identifier, Column[] columns, Transform[] partitions, Map<String, String> properties)
            throws TableAlreadyExistsException, NoSuchNamespaceException {
        Map<String, Object> request = PythonCalls.request("table", path(identifier));
        request.put("schema", CatalogV2Util.v2ColumnsToStructType(columns).json());
        request.put("partitioned_by", identityColumns(partitions));
        request.put("properties", properties);
        PythonCalls.Answer answer = python.ask("create_table", request);
        if (answer.code() == PythonCalls.TABLE_ALREADY_EXIST) {
            throw new TableAlreadyExistsException(identifier);
        }
        if (answer.code() == PythonCalls.DATABASE_NOT_EXIST) {
            throw new NoSuchNamespaceException(identifier.namespace());
        }
        answer.result();
        try {
            return loadTable(identifier);
        } catch (NoSuchTableException gone) {
            throw new IllegalStateException("table " + path(identifier) + " was dropped while it was created");
        }
    }

    /** CREATE TABLE AS SELECT: the table is created at once, and dropped if its rows cannot be written. */
    @SuppressWarnings("deprecation") // Spark calls the newer method with a TableInfo, whose default is to call this one
    public StagedTable stageCreate(
            Identifier identifier, Column[] columns, Transform[] partitions, Map<String, String> properties)
            throws TableAlreadyExistsException, NoSuchNamespaceException {
        Table created = createTable(identifier, columns, partitions, properties);
        return new FlussTables.NewTable((FlussTables.FlussTable) created);
    }

    /** Refused: by default Spark drops the old table first, so that its rows would be lost if the rest failed. */
    @SuppressWarnings("deprecation") // Spark calls the newer method with a TableInfo, whose default is to call this one
    public StagedTable stageReplace(
            Identifier identifier, Column[] columns, Transform[] partitions, Map<String, String> properties) {
        throw notReplaced(identifier);
    }

    @SuppressWarnings("deprecation") // Spark calls the newer method with a TableInfo, whose default is to call this one
    public StagedTable stageCreateOrReplace(
            Identifier identifier, Column[] columns, Transform[] partitions, Map<String, String> properties)
            throws NoSuchNamespaceException {
        try {
            return stageCreate(identifier, columns, partitions, properties);
        } catch (TableAlreadyExistsException exists) {
            throw notReplaced(identifier);
        }
    }

    private static UnsupportedOperationException notReplaced(Identifier identifier) {
        return new UnsupportedOperationException("table " + path(identifier)
            + " exists, and tables are not replaced or overwritten: write with mode('append'), or drop it first");
    }

    public Table alterTable(Identifier identifier, TableChange... changes) throws NoSuchTableException {
        StructType added = new StructType();
        Map<String, String> set = new HashMap<String, String>();
        List<String> unset = new ArrayList<String>();
        for (int i = 0; i < changes.length; i++) {
            if (changes[i] instanceof TableChange.AddColumn) {
                TableChange.AddColumn change = (TableChange.AddColumn) changes[i];
                if (change.fieldNames().length != 1 || change.position() != null) {
                    throw new UnsupportedOperationException("column " + String.join(".", change.fieldNames())
                        + " cannot be added there: new columns go to the end of the table, not inside a column");
                }
                added = added.add(field(change));
            } else if (changes[i] instanceof TableChange.SetProperty) {
                TableChange.SetProperty change = (TableChange.SetProperty) changes[i];
                set.put(change.property(), change.value());
            } else if (changes[i] instanceof TableChange.RemoveProperty) {
                unset.add(((TableChange.RemoveProperty) changes[i]).property());
            } else {
                throw new UnsupportedOperationException(
                    "new columns can be added to tables, and properties set or removed, not "
                    + changes[i].getClass().getSimpleName());
            }
        }
        Map<String, Object> request = PythonCalls.request("table", path(identifier));
        request.put("add_columns", added.length() == 0 ? null : added.json());
        request.put("set_properties", set);
        request.put("unset_properties", unset);
        PythonCalls.Answer answer = python.ask("alter_table", request);
        if (answer.code() == PythonCalls.TABLE_NOT_EXIST) {
            throw new NoSuchTableException(identifier);
        }
        answer.result();
        return loadTable(identifier);
    }

    private static StructField field(TableChange.AddColumn change) {
        StructField field = new StructField(
            change.fieldNames()[0], change.dataType(), change.isNullable(), Metadata.empty());
        return change.comment() == null ? field : field.withComment(change.comment());
    }

    public boolean dropTable(Identifier identifier) {
        return python.dropTable(path(identifier));
    }

    public void renameTable(Identifier from, Identifier to) {
        throw new UnsupportedOperationException("table " + path(from) + " cannot be renamed: create a new one");
    }

    // ---- databases ----

    public String[][] listNamespaces() {
        String[] names = python.ask("list_databases", new HashMap<String, Object>()).strings();
        String[][] found = new String[names.length][];
        for (int i = 0; i < found.length; i++) {
            found[i] = new String[] {names[i]};
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

    public Map<String, String> loadNamespaceMetadata(String[] namespace) throws NoSuchNamespaceException {
        if (namespace.length != 1) {
            throw new NoSuchNamespaceException(namespace);
        }
        PythonCalls.Answer answer = python.ask("load_database", PythonCalls.request("database", namespace[0]));
        if (answer.code() == PythonCalls.DATABASE_NOT_EXIST) {
            throw new NoSuchNamespaceException(namespace);
        }
        return PythonCalls.asStringMap(answer.result());
    }

    public void createNamespace(String[] namespace, Map<String, String> metadata)
            throws NamespaceAlreadyExistsException {
        Map<String, Object> request = PythonCalls.request("database", database(namespace));
        request.put("properties", metadata);
        PythonCalls.Answer answer = python.ask("create_database", request);
        if (answer.code() == PythonCalls.DATABASE_ALREADY_EXIST) {
            throw new NamespaceAlreadyExistsException(namespace);
        }
        answer.result();
    }

    public void alterNamespace(String[] namespace, NamespaceChange... changes) throws NoSuchNamespaceException {
        Map<String, String> set = new HashMap<String, String>();
        List<String> unset = new ArrayList<String>();
        for (int i = 0; i < changes.length; i++) {
            if (changes[i] instanceof NamespaceChange.SetProperty) {
                NamespaceChange.SetProperty change = (NamespaceChange.SetProperty) changes[i];
                set.put(change.property(), change.value());
            } else {
                unset.add(((NamespaceChange.RemoveProperty) changes[i]).property());
            }
        }
        Map<String, Object> request = PythonCalls.request("database", database(namespace));
        request.put("set_properties", set);
        request.put("unset_properties", unset);
        PythonCalls.Answer answer = python.ask("alter_database", request);
        if (answer.code() == PythonCalls.DATABASE_NOT_EXIST) {
            throw new NoSuchNamespaceException(namespace);
        }
        answer.result();
    }

    public boolean dropNamespace(String[] namespace, boolean cascade)
            throws NoSuchNamespaceException, NonEmptyNamespaceException {
        Map<String, Object> request = PythonCalls.request("database", database(namespace));
        request.put("cascade", Boolean.valueOf(cascade));
        PythonCalls.Answer answer = python.ask("drop_database", request);
        if (answer.code() == PythonCalls.DATABASE_NOT_EXIST) {
            throw new NoSuchNamespaceException(namespace);
        }
        if (answer.code() == PythonCalls.DATABASE_NOT_EMPTY) {
            throw new NonEmptyNamespaceException(namespace);
        }
        answer.result();
        return true;
    }

    // ---- names ----

    static String database(String[] namespace) {
        if (namespace.length > 1) {
            throw new UnsupportedOperationException("databases are not nested, got " + String.join(".", namespace));
        }
        return namespace.length == 0 ? DEFAULT_DATABASE : namespace[0];
    }

    static String path(Identifier identifier) {
        return database(identifier.namespace()) + "." + identifier.name();
    }

    /** The columns of PARTITIONED BY, which may not have functions. */
    static List<String> identityColumns(Transform[] partitions) {
        List<String> columns = new ArrayList<String>();
        for (int i = 0; i < partitions.length; i++) {
            if (!partitions[i].name().equals("identity")) {
                throw new UnsupportedOperationException("tables are partitioned by columns, not by " + partitions[i]);
            }
            columns.add(String.join(".", partitions[i].references()[0].fieldNames()));
        }
        return columns;
    }
}
