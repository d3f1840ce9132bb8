package flusspy.spark;

import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;

import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;

/**
 * Converts values of partition columns between Spark's rows and JSON; fluss.spark.convert.partition_json is the other end.
 *
 * JSON has Spark's internal values: days, microseconds and nanoseconds are integers, bytes are Base64. Python sends
 * floating-point numbers as strings, because JSON has no infinite numbers.
 */
public class PartitionValues {
    private PartitionValues() {
    }

    /** The values of a row by column name; the row may have only some of the partition columns. */
    static Map<String, Object> toJson(StructType partitionSchema, String[] names, InternalRow row) {
        Map<String, Object> values = new HashMap<String, Object>();
        for (int i = 0; i < names.length; i++) {
            DataType type = partitionSchema.fields()[partitionSchema.fieldIndex(names[i])].dataType();
            Object value = row.isNullAt(i) ? null : row.get(i, type);
            values.put(names[i], value instanceof UTF8String ? value.toString() : value);
        }
        return values;
    }

    /** The row of all partition columns, from their values in order. */
    static InternalRow fromJson(StructType partitionSchema, List<?> values) {
        StructField[] fields = partitionSchema.fields();
        Object[] row = new Object[fields.length];
        for (int i = 0; i < row.length; i++) {
            row[i] = internal(values.get(i), fields[i].dataType());
        }
        return new GenericInternalRow(row);
    }

    /** Spark's internal value for a value of JSON. */
    private static Object internal(Object value, DataType type) {
        if (type instanceof StringType) {
            return UTF8String.fromString((String) value);
        }
        if (type.equals(DataTypes.BooleanType)) {
            return value;
        }
        if (type.equals(DataTypes.BinaryType)) {
            return Base64.getDecoder().decode((String) value);
        }
        if (type.equals(DataTypes.FloatType)) {
            return Float.valueOf((String) value);
        }
        if (type.equals(DataTypes.DoubleType)) {
            return Double.valueOf((String) value);
        }
        Number number = (Number) value;
        if (type.equals(DataTypes.ByteType)) {
            return Byte.valueOf(number.byteValue());
        }
        if (type.equals(DataTypes.ShortType)) {
            return Short.valueOf(number.shortValue());
        }
        if (type.equals(DataTypes.IntegerType) || type.equals(DataTypes.DateType)) {
            return Integer.valueOf(number.intValue());
        }
        return Long.valueOf(number.longValue()); // 64-bit integers, and all times
    }
}
