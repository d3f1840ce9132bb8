package flusspy.spark;

import java.util.Arrays;
import java.util.List;
import java.util.Map;

import com.fasterxml.jackson.databind.ObjectMapper;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

final class PartitionValuesTest {
    private static final DataType[] TYPES = {
        DataTypes.StringType, DataTypes.createCharType(3), DataTypes.BooleanType, DataTypes.ByteType, DataTypes.ShortType,
        DataTypes.IntegerType, DataTypes.LongType, DataTypes.FloatType, DataTypes.DoubleType, DataTypes.BinaryType,
        DataTypes.DateType, DataTypes.TimestampType, DataTypes.TimestampNTZType,
    };
    private static final Object[] VALUES = {
        UTF8String.fromString("dä"), UTF8String.fromString("abc"), true, (byte) -3, (short) 300,
        -70_000, Long.MIN_VALUE, 0.1f, Double.NEGATIVE_INFINITY, new byte[] {0, -1, 127},
        -20_000, -1L, 1_700_000_000_000_001L,
    };

    private static StructType schema(DataType... types) {
        StructType schema = new StructType();
        for (int i = 0; i < types.length; i++) {
            schema = schema.add("c" + i, types[i]);
        }
        return schema;
    }

    /** The JSON that goes to Python. */
    private static Map<?, ?> sent(StructType schema, String[] names, Object... values) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        String json = mapper.writeValueAsString(PartitionValues.toJson(schema, names, new GenericInternalRow(values)));
        return mapper.readValue(json, Map.class);
    }

    void testValuesGoToPython() throws Exception {
        StructType schema = schema(TYPES);
        Map<?, ?> json = sent(schema, schema.fieldNames(), VALUES);
        Object[] expected = {
            "dä", "abc", true, -3, 300, -70_000, Long.MIN_VALUE, 0.1, "-Infinity", "AP9/", -20_000, -1, 1_700_000_000_000_001L,
        };
        for (int i = 0; i < expected.length; i++) {
            Checks.equal(expected[i], json.get("c" + i));
        }
    }

    void testSomeColumnsInTheirOwnOrder() throws Exception {
        StructType schema = schema(DataTypes.StringType, DataTypes.DateType, DataTypes.LongType);
        Map<?, ?> json = sent(schema, new String[] {"c2", "c0"}, 7L, UTF8String.fromString("x"));
        Checks.equal(Map.of("c2", 7, "c0", "x"), json);
        Checks.equal(null, sent(schema, new String[] {"c1"}, new Object[] {null}).get("c1"));
    }

    void testValuesComeFromPython() throws Exception {
        String json = "[\"dä\", \"abc\", true, -3, 300, -70000, -9223372036854775808, \"0.1\", \"-Infinity\", \"AP9/\", -20000, -1,"
            + " 1700000000000001]";
        List<?> values = new ObjectMapper().readValue(json, List.class);
        InternalRow row = PartitionValues.fromJson(schema(TYPES), values);
        Checks.equal(VALUES.length, row.numFields());
        for (int i = 0; i < VALUES.length; i++) {
            Checks.equal(VALUES[i], row.get(i, TYPES[i]));
        }
    }

    void testNumbersThatAreNone() throws Exception {
        StructType schema = schema(DataTypes.FloatType, DataTypes.DoubleType);
        InternalRow row = PartitionValues.fromJson(schema, Arrays.asList("NaN", "Infinity"));
        Checks.isTrue(Float.isNaN(row.getFloat(0)), "NaN");
        Checks.equal(Double.POSITIVE_INFINITY, row.getDouble(1));
        Checks.equal("NaN", sent(schema, new String[] {"c0"}, Float.NaN).get("c0"));
    }
}
